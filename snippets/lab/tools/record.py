"""The command `record`: measure experiments and notebooks on this machine's GPU."""

from __future__ import annotations

import argparse
import math
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from kinetoscope.terminal import positive
from snippets.lab.experiment import Experiment, chapters, find
from snippets.lab.finding.device import Device
from snippets.lab.notebooks.files import (
    TIME_LIMIT_S,
    Notebook,
    NotebookError,
    RunNotebooks,
    find_notebooks,
    is_notebook,
    record_notebook,
)
from snippets.lab.recording.device import AMD_ONLY, DEFAULT_DEVICE, PROJECT, recordings_root, why_no_device
from snippets.lab.tools.archive import pack_archive
from snippets.lab.tools.estimates import estimate_text, print_left
from snippets.lab.tools.listing import stale_beside
from snippets.lab.tools.refusals import load_refusals, save_refusals

if TYPE_CHECKING:
    from snippets.lab.capture.recorder import CostOf, Outcome

DESCRIPTION = """\
Measure stale or missing experiments on this machine's GPU and save them below docs/recordings. If an experiment fails,
its cause is printed, its earlier recording is kept, and the others are still recorded. The GPU is the first one of
CUDA_VISIBLE_DEVICES, and an experiment on several GPUs has the first ones. Recording refuses to start while another
recorder or any other program uses them. What needs more GPUs than this machine has is named and left out.

How long it will take is estimated from earlier recordings, of another GPU if this one has none. The shortest comes
first. With --minutes, nothing is started that would probably end too late; run the same command again to go on.

  python -m snippets.lab record mlp linear/eager
  python -m snippets.lab record --minutes 9
  CUDA_VISIBLE_DEVICES=1 python -m snippets.lab record --wait
"""
PATIENCE = 3
"""How many times its time limit an experiment on one GPU may take on another GPU than the default. The limits are for
the default one: its CPU compiles quickly, and `FusedGeGLU` need not tune there. Ranks that wait for each other forever
would hold several GPUs for that long."""


@dataclass(frozen=True)
class Machine:
    """Functions that measure on a machine with a GPU; tests pass their own."""

    require_gpu: Callable[[], str]
    """The slug of the GPU. Raises `NeedsGpu`."""
    select_pending: Callable[[Path, str, Sequence[Experiment], bool], Sequence[Experiment]]
    record_experiments: Callable[[Path, str, Sequence[Experiment], CostOf, float], Iterable[Outcome]]
    """Starts nothing that would probably end later than these seconds."""
    run_notebooks: RunNotebooks
    reserve_gpu: Callable[[bool, bool, int], AbstractContextManager[None]]
    """Keeps others off so many GPUs: wait for them, go on beside them, or raise `NeedsGpu`."""
    recorded_cost_s: Callable[[Path, str], CostOf]
    batch_costs_s: Callable[[Sequence[Experiment], CostOf], Sequence[float]]
    """How long each thing takes that is started on its own, the shortest first."""
    refusals: Path
    """The folder of the GPUs' refusals."""
    gpu_count: Callable[[], int]
    clock: Callable[[], float] = time.monotonic


def this_machine() -> Machine:
    """The machine that this process runs on."""
    from snippets.lab.capture.lock import reserve_gpu
    from snippets.lab.capture.recorder import batch_costs_s, record_experiments
    from snippets.lab.capture.selection import (
        NoGpu,
        count_gpus,
        recorded_cost_s,
        require_gpu as gpu_of_torch,
        select_pending,
    )
    from snippets.lab.notebooks.cells import run_notebooks

    def require_gpu() -> str:
        try:
            found = gpu_of_torch()
        except NoGpu as error:
            raise NoGpu(why_no_device() or str(error)) from error
        if found.startswith("amd-"):
            raise NoGpu(AMD_ONLY)
        return found

    def record_until(
        root: Path, device: str, pending: Sequence[Experiment], cost_s: CostOf, limit_s: float
    ) -> Iterable[Outcome]:
        known = {experiment.id: experiment for experiment in pending}
        return record_experiments(
            root, device, patient(pending, device), cost_s=lambda one: cost_s(known[one.id]), limit_s=limit_s
        )

    return Machine(
        require_gpu,
        select_pending,
        record_until,
        run_notebooks,
        reserve_gpu,
        recorded_cost_s,
        batch_costs_s,
        PROJECT / ".cache" / "refusals",
        count_gpus,
    )


