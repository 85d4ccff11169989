"""What a reader calls in a cell, and the process that runs the cells of a lab. Everything on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from snippets.lab.experiment import Experiment, NeedsGpu, Subject, UnknownExperiment, Work
from snippets.lab.notebook import Profile, check, here, profile, profile_of, race
from snippets.lab.notebooks.cells import CellFailed, _outputs, execute_cells, run_notebooks
from snippets.lab.notebooks.files import dumped, output_problems
from snippets.lab.recording.schema import Environment
from snippets.lab.trace.kineto import read_trace

# KEEP cells
# KEEP kineto
# KEEP labs
# KEEP notebook
from tests.lab import kineto as trace_events
from tests.lab import samples

TINY = {"batch": 4, "in_dim": 8, "out_dim": 16}


@pytest.fixture(autouse=True)
def on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notebook, "on_gpu", lambda: False)


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
    waiting, told = (check(guess, 3, "<b>")._repr_html_() for guess in (None, "<i>"))
    assert waiting.startswith("<p>No guess yet: write one above and run both cells.</p><details")
    assert "<p>3 &lt;b&gt;</p></details>" in waiting
    assert told == "<p><strong>Wrong.</strong> Your guess: &lt;i&gt;. Measured: 3 &lt;b&gt;</p>"


# ---- profiles


def on_a_gpu(name: str = "gemm") -> Profile:
    content = samples.trace_json(name=name)
    return Profile("mlp/eager", read_trace(content), content)


def test_a_profile_of_a_gpu() -> None:
    found = on_a_gpu()
    assert (found.kernels, found.activities) == (("gemm", "gemm"), ("gemm", "gemm", "Memset (Device)"))
    assert (found.operators, found.busiest) == (("aten::mm",), "aten::mm")
    assert (found.cpu_us("aten::mm"), found.work_us("aten::mm"), found.work_us("aten::add")) == (60.0, 20.0, 0)
    assert repr(found).splitlines()[:2] == ["mlp/eager, one step", "     10 µs  gemm"]
    html = found._repr_html_()
    assert "<td><code>aten::mm</code><br><code>cudaLaunchKernel</code></td>" in html
    assert "What the CPU did for it" in html


def test_a_region_of_the_compiler_is_no_operator() -> None:
    region = trace_events.op("Torch-Compiled Region: 0/0", 10, 80, external=2)
    step = [trace_events.step(1, 0, 100, external=1), region, trace_events.op("aten::mm", 30, 20, external=3)]
    content = trace_events.trace_bytes(*step)
    assert Profile("by hand", read_trace(content), content).busiest == "aten::mm"


@pytest.mark.parametrize("name", samples.EVIL)
def test_names_are_text(name: str) -> None:
    assert list(output_problems(shown(on_a_gpu(name)))) == []


def shown(value: Any) -> dict[str, Any]:
    output = {"output_type": "execute_result", "data": {"text/html": value._repr_html_()}}
    return {"cells": [{"cell_type": "code", "source": [], "outputs": [output]}]}


def test_a_profile_here() -> None:
    found = profile("linear/eager", **TINY)
    assert (found.name, found.kernels, found.activities) == ("linear/eager", (), ())
    assert found.operators[:2] == ("aten::linear", "aten::t")
    assert found.busiest in found.operators
    assert 0 < found.cpu_us("aten::t") < found.cpu_us("aten::linear")
    assert found.work_us("aten::t") == found.cpu_us("aten::t")
    assert len(repr(found).splitlines()) == 1 + len(set(found.operators))
    assert list(output_problems(shown(found))) == []


def test_a_profile_of_a_function_of_ones_own(tmp_path: Path) -> None:
    found = profile_of("mine", torch.add, torch.ones(3), torch.ones(3))
    assert (found.name, found.operators) == ("mine", ("aten::add",))
    assert repr(found.save(tmp_path / "t.json")) == f"in Perfetto: python -m snippets.lab open {tmp_path / 't.json'}"
    assert read_trace(tmp_path / "t.json").steps == found.trace.steps


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: profile("linear/none"), UnknownExperiment),
        (lambda: profile("linear"), UnknownExperiment),
        (lambda: profile("linear/new_strides"), UnknownExperiment),
        (lambda: profile("linear/eager", rows=3), TypeError),
        (lambda: profile("mlp/liger"), NeedsGpu),
        (lambda: race("linear/eager", "linear"), UnknownExperiment),
    ],
)
def test_what_cannot_be_profiled(call: Callable[[], object], error: type[Exception]) -> None:
    with pytest.raises(error):
        call()


# ---- races


def test_a_race_here() -> None:
    found = race("linear/eager", "linear/eager_wide", **TINY)
    assert list(found.times_us) == ["linear/eager", "linear/eager_wide"]
    assert found.times_us == found.python_us
    assert all(0 < us < 1e6 for us in found.times_us.values())
    assert all(0 <= error <= 1e-2 for error in found.errors.values())
    assert len(repr(found).splitlines()) == 2
    html = found._repr_html_()
    assert "<td><code>linear/eager</code></td>" in html
    assert '<td class="number">1.00x</td>' in html
    assert list(output_problems(shown(found))) == []


def test_a_wrong_answer_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = Subject(step=torch.neg, inputs=lambda: (torch.ones(3),), reference=torch.abs)
    one = Experiment(chapter="c", name="wrong", label="x", make=lambda device: wrong, work=lambda: Work(bytes=0))
    monkeypatch.setattr(notebook, "find", lambda name: (one,))
    with pytest.raises(ArithmeticError, match="wrong answer"):
        race("c/wrong")


def test_where_it_runs() -> None:
    line = repr(here())
    assert line.startswith(f"Run on a CPU: torch {torch.__version__}, ")
    assert list(output_problems(shown(here()))) == []


# ---- cells


def test_the_outputs_of_cells() -> None:
    class Drawn:
        def __repr__(self) -> str:
            return "plain"

        def _repr_html_(self) -> str:
            return "<p>"

    sources = [
        "import math\nprint('a')\nprint('b')",
        "x = 1",
        "# nothing",
        "print(x)\nx + 1",
        "None",
        "math.floor(2.5)",
    ]
    found = execute_cells(sources, "lab")
    assert found[0] == [{"output_type": "stream", "name": "stdout", "text": "a\nb\n"}]
    assert [found[1], found[2], found[4]] == [[], [], []]
    assert found[3][0]["text"] == "1\n"
    assert found[3][1]["data"] == found[5][0]["data"] == {"text/plain": "2"}
    assert found[3][1]["execution_count"] == 4
    assert _outputs("it", "here", 1, {"it": Drawn()})[0]["data"] == {"text/plain": "plain", "text/html": "<p>"}


@pytest.mark.parametrize("source", ["1 / 0", "raise SystemExit('1 / 0')", "1 /"])
def test_a_cell_that_fails_is_named_with_its_line(source: str) -> None:
    with pytest.raises(CellFailed, match=r"^lab, code cell 2: (ZeroDivision|SystemExit|Syntax)") as raised:
        execute_cells(["x = 1", f"x = 2\n{source}"], "lab")
    assert f"    {source}\n" in str(raised.value)


def lab_of(folder: Path, *sources: str) -> Path:
    made = [
        {"cell_type": "code", "id": f"c{n}", "metadata": {}, "outputs": [], "source": [s]}
        for n, s in enumerate(sources)
    ]
    path = folder / "mlp.ipynb"
    path.write_bytes(dumped({"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    return path


def test_labs_run_in_a_process_of_their_own(tmp_path: Path) -> None:
    failing = tmp_path / "linear.ipynb"
    shared = lab_of(tmp_path, "import os, pathlib", "print(pathlib.Path.home() / 'a' / 'b.txt')", "os.getpid()")
    failing.write_bytes(shared.read_bytes().replace(b"os.getpid()", b"os.nothing"))
    told = run_notebooks([shared, failing], 60)
    assert told["labs"]["mlp"]["failed"] == ""
    assert told["labs"]["mlp"]["outputs"][1][0]["text"] == "b.txt\n", "no folder of this machine"
    assert told["labs"]["linear"]["failed"].startswith("linear, code cell 3: AttributeError: module 'os' has no")
    assert told["circumstances"]["versions"]["torch"] == torch.__version__
    assert set(told["circumstances"]) == set(Environment.__struct_fields__)


@pytest.mark.parametrize(
    ("source", "limit_s", "cause"),
    [
        ("import os; os.write(2, b'last words'); os._exit(7)", 60, r"ended with code 7; its last words: last words"),
        ("import time; time.sleep(60)", 1, r"ran past its limit of 1 s"),
    ],
)
def test_a_process_that_dies_or_hangs_is_told(tmp_path: Path, source: str, limit_s: float, cause: str) -> None:
    with pytest.raises(CellFailed, match=cause):
        run_notebooks([lab_of(tmp_path, source)], limit_s)
