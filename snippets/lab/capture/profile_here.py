"""One experiment in this process, on a GPU or a CPU: profiled, compared with its reference, never recorded."""

from __future__ import annotations

import json
from pathlib import Path

from torch.profiler import profile

from kinetoscope.files import write_whole
from snippets.lab.capture.checking import build_subject, relative_error
from snippets.lab.capture.instruments import TorchInstruments
from snippets.lab.capture.loops import check_loop, open_loop, profile_loop
from snippets.lab.capture.profiling import chrome_trace, profile_steps
from snippets.lab.experiment import Experiment, ExperimentError, Parameters, Subject, WrongAnswer


def profile_here(experiment: Experiment, device: str, trace_dir: Path | None) -> None:
    """Print the profiler's table and the relative error, and write the Chrome trace to a folder if one is given.

    Raises `WrongAnswer`, `ExperimentError` and `NeedsGpu`.
    """
    if experiment.probe is not None:
        data = experiment.probe(instruments=TorchInstruments(), device=device, **experiment.parameters)
        print(json.dumps(data, indent=2))
        return
    if experiment.loop is not None:
        _profile_loop_here(experiment, device, trace_dir)
        return
    for parameters in experiment.points:
        print(f"{experiment.id} on {device}: {' '.join(f'{name}={value}' for name, value in parameters.items())}")
        subject = build_subject(experiment, device, parameters)
        finished = profile_steps(experiment, subject, device)
        _print_table(finished, device)
        if trace_dir is not None:
            _write_trace(experiment, parameters, finished, device, trace_dir)
        _compare(experiment, subject, device)


def _profile_loop_here(experiment: Experiment, device: str, trace_dir: Path | None) -> None:
    print(f"{experiment.id} on {device}: {' '.join(f'{name}={one}' for name, one in experiment.parameters.items())}")
    with open_loop(experiment, device) as loop:
        try:
            error, dtype, _ = check_loop(loop, device)
        except WrongAnswer as wrong:
            raise WrongAnswer(f"{experiment.id}: wrong answer: {wrong}") from wrong
        finished = profile_loop(experiment, loop, device)
        tolerance = loop.tolerance
    _print_table(finished, device)
    if trace_dir is not None:
        _write_trace(experiment, experiment.parameters, finished, device, trace_dir)
    print(f"relative error of the losses {error:.1e} ({dtype} reference, at most {tolerance:.0e})")


def _print_table(finished: profile, device: str) -> None:
    sort = "self_cuda_time_total" if device == "cuda" else "self_cpu_time_total"
    print(finished.key_averages().table(sort_by=sort, row_limit=15, max_name_column_width=60))


def _write_trace(
    experiment: Experiment, parameters: Parameters, finished: profile, device: str, trace_dir: Path
) -> None:
    trace_dir.mkdir(parents=True, exist_ok=True)
    values = "_".join(str(value) for value in parameters.values())
    path = trace_dir / f"{experiment.chapter}_{experiment.name}_{values}.json"
    write_whole(path, chrome_trace(finished))
    print(f"trace: {path}\n  in Perfetto:   python -m kinetoscope open {path}")
    if device == "cuda":
        print(f"  in one table:  python -m kinetoscope summary {path}")


def _compare(experiment: Experiment, subject: Subject, device: str) -> None:
    """Print the error of one step, or raise with the experiment's name."""
    try:
        error, dtype, _ = relative_error(subject, device)
    except WrongAnswer as wrong:
        raise WrongAnswer(f"{experiment.id}: wrong answer: {wrong}") from wrong
    except ExperimentError as unfit:
        raise ExperimentError(f"{experiment.id}: {unfit}") from unfit
    print(f"relative error {error:.1e} ({dtype} reference, at most {subject.tolerance:.0e})")
