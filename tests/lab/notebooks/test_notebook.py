"""The functions that a reader calls in a cell, all on the CPU."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from kinetoscope.trace.kineto import read_trace
from snippets.lab.experiment import NeedsGpu, Subject, UnknownName, WrongAnswer
from snippets.lab.notebook import Profile, check, here, profile, profile_of, race, race_subjects
from snippets.lab.notebooks.outputs import clean_outputs, output_problems
from tests.lab import samples
from tests.tool import events

TINY = {"batch": 4, "in_dim": 8, "out_dim": 16}


@pytest.fixture(autouse=True)
def on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("snippets.lab.notebook.on_gpu", lambda: False)


# ---- guesses


@pytest.mark.parametrize(
    ("guess", "measured", "line"),
    [
        (None, 3, "No guess yet. Measured: 3 kernels"),
        (3, 3, "Right. Your guess: 3. Measured: 3 kernels"),
        (3.0, 3, "Right. Your guess: 3. Measured: 3 kernels"),
        (4, 3, "Wrong. Your guess: 4. Measured: 3 kernels"),
        ("3", 3, "Wrong. Your guess: 3. Measured: 3 kernels"),
        (" Aten::MM ", "aten::mm", "Right. Your guess:  Aten::MM . Measured: aten::mm kernels"),
        ([1, 32], (1, 32), "Right. Your guess: 1, 32. Measured: 1, 32 kernels"),
        ((32, 1), (1, 32), "Wrong. Your guess: 32, 1. Measured: 1, 32 kernels"),
        (10, 12.34, "Right. Your guess: 10. Measured: 12.3 kernels"),
        (9.8, 12.34, "1.26 times too low. Your guess: 9.8. Measured: 12.3 kernels"),
        (50, 12.5, "4 times too high. Your guess: 50. Measured: 12.5 kernels"),
        ("many", 12.5, "A number above zero is asked for. Your guess: many. Measured: 12.5 kernels"),
        (True, 12.5, "A number above zero is asked for. Your guess: True. Measured: 12.5 kernels"),
        (-1, 12.5, "A number above zero is asked for. Your guess: -1. Measured: 12.5 kernels"),
        (float("nan"), 12.5, "A number above zero is asked for. Your guess: nan. Measured: 12.5 kernels"),
        (0.0, 0.0, "Right. Your guess: 0. Measured: 0 kernels"),
    ],
)
def test_a_guess_is_judged(guess: object, measured: object, line: str) -> None:
    assert repr(check(guess, measured, "kernels")) == line


def test_what_was_measured_stays_folded_until_there_is_a_guess() -> None:
    waiting, answered = (check(guess, 3, "<b>")._repr_html_() for guess in (None, "<i>"))
    assert waiting.startswith("<p>No guess yet: write one above and run both cells.</p><details")
    assert "<p>3 &lt;b&gt;</p></details>" in waiting
    assert answered == "<p><strong>Wrong.</strong> Your guess: &lt;i&gt;. Measured: 3 &lt;b&gt;</p>"


# ---- profiles


def on_a_gpu(name: str = "gemm") -> Profile:
    content = samples.trace_json(name=name)
    return Profile("mlp/eager", read_trace(content), content)


def test_a_profile_of_a_gpu() -> None:
    result = on_a_gpu()
    assert (result.kernels, result.activities) == (("gemm", "gemm"), ("gemm", "gemm", "Memset (Device)"))
    assert (result.operators, result.busiest) == (("aten::mm",), "aten::mm")
    assert (result.cpu_us("aten::mm"), result.work_us("aten::mm"), result.work_us("aten::add")) == (60.0, 20.0, 0)
    assert repr(result).splitlines()[:2] == ["mlp/eager, one step", "   10.0 µs  gemm"]
    html = samples.without_headings(result._repr_html_())
    assert "<td><code>aten::mm</code><br><code>cudaLaunchKernel</code></td>" in html
    assert "What the CPU did for it" in html


def test_a_region_of_the_compiler_is_no_operator() -> None:
    region = events.op("Torch-Compiled Region: 0/0", 10, 80, external=2)
    content = events.trace_bytes(events.step(1, 0, 100, external=1), region, events.op("aten::mm", 30, 20, external=3))
    assert Profile("by hand", read_trace(content), content).busiest == "aten::mm"


@pytest.mark.parametrize("name", samples.EVIL)
def test_names_are_text(name: str) -> None:
    assert list(output_problems(as_output(on_a_gpu(name)))) == []


def as_output(value: Any) -> dict[str, Any]:
    data = {"text/plain": repr(value), "text/html": value._repr_html_()}
    output = {"output_type": "execute_result", "execution_count": 1, "metadata": {}, "data": data}
    cell = {"cell_type": "code", "id": "c", "metadata": {}, "source": [], "outputs": clean_outputs([output])}
    return {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}


def test_a_profile_here() -> None:
    result = profile("linear/eager", **TINY)
    assert (result.name, result.kernels, result.activities) == ("linear/eager", (), ())
    assert result.operators[:2] == ("aten::linear", "aten::t")
    assert result.busiest in result.operators
    assert 0 < result.cpu_us("aten::t") < result.cpu_us("aten::linear")
    assert result.work_us("aten::t") == result.cpu_us("aten::t")
    assert len(repr(result).splitlines()) == 1 + len(set(result.operators))
    assert list(output_problems(as_output(result))) == []


def test_a_profile_of_a_function_of_ones_own(tmp_path: Path) -> None:
    result = profile_of("mine", torch.add, torch.ones(3), torch.ones(3))
    assert (result.name, result.operators) == ("mine", ("aten::add",))
    assert repr(result.save(tmp_path / "t.json")) == f"in Perfetto: python -m kinetoscope open {tmp_path / 't.json'}"
    assert (tmp_path / "t.json").read_bytes() == result.content


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: profile("linear/none"), UnknownName),
        (lambda: profile("linear"), UnknownName),
        (lambda: profile("linear/new_strides"), UnknownName),
        (lambda: profile("linear/eager", rows=3), UnknownName),
        (lambda: profile("mlp/liger"), NeedsGpu),
        (lambda: race("linear/eager", "linear"), UnknownName),
    ],
)
def test_errors_of_profile_and_race(call: Callable[[], object], error: type[Exception]) -> None:
    with pytest.raises(error):
        call()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("linear", "'linear' is not one experiment: write CHAPTER/EXPERIMENT"),
        *[
            (name, f"{name} is a loop or a probe: python -m snippets.lab run {name} runs it here")
            for name in ("decoder/eager", "linear/new_strides")
        ],
    ],
)
def test_what_a_notebook_cannot_profile(name: str, message: str) -> None:
    for call in (profile, race):
        with pytest.raises(UnknownName, match=f"^{re.escape(message)}$"):
            call(name)


# ---- races


def test_a_race_here() -> None:
    result = race("linear/eager", "linear/eager_wide", **TINY)
    assert list(result.times_us) == ["linear/eager", "linear/eager_wide"]
    assert result.times_us == result.python_us
    assert all(0 < us < 1e6 for us in result.times_us.values())
    assert all(0 <= error <= 1e-2 for error in result.errors.values())
    assert len(repr(result).splitlines()) == 2
    html = samples.without_headings(result._repr_html_())
    assert "<td><code>linear/eager</code></td>" in html
    assert '<td class="number">1.00x</td>' in html
    assert list(output_problems(as_output(result))) == []


def test_a_wrong_answer_is_not_timed() -> None:
    drawn: list[torch.Tensor] = []

    def inputs() -> tuple[torch.Tensor]:
        drawn.append(torch.ones(3))
        return (drawn[-1],)

    wrong = Subject(step=torch.neg, inputs=inputs, reference=lambda x: x.double().abs())
    with pytest.raises(WrongAnswer, match=r"relative error 2\.00e\+00"):
        race_subjects({"c/wrong": wrong})
    assert len(drawn) == 1, "timing draws inputs of its own"


def test_where_it_runs() -> None:
    line = repr(here())
    assert line.startswith(f"Run on a CPU: torch {torch.__version__}, ")
    assert list(output_problems(as_output(here()))) == []