def patient(pending: Sequence[Experiment], device: str) -> list[Experiment]:
    """The experiments with the time limits of this device."""
    if device == DEFAULT_DEVICE:
        return list(pending)
    return [replace(one, time_limit_s=PATIENCE * one.time_limit_s) if one.gpus == 1 else one for one in pending]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `record`."""
    parser.add_argument(
        "experiments",
        nargs="*",
        metavar="CHAPTER[/EXPERIMENT]",
        help="default: all chapters and notebooks; a notebook alone is labs/CHAPTER",
    )
    which = parser.add_mutually_exclusive_group()  # a fresh start has nothing to go on with
    which.add_argument("--fresh", action="store_true", help="record everything, even what is current")
    which.add_argument(
        "--minutes",
        type=positive("minutes"),
        default=math.inf,
        metavar="N",
        help="start nothing that would probably end later than in N minutes",
    )
    parser.add_argument(
        "--archive",
        type=Path,
        metavar="FILE",
        help="then pack all recordings of this device, old and new, as .tar.gz; also after Ctrl-C or SIGTERM",
    )
    parser.add_argument("--wait", action="store_true", help="wait until nobody else uses the GPU, instead of refusing")
    parser.add_argument(
        "--shared", action="store_true", help="record beside other programs; the recordings are marked as disturbed"
    )


def command(arguments: argparse.Namespace) -> int:
    """Record on this machine's GPU; with `--archive`, then pack an archive."""
    return record(
        recordings_root(),
        arguments.experiments,
        arguments.fresh,
        arguments.archive,
        minutes=arguments.minutes,
        wait=arguments.wait,
        shared=arguments.shared,
        machine=this_machine(),
    )


def record(
    root: Path,
    names: Sequence[str],
    fresh: bool = False,
    archive: Path | None = None,
    *,
    minutes: float = math.inf,
    wait: bool = False,
    shared: bool = False,
    retry: bool = True,
    machine: Machine,
) -> int:
    """Record the experiments and notebooks that `names` select, print failures, and pack `archive` if given.

    Unless `retry`, skip experiments that this GPU refused before.
    """
    chosen = [experiment for name in names or chapters() if not is_notebook(root, name) for experiment in find(name)]
    chosen_notebooks = find_notebooks(root, names)
    device = machine.require_gpu()
    chosen = within(machine.gpu_count(), chosen)
    if not retry and (refused := load_refusals(machine.refusals, device)):
        chosen = [experiment for experiment in chosen if experiment.id not in refused]
        print(f"{device}: not tried again, because this GPU refused them: {', '.join(refused)}; make record tries them")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as Ctrl-C: ends the worker and removes its folder
    pending = machine.select_pending(root, device, chosen, fresh)
    notebooks = select_notebooks(chosen_notebooks, device, fresh)
    gpus = max((experiment.gpus for experiment in pending), default=1)
    reserved = machine.reserve_gpu(wait, shared, gpus) if pending or notebooks else nullcontext()
    with _packed_if_interrupted(root, device, archive), reserved:
        if wait:  # a recorder that was waited for may have recorded some
            pending = machine.select_pending(root, device, chosen, fresh)
        cost_s = machine.recorded_cost_s(root, device)
        print(
            f"{device}: {len(pending)} to record, {len(chosen)} chosen"
            + estimate_text(_costs_s(machine, pending, cost_s, notebooks), len(notebooks)),
            flush=True,
        )
        print(stale_beside(Device(root, device), chosen), end="", flush=True)
        end = machine.clock() + 60 * minutes
        outcomes = list(machine.record_experiments(root, device, pending, cost_s, 60 * minutes))
        causes = {outcome.experiment.id: outcome.failed for outcome in outcomes if outcome.failed}
        save_refusals(machine.refusals, device, causes, [outcome.experiment.id for outcome in outcomes])
        failed = len(causes)
        ran = record_notebooks(root, notebooks, device, machine.run_notebooks, lambda: end - machine.clock())
        causes |= {name: cause for name, cause in ran.items() if cause}
    print(f"{device}: {len(outcomes) - failed} recorded, {failed} failed")
    for name, cause in causes.items():
        print(f"  {name}: {cause}")
    done = {*ran, *(outcome.experiment.id for outcome in outcomes)}
    left = [experiment for experiment in pending if experiment.id not in done]
    left_notebooks = [notebook for notebook in notebooks if notebook.id not in done]
    is_stuck = print_left(
        device, len(left) + len(left_notebooks), _costs_s(machine, left, cost_s, left_notebooks), minutes
    )
    _pack(root, device, archive)
    return 1 if causes or is_stuck else 0


