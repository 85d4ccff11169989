"""The vocabulary: what an experiment may be, and how it is found."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from snippets.lab.experiment import Experiment, Schedule, Subject, UnknownExperiment, Work, chapters, experiments, find

# KEEP experiment vocabulary
from tests.lab import layers


def make(device: str, size: int) -> Subject:
    raise NotImplementedError


def measure(device: str, size: int) -> dict[str, Any]:
    raise NotImplementedError


def work(size: int) -> Work:
    return Work(bytes=size)


def profiled(**changed: Any) -> Experiment:
    given: dict[str, Any] = {
        "chapter": "mlp",
        "name": "eager",
        "label": "fwd",
        "parameters": {"size": 64},
        "make": make,
        "work": work,
    }
    return Experiment(**given | changed)


def test_exactly_one_of_make_and_measure() -> None:
    with pytest.raises(ValueError, match=r"^mlp/eager: give exactly one of make and measure$"):
        profiled(measure=measure)
    with pytest.raises(ValueError, match="give exactly one of make and measure"):
        profiled(make=None)
    assert Experiment(chapter="mlp", name="new", measure=measure).points == ({},)


@pytest.mark.parametrize("missing", [{"work": None}, {"label": ""}])
def test_a_profiled_experiment_says_its_work_and_its_label(missing: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"^mlp/eager: a profiled experiment needs its work and its label$"):
        profiled(**missing)


def test_a_sweep_sets_parameters_that_exist() -> None:
    with pytest.raises(ValueError, match=r"^mlp/eager: the sweep sets unknown parameters \['seq'\]$"):
        profiled(sweep=({"size": 1}, {"seq": 2}))


def test_points_are_the_sweep_over_the_defaults() -> None:
    plain = profiled(parameters={"size": 64, "seq": 8})
    swept = profiled(parameters={"size": 64, "seq": 8}, sweep=({"size": 1}, {"seq": 2}))
    assert plain.points == ({"size": 64, "seq": 8},)
    assert swept.points == ({"size": 1, "seq": 8}, {"size": 64, "seq": 2})
    assert (plain.is_traced, swept.is_traced) == (True, False)
    assert not Experiment(chapter="mlp", name="new", measure=measure).is_traced


def test_at_replaces_parameters_and_nothing_else() -> None:
    one = profiled()
    assert one.at(size=3).parameters == {"size": 3}
    assert one.parameters == {"size": 64}
    assert one.at(size=3).id == "mlp/eager"
    with pytest.raises(TypeError, match=r"^mlp/eager has no parameter \['sise'\]; it has \['size'\]$"):
        one.at(sise=3)


def test_work_counts_a_multiply_add_as_two() -> None:
    assert Work(bytes=1, matmuls=((2, 3, 4), (5, 6, 7))).flops == 2 * 24 + 2 * 210
    assert Work(bytes=1).flops == 0
    assert Schedule(wait=1, warmup=2, active=4).steps == 7


def test_chapters_are_found_by_their_folders() -> None:
    assert {"devices", "linear", "matmul_add", "mlp"} <= set(chapters())
    assert list(chapters()) == sorted(chapters())
    assert "lab" not in chapters()
    assert chapters("tests.lab.broken") == ("faults", "gpu_faults", "hang")


def test_find_a_chapter_or_one_experiment() -> None:
    assert find("mlp") == experiments("mlp")
    assert [one.id for one in find("mlp/eager")] == ["mlp/eager"]
    assert [one.id for one in find("hang/steady", "tests.lab.broken")] == ["hang/steady"]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("mpl", "no chapter 'mpl'; did you mean mlp"),
        ("mlp/eagr", "no experiment 'mlp/eagr'; did you mean mlp/eager or mlp/eager_4096 or mlp/liger?"),
        ("../mlp", f"no chapter '..'; did you mean {' or '.join(chapters())}?"),
        ("", f"no chapter ''; did you mean {' or '.join(chapters())}?"),
        ("lab", "no chapter 'lab'"),
        ("mlp/eager/x", "no experiment 'mlp/eager/x'; did you mean mlp/eager"),
    ],
)
def test_an_unknown_name_says_the_nearest(asked: str, message: str) -> None:
    with pytest.raises(UnknownExperiment) as raised:
        find(asked)
    assert str(raised.value).startswith(message)


@pytest.mark.parametrize("listed", [("mlp/a", "mlp/a"), ("linear/a",)])
def test_a_list_with_a_name_twice_or_of_another_chapter(monkeypatch: pytest.MonkeyPatch, listed: tuple[str]) -> None:
    made = tuple(profiled(chapter=one.split("/")[0], name=one.split("/")[1]) for one in listed)
    monkeypatch.setattr(vocabulary, "chapters", lambda package: ("mlp",))
    monkeypatch.setattr(importlib, "import_module", lambda name: SimpleNamespace(EXPERIMENTS=made))
    with pytest.raises(ValueError, match=r"^snippets\.mlp\.experiments: \w+/a stands twice or belongs elsewhere$"):
        experiments("mlp")


def test_listing_experiments_needs_neither_torch_nor_triton() -> None:
    code = "from snippets.lab.experiment import *; print(*(e.id for c in chapters() for e in experiments(c)))"
    done = layers.without_torch(code)
    assert (done.returncode, done.stderr) == (0, "")
    assert {"mlp/eager", "linear/eager", "matmul_add/eager_64"} <= set(done.stdout.split())


def test_the_blocker_blocks() -> None:
    for name in ("torch", "torch.nn", "triton"):
        done = layers.without_torch(f"import {name}")
        assert done.returncode == 1
        assert "is blocked here" in done.stderr


def test_chapters_of_an_installed_package_need_no_working_folder(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from snippets.lab.experiment import chapters; print(*chapters())"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(layers.ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == list(chapters())


def test_a_group_whose_sweeps_differ_in_length(monkeypatch: pytest.MonkeyPatch) -> None:
    points = ({"size": 1}, {"size": 2})
    made = (
        profiled(name="a", parameters={"size": 1}, group="g", sweep=points),
        profiled(name="b", parameters={"size": 1}, group="g"),
    )
    monkeypatch.setattr(vocabulary, "chapters", lambda package: (made[0].chapter,))
    monkeypatch.setattr(importlib, "import_module", lambda name: SimpleNamespace(EXPERIMENTS=made))
    with pytest.raises(ValueError, match="timed in turns, so its sweeps are equally long"):
        experiments(made[0].chapter)
