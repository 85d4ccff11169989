"""The command `record`: measure experiments and notebooks on this machine's GPU."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from snippets.lab.experiment import Experiment, chapters, find
from snippets.lab.notebooks.files import Notebook, RunNotebooks, find_notebooks, is_notebook, record_notebook
from snippets.lab.recording.device import DEFAULT_DEVICE, recordings_root
from snippets.lab.tools.archive import pack_archive

if TYPE_CHECKING:
    from snippets.lab.capture.recorder import Outcome

HELP = "record experiments on this machine's GPU"
DESCRIPTION = """\
Measure stale or missing experiments on this machine's GPU and save them below docs/recordings. If an experiment fails,
its cause is printed, its earlier recording is kept, and the others are still recorded. The GPU is the first one of
CUDA_VISIBLE_DEVICES. Recording refuses to start while another recorder or any other program uses it.

  python -m snippets.lab record mlp linear/eager
  CUDA_VISIBLE_DEVICES=1 python -m snippets.lab record --wait
"""


@dataclass(frozen=True)
class Machine:
    """Functions that measure on a machine with a GPU; tests pass their own."""

    require_gpu: Callable[[], str]
    """The slug of the GPU. Raises `NeedsGpu`."""
    select_pending: Callable[[Path, str, Sequence[Experiment], bool], Sequence[Experiment]]
    record_experiments: Callable[[Path, str, Sequence[Experiment]], Iterable[Outcome]]
    run_notebooks: RunNotebooks
    reserve_gpu: Callable[[bool, bool], AbstractContextManager[None]]
    """Keeps others off the GPU: wait for them, go on beside them, or raise `NeedsGpu`."""


def this_machine() -> Machine:
    """The machine that this process runs on."""
    from snippets.lab.capture.lock import reserve_gpu
    from snippets.lab.capture.recorder import record_experiments
    from snippets.lab.capture.selection import require_gpu, select_pending
    from snippets.lab.notebooks.cells import run_notebooks

    return Machine(require_gpu, select_pending, record_experiments, run_notebooks, reserve_gpu)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `record`."""
    parser.add_argument(
        "experiments",
        nargs="*",
        metavar="CHAPTER[/EXPERIMENT]",
        help="default: all chapters and notebooks; a notebook alone is labs/CHAPTER",
    )
    parser.add_argument("--fresh", action="store_true", help="record everything, even what is current")
    parser.add_argument(
        "--archive", type=Path, metavar="FILE", help="then pack all recordings of this device, old and new, as .tar.gz"
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
    wait: bool = False,
    shared: bool = False,
    machine: Machine,
) -> int:
    """Record the experiments and notebooks that `names` select, print failures, and pack `archive` if given."""
    chosen = [experiment for name in names or chapters() if not is_notebook(root, name) for experiment in find(name)]
    chosen_notebooks = find_notebooks(root, names)
    device = machine.require_gpu()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as Ctrl-C: ends the worker and removes its folder
    pending = machine.select_pending(root, device, chosen, fresh)
    pending_notebooks = select_notebooks(chosen_notebooks, device, fresh)
    with machine.reserve_gpu(wait, shared) if pending or pending_notebooks else nullcontext():
        if wait:  # a recorder that was waited for may have recorded some
            pending = machine.select_pending(root, device, chosen, fresh)
        print(f"{device}: {len(pending)} to record, {len(chosen)} chosen", flush=True)
        outcomes = list(machine.record_experiments(root, device, pending))
        causes = {outcome.experiment.id: outcome.failed for outcome in outcomes if outcome.failed}
        failed = len(causes)
        causes |= record_notebooks(pending_notebooks, device, machine.run_notebooks)
    print(f"{device}: {len(outcomes) - failed} recorded, {failed} failed")
    for name, cause in causes.items():
        print(f"  {name}: {cause}")
    if archive is not None:
        count = pack_archive(root, device, archive)
        print(f"{archive}: all recordings of {device}, {count} files; on a machine that can commit, run: ", end="")
        print(f"python -m snippets.lab import {archive.name}")
    return 1 if causes else 0


def select_notebooks(chosen: Sequence[Notebook], device: str, fresh: bool) -> list[Notebook]:
    """Select notebooks without current outputs, or all if `fresh`.

    Only on the default device: a notebook has one set of outputs, and readers run it themselves.
    """
    return [each for each in chosen if device == DEFAULT_DEVICE and (fresh or each.state != "recorded")]


def record_notebooks(pending: Sequence[Notebook], device: str, run_notebooks: RunNotebooks) -> dict[str, str]:
    """Run notebooks; return the causes of failures by id."""
    causes: dict[str, str] = {}
    for notebook in pending:
        cause = record_notebook(notebook, device, run_notebooks)
        print(f"{notebook.id}: {cause.partition(chr(10))[0] or 'recorded'}", flush=True)
        if cause:
            causes[notebook.id] = cause
    return causes