def within(count: int, chosen: Sequence[Experiment]) -> list[Experiment]:
    """The experiments that need at most so many GPUs; print the others."""
    others: dict[int, list[str]] = {}
    for experiment in chosen:
        if experiment.gpus > count:
            others.setdefault(experiment.gpus, []).append(experiment.id)
    for gpus, ids in sorted(others.items()):
        print(f"needs {gpus} GPUs, and this machine has {count}: {', '.join(ids)}", flush=True)
    return [experiment for experiment in chosen if experiment.gpus <= count]


@contextmanager
def _packed_if_interrupted(root: Path, device: str, archive: Path | None) -> Iterator[None]:
    """Pack the recordings when Ctrl-C or SIGTERM ends the work: a borrowed machine may be gone afterwards."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        _pack(root, device, archive)
        raise


def _pack(root: Path, device: str, archive: Path | None) -> None:
    """Pack all recordings of the device, if an archive is requested."""
    if archive is None:
        return
    count = pack_archive(root, device, archive)
    print(f"{archive}: all recordings of {device}, {count} files; on a machine that can commit, run: ", end="")
    print(f"python -m snippets.lab import {shlex.quote(archive.name)}")


def _costs_s(
    machine: Machine, pending: Sequence[Experiment], cost_s: CostOf, notebooks: Sequence[Notebook]
) -> list[float]:
    """Estimated seconds of each batch and each notebook."""
    return [*machine.batch_costs_s(pending, cost_s), *map(notebook_cost_s, notebooks)]


def select_notebooks(chosen: Sequence[Notebook], device: str, fresh: bool) -> list[Notebook]:
    """Select notebooks without current outputs, or all if `fresh`.

    Only on the default device: a notebook has one set of outputs, and readers run it themselves.
    """
    return [each for each in chosen if device == DEFAULT_DEVICE and (fresh or each.state != "recorded")]


def notebook_cost_s(notebook: Notebook) -> float:
    """The seconds of a notebook's last recording, else its limit."""
    try:
        return notebook.run_info.seconds if notebook.run_info else TIME_LIMIT_S
    except NotebookError:
        return TIME_LIMIT_S


def record_notebooks(
    root: Path, pending: Sequence[Notebook], device: str, run_notebooks: RunNotebooks, left_s: Callable[[], float]
) -> dict[str, str]:
    """Run notebooks that probably end in time; return each one's error, empty after success."""
    causes: dict[str, str] = {}
    for notebook in sorted(pending, key=notebook_cost_s):
        if notebook_cost_s(notebook) > left_s():
            break
        causes[notebook.id] = record_notebook(root, notebook, device, run_notebooks)
        print(f"{notebook.id}: {causes[notebook.id].partition(chr(10))[0] or 'recorded'}", flush=True)
    return causes
