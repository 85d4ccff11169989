"""One experiment in this process, on a GPU or a CPU: profiled, compared with its reference, never recorded.

An experiment on several GPUs has a process for each rank, on a CPU with gloo.
"""

from __future__ import annotations

import json
import tempfile
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import torch
from torch.profiler import profile

from kinetoscope.files import write_whole
from kinetoscope.ranks.joining import merge_ranks
from snippets.lab.capture.agreement import ALONE, Ranks, meet
from snippets.lab.capture.checking import build_subject, relative_error
from snippets.lab.capture.instruments import TorchInstruments
from snippets.lab.capture.loops import check_loop, open_loop, profile_loop
from snippets.lab.capture.profiling import chrome_trace, profile_steps
from snippets.lab.capture.ranks import run_ranks
from snippets.lab.experiment import Experiment, ExperimentError, NeedsGpu, Parameters, Subject, WrongAnswer, find


def profile_here(experiment: Experiment, device: str, trace_dir: Path | None, package: str = "snippets") -> None:
    """Print the profiler's table and the relative error, and write the Chrome trace to a folder if one is given.

    Of several ranks, the table is rank 0's and the trace has all of them. Raises `WrongAnswer`, `ExperimentError` and
    `NeedsGpu`; `RankError` for another error of a rank.
    """
    if experiment.gpus > 1:
        _profile_ranks_here(experiment, device, trace_dir, package)
        return
    if experiment.probe is not None:
        data = experiment.probe(instruments=TorchInstruments(), device=device, **experiment.parameters)
        print(json.dumps(data, indent=2))
        return
    if experiment.loop is not None:
        print(_headline(experiment, device, experiment.parameters))
        _profile_loop_here(experiment, device, trace_dir)
        return
    for parameters in experiment.points:
        print(_headline(experiment, device, parameters))
        subject = build_subject(experiment, device, parameters)
        finished = profile_steps(experiment, subject, device)
        _print_table(finished, device)
        if trace_dir is not None:
            _write_trace(experiment, parameters, finished, device, trace_dir)
        _compare(experiment, subject, device)


def _profile_loop_here(experiment: Experiment, device: str, trace_dir: Path | None, ranks: Ranks = ALONE) -> None:
    with open_loop(experiment, device, ranks) as loop:
        try:
            error, dtype, _ = check_loop(loop, device, ranks)
        except WrongAnswer as wrong:
            raise WrongAnswer(f"{experiment.id}: wrong answer: {wrong}") from wrong
        finished = profile_loop(experiment, loop, device, ranks)
        tolerance = loop.tolerance
    if ranks.is_first:
        if ranks.world > 1:
            print("The table of rank 0:")
        _print_table(finished, device)
    if trace_dir is not None and ranks.world > 1:
        (trace_dir / f"rank{ranks.rank}.json").write_bytes(chrome_trace(finished))
    elif trace_dir is not None:
        _write_trace(experiment, experiment.parameters, finished, device, trace_dir)
    if ranks.is_first:
        print(f"relative error of the losses {error:.1e} ({dtype} reference, at most {tolerance:.0e})", flush=True)


def _profile_ranks_here(experiment: Experiment, device: str, trace_dir: Path | None, package: str) -> None:
    if device == "cuda" and torch.cuda.device_count() < experiment.gpus:
        raise NeedsGpu(
            f"{experiment.id} needs {experiment.gpus} GPUs, and this machine has {torch.cuda.device_count()}; "
            "--device cpu runs it with gloo"
        )
    parameters = dict(experiment.parameters)
    print(f"{_headline(experiment, device, parameters)}, {experiment.gpus} ranks", flush=True)
    with tempfile.TemporaryDirectory() as name:
        printed, *_ = run_ranks(
            _profile_rank, experiment.gpus, experiment.id, package, parameters, device, Path(name),
            device=device, limit_s=experiment.time_limit_s, environment=experiment.environment,
        )  # fmt: skip
        print(printed, end="")
        if trace_dir is None or experiment.probe is not None:
            return
        path = _trace_path(experiment, parameters, trace_dir)
        merge_ranks(sorted(Path(name).glob("rank*.json")), path)
        _print_trace(path)


def _profile_rank(
    rank: int, world: int, experiment_id: str, package: str, parameters: Parameters, device: str, folder: Path
) -> str:
    """Profile on this rank, with its trace in the folder; return what is to be printed, empty but for rank 0."""
    experiment = find(experiment_id, package)[0].at(**parameters)
    with redirect_stdout(StringIO()) as out:
        if experiment.loop is not None:
            _profile_loop_here(experiment, device, folder, meet(rank, world))
            return out.getvalue()
    assert experiment.probe is not None
    data = experiment.probe(instruments=TorchInstruments(), device=device, rank=rank, world=world, **parameters)
    return "" if rank else json.dumps(data, indent=2) + "\n"


def _headline(experiment: Experiment, device: str, parameters: Parameters) -> str:
    return f"{experiment.id} on {device}: {' '.join(f'{name}={value}' for name, value in parameters.items())}"


def _print_table(finished: profile, device: str) -> None:
    sort = "self_cuda_time_total" if device == "cuda" else "self_cpu_time_total"
    print(finished.key_averages().table(sort_by=sort, row_limit=15, max_name_column_width=60))


def _write_trace(
    experiment: Experiment, parameters: Parameters, finished: profile, device: str, trace_dir: Path
) -> None:
    path = _trace_path(experiment, parameters, trace_dir)
    write_whole(path, chrome_trace(finished))
    _print_trace(path)
    if device == "cuda":
        print(f"  in one table:  python -m kinetoscope summary {path}")


def _trace_path(experiment: Experiment, parameters: Parameters, trace_dir: Path) -> Path:
    trace_dir.mkdir(parents=True, exist_ok=True)
    values = "_".join(str(value) for value in parameters.values())
    return trace_dir / f"{experiment.chapter}_{experiment.name}_{values}.json"


def _print_trace(path: Path) -> None:
    print(f"trace: {path}\n  in Perfetto:   python -m kinetoscope open {path}")


def _compare(experiment: Experiment, subject: Subject, device: str) -> None:
    """Print the error of one step, or raise with the experiment's name."""
    try:
        error, dtype, _ = relative_error(subject, device)
    except WrongAnswer as wrong:
        raise WrongAnswer(f"{experiment.id}: wrong answer: {wrong}") from wrong
    except ExperimentError as unfit:
        raise ExperimentError(f"{experiment.id}: {unfit}") from unfit
    print(f"relative error {error:.1e} ({dtype} reference, at most {subject.tolerance:.0e})")
