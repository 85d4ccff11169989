"""A subject and its result: the maker's return value, and the error of a step
against its reference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch

from snippets.lab.capture.profiling import synchronize
from snippets.lab.experiment import (
    Experiment,
    ExperimentError,
    Parameters,
    Subject,
    WrongAnswer,
)


def build_subject(experiment: Experiment, device: str, parameters: Parameters) -> Subject:
    """Call the maker. Its `inputs` then raise `ExperimentError` if they are not
    a tuple."""
    assert experiment.make is not None
    subject = experiment.make(device=device, **parameters)
    if not isinstance(subject, Subject):
        raise ExperimentError(f"{experiment.id}: make returned a {type(subject).__name__}; return a Subject")
    return replace(subject, inputs=partial(_draw, experiment.id, subject.inputs))


def _draw(experiment_id: str, inputs: Callable[[], tuple[torch.Tensor, ...]]) -> tuple[torch.Tensor, ...]:
    drawn: object = inputs()
    if not isinstance(drawn, tuple):
        raise ExperimentError(f"{experiment_id}: inputs returned a {type(drawn).__name__}; return a tuple, as in (x,)")
    return drawn


# fmt: off
# --8<-- [start:check]
def relative_error(subject: Subject, device: str) -> tuple[float, str, int]:
    """Compare a step with its reference on fresh inputs, and measure its
    memory.

    Returns the error (Frobenius norm of the difference over that of the
    reference), the reference's dtype and the peak bytes of the step beyond the
    bytes allocated before. Raises `WrongAnswer`.
    """
    inputs = subject.inputs()
    # what is allocated once for all, such as cuBLAS's workspace, is not the
    # step's
    subject.step(*inputs)
    if device == "cuda":
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
    with torch.no_grad():
        output = subject.step(*inputs)
        synchronize(device)
        peak_bytes = (
            torch.cuda.max_memory_allocated() - before
            if device == "cuda"
            else 0
        )
        expected = subject.reference(*inputs)
        require_precise(expected, output, subject.tolerance)
        error = (
            (output.to(expected.dtype) - expected).double().norm()
            / expected.double().norm()
        ).item()
    if not error <= subject.tolerance:  # NaN is wrong too
        raise WrongAnswer(
            f"relative error {error:.2e}, at most {subject.tolerance:.0e} "
            "allowed"
        )
    return error, dtype_name(expected), peak_bytes


# --8<-- [end:check]
# fmt: on


def require_precise(expected: torch.Tensor, output: torch.Tensor, tolerance: float) -> None:
    """Raise `ExperimentError` unless a reference is more precise than the step;
    a tolerance of 0 compares exactly."""
    if not isinstance(output, torch.Tensor):
        raise ExperimentError(f"step returned a {type(output).__name__}; return one tensor")
    enough = {torch.float64} if output.dtype in (torch.float32, torch.float64) else {torch.float32, torch.float64}
    if tolerance > 0 and expected.dtype not in enough:
        names = " or ".join(sorted(str(dtype).removeprefix("torch.") for dtype in enough))
        raise ExperimentError(f"reference returns {dtype_name(expected)}; compute it in {names}")


def dtype_name(tensor: torch.Tensor) -> str:
    """`bfloat16` for torch.bfloat16."""
    return str(tensor.dtype).removeprefix("torch.")
