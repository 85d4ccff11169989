"""How a way is chosen, and where the choice is kept. Times are stood in for."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from triton.runtime.errors import OutOfResources

from snippets.fused_mlp.geglu import plans, tuning

GPU = "NVIDIA H200"
WORK = "gate_up silu 64x128x256 bfloat16"
WAYS: dict[str, Callable[[], object]] = {name: lambda: None for name in ("a", "b", "c")}


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv(tuning.FOLDER, str(tmp_path))
    monkeypatch.setattr(tuning, "SHIPPED", tmp_path / "shipped.json")
    monkeypatch.setattr(tuning, "TIMES_US", {})
    monkeypatch.setattr(tuning, "FAILED", {})
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: GPU)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    tuning.choices.cache_clear()
    return tmp_path


def measure(monkeypatch: pytest.MonkeyPatch, **times_us: float) -> list[str]:
    """The times that tuning will find; the works it was asked for are counted in the list."""
    asked: list[str] = []

    def timed(ways: tuning.Ways) -> dict[str, float]:
        asked.append(",".join(ways))
        return {name: times_us[name] for name in ways}

    monkeypatch.setattr(tuning, "timed", timed)
    return asked


def choose(compiled: list[str] | None = None) -> str | None:
    return tuning.choose(WORK, WAYS, lambda: compiled.append("all") if compiled is not None else None)


def another_process() -> None:
    tuning.choices.cache_clear()


def path_of(gpu: str = GPU) -> Path:
    path = tuning.file_of(gpu)
    assert path is not None
    return path


def write(**choices: str) -> None:
    """As another process would; `here` is the choice for the work of these tests."""
    path_of().write_text(json.dumps({WORK if name == "here" else name: way for name, way in choices.items()}))


def test_the_fastest_is_taken_and_timed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, compiled = measure(monkeypatch, a=3.0, b=1.0, c=2.0), list[str]()
    assert [choose(compiled) for _ in range(3)] == ["b", "b", "b"]
    assert asked == ["a,b,c"]
    assert compiled == ["all"], "once, and before they are timed"
    assert tuning.TIMES_US == {GPU: {WORK: {"a": 3.0, "b": 1.0, "c": 2.0}}}


@pytest.mark.parametrize(
    ("times_us", "expected"),
    [((1.0, 1.0, 1.0), "a"), ((1.02, 1.0, 1.01), "a"), ((1.03, 1.02, 1.0), "b"), ((2.0, 1.03, 1.0), "c")],
)
def test_an_earlier_way_is_taken_if_it_is_hardly_slower(times_us: tuple[float, ...], expected: str) -> None:
    assert tuning.first_of_the_fastest(dict(zip("abc", times_us, strict=True))) == expected


def test_another_process_takes_the_same_without_timing(monkeypatch: pytest.MonkeyPatch) -> None:
    measure(monkeypatch, a=3.0, b=1.0, c=2.0)
    choose()
    another_process()
    asked = measure(monkeypatch, a=1.0, b=2.0, c=3.0)
    assert choose() == "b"
    assert not asked


def test_who_is_second_takes_what_the_first_has_chosen(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Both have read an empty file."""
    measure(monkeypatch, a=3.0, b=1.0, c=2.0)
    tuning.choices(GPU)
    write(here="c", other="a")
    assert choose() == "c"
    assert json.loads(path_of().read_text()) == {WORK: "c", "other": "a"}
    assert [*folder.iterdir()] == [path_of()], "nothing temporary stays"


