"""A result is compared with a more precise reference; a maker's return value is checked."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from snippets.lab.capture.checking import build_subject, relative_error
from snippets.lab.experiment import Experiment, ExperimentError, Subject, Work, WrongAnswer


def subject(answer: float, expected: float, tolerance: float = 1e-2) -> Subject:
    return Subject(
        step=lambda x: x * answer, inputs=lambda: (torch.ones(4),), reference=lambda x: x.double() * expected,
        tolerance=tolerance,
    )  # fmt: skip


@pytest.mark.parametrize(("answer", "expected", "error"), [(1.0, 1.0, 0.0), (3.0, 4.0, 0.25), (0.0, 2.0, 1.0)])
def test_the_error_is_relative_to_the_reference(answer: float, expected: float, error: float) -> None:
    assert relative_error(subject(answer, expected, 1.0), "cpu") == (error, "float64", 0)


@pytest.mark.parametrize("answer", [1.02, float("nan"), float("inf"), -1.0])
def test_a_wrong_answer_is_refused(answer: float) -> None:
    with pytest.raises(WrongAnswer, match=r"^relative error \S+, at most 1e-02 allowed$"):
        relative_error(subject(answer, 1.0), "cpu")


def cast(output: torch.dtype, reference: torch.dtype, tolerance: float = 1e-2) -> Subject:
    return Subject(
        step=lambda x: x.to(output),
        inputs=lambda: (torch.ones(4),),
        reference=lambda x: x.to(reference),
        tolerance=tolerance,
    )


@pytest.mark.parametrize(
    ("output", "reference", "message"),
    [
        (torch.bfloat16, torch.bfloat16, "reference returns bfloat16; compute it in float32 or float64"),
        (torch.bfloat16, torch.float16, "reference returns float16; compute it in float32 or float64"),
        (torch.float32, torch.float32, "reference returns float32; compute it in float64"),
        (torch.float64, torch.float32, "reference returns float32; compute it in float64"),
    ],
)
def test_a_reference_has_to_be_more_precise(output: torch.dtype, reference: torch.dtype, message: str) -> None:
    with pytest.raises(ExperimentError) as raised:
        relative_error(cast(output, reference), "cpu")
    assert str(raised.value) == message


@pytest.mark.parametrize(
    ("output", "reference", "tolerance"),
    [
        (torch.bfloat16, torch.float32, 1e-2),
        (torch.float32, torch.float64, 1e-2),
        (torch.float64, torch.float64, 1e-2),
        (torch.bfloat16, torch.bfloat16, 0.0),
        (torch.uint8, torch.uint8, 0.0),
    ],
)
def test_a_reference_that_is_precise_enough(output: torch.dtype, reference: torch.dtype, tolerance: float) -> None:
    """With a tolerance of 0, as for a copy, it is compared exactly, and its type does not matter."""
    name = str(reference).removeprefix("torch.")
    assert relative_error(cast(output, reference, tolerance), "cpu") == (0.0, name, 0)


def test_a_step_returns_one_tensor() -> None:
    pair: Any = Subject(step=lambda x: (x, x), inputs=lambda: (torch.ones(4),), reference=lambda x: x.double())
    with pytest.raises(ExperimentError, match=r"^step returned a tuple; return one tensor$"):
        relative_error(pair, "cpu")


def built(make: Any) -> Subject:
    experiment = Experiment(chapter="c", name="n", label="l", make=make, work=lambda: Work(bytes=1))
    return build_subject(experiment, "cpu", {})


def test_inputs_are_a_tuple() -> None:
    def make(device: str) -> Subject:
        inputs: Any = lambda: torch.ones(4)  # noqa: E731
        return Subject(step=torch.clone, inputs=inputs, reference=torch.Tensor.double)

    with pytest.raises(ExperimentError, match=r"^c/n: inputs returned a Tensor; return a tuple, as in \(x,\)$"):
        built(make).inputs()


def test_a_maker_returns_a_subject() -> None:
    with pytest.raises(ExperimentError, match=r"^c/n: make returned a NoneType; return a Subject$"):
        built(lambda device: None)


def test_a_sound_subject_is_what_was_made() -> None:
    sound = subject(1.0, 1.0)
    made = built(lambda device: sound)
    assert (made.step, made.reference, made.tolerance) == (sound.step, sound.reference, sound.tolerance)
    assert relative_error(made, "cpu") == (0.0, "float64", 0)