def test_what_is_shipped_is_taken_and_what_was_tuned_here_is_taken_before(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = measure(monkeypatch, a=3.0, b=1.0, c=2.0)
    tuning.SHIPPED.write_text(json.dumps({GPU: {WORK: "a"}, "another": {WORK: "c"}}))
    assert choose() == "a"
    assert not asked
    another_process()
    write(here="b")
    assert choose() == "b"


def test_an_obsolete_choice_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists of candidates change without the kernels' files."""
    write(here="gone", other="gone")
    tuning.SHIPPED.write_text(json.dumps({GPU: {WORK: "gone"}}))
    asked = measure(monkeypatch, a=3.0, b=1.0, c=2.0)
    assert choose() == "b"
    assert asked == ["a,b,c"]
    assert json.loads(path_of().read_text()) == {WORK: "b", "other": "gone"}


def failing(error: Exception) -> Callable[[], object]:
    def run() -> None:
        raise error

    return run


def test_a_way_that_does_not_run_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = measure(monkeypatch, a=1.0, b=2.0, c=3.0)
    ways = WAYS | {"a": failing(OutOfResources(300, 200, "shared memory"))}
    assert tuning.choose(WORK, ways, lambda: None) == "b"
    assert asked == ["b,c"]
    (told,) = tuning.FAILED[WORK].values()
    assert told.startswith("OutOfResources: out of resource: shared memory, Required: 300")


def test_another_process_cannot_choose_what_does_not_run_here(monkeypatch: pytest.MonkeyPatch) -> None:
    measure(monkeypatch, a=1.0, b=2.0, c=3.0)
    tuning.choices(GPU)
    write(here="a")
    assert tuning.choose(WORK, WAYS | {"a": failing(RuntimeError("no"))}, lambda: None) == "b"


def test_where_no_way_runs_plain_pytorch_does_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a try at every call, and told once."""
    tried: list[str] = []

    def way(x: torch.Tensor) -> None:
        tried.append("way")
        raise ValueError("no such block")

    def make(activation: str, x: torch.Tensor) -> tuple[tuple[plans.Way, ...], bool]:
        return plans.tuned(WORK, {"a": way, "b": way}, lambda way: way(x), x)

    x = torch.zeros(2, 8)
    with pytest.warns(UserWarning, match=r"none of their launches succeeds \(ValueError: no such block\)$") as told:
        assert plans.planned(make, "silu", x) == ()
    assert len(told) == 1
    assert plans.planned(make, "silu", x) == ()
    assert tried == ["way", "way"]


def test_a_graph_is_captured_on_the_gpu_that_is_the_current_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stream for each: PyTorch's own is of the first GPU that captured anything."""
    options: list[dict[str, object]] = []

    @contextlib.contextmanager
    def graph(_: object, **given: object) -> Iterator[None]:
        options.append(given)
        yield

    monkeypatch.setattr(torch.cuda, "graph", graph)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", object)
    made: list[int] = []
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: made.append(device) or f"of GPU {device}")
    tuning.stream_of.cache_clear()
    called: list[int] = []
    for device in (1, 0, 1):
        monkeypatch.setattr(torch.cuda, "current_device", lambda device=device: device)
        tuning.captured(lambda: called.append(1), 3)
    tuning.stream_of.cache_clear()
    assert [one["stream"] for one in options] == ["of GPU 1", "of GPU 0", "of GPU 1"]
    assert {one["capture_error_mode"] for one in options} == {"thread_local"}
    assert made == [1, 0]
    assert len(called) == 9


def test_while_a_graph_is_captured_nothing_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = measure(monkeypatch, a=3.0, b=1.0, c=2.0)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert choose() is None
    assert not asked
    tuning.choices(GPU)[WORK] = "c"
    assert choose() == "c", "what was tuned before is used"


def test_what_was_tuned_here_is_shipped_beside_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    tuning.SHIPPED.write_text(json.dumps({GPU: {WORK: "a", "old": "c"}, "another": {WORK: "c"}}))
    write(here="b", new="a")
    tuning.ship()
    expected = {GPU: {WORK: "b", "old": "c", "new": "a"}, "another": {WORK: "c"}}
    assert json.loads(tuning.SHIPPED.read_text()) == expected
    path_of().unlink()
    asked = measure(monkeypatch, a=3.0, b=1.0, c=2.0)
    assert choose() == "b"
    assert not asked


@pytest.mark.parametrize("text", ["", "{", "[]", '"a"', json.dumps({WORK: ["a"], GPU: ["a"]})])
def test_a_broken_file_is_as_none(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    path_of().write_text(text)
    tuning.SHIPPED.write_text(text)
    measure(monkeypatch, a=3.0, b=1.0, c=2.0)
    assert choose() == "b"
    assert json.loads(path_of().read_text()) == {WORK: "b"}


@pytest.mark.parametrize("name", ["off", "~nobody-of-this-name/cache", "FOLDER/file"])
def test_nothing_is_kept_where_it_is_not_wanted_or_cannot_be(
    monkeypatch: pytest.MonkeyPatch, folder: Path, name: str
) -> None:
    """By request, for a user without a home, and in a folder that cannot be written."""
    (folder / "file").write_text("")
    monkeypatch.setenv(tuning.FOLDER, name.replace("FOLDER", str(folder)))
    measure(monkeypatch, a=3.0, b=1.0, c=2.0)
    assert (tuning.file_of(GPU) is None) == (not name.endswith("file"))
    assert choose() == "b"
    assert [*folder.iterdir()] == [folder / "file"]


def test_the_file_is_that_of_this_gpu_and_these_versions(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = path_of("NVIDIA GeForce RTX 4090")
    assert path.parent == tmp_path
    assert path.name.startswith(f"nvidia-geforce-rtx-4090-{torch.__version__}-")
    monkeypatch.delenv(tuning.FOLDER)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert path_of().parent == tmp_path / "cache/geglu_kernels"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert path_of().parent == Path(os.path.expanduser("~/.cache/geglu_kernels"))
