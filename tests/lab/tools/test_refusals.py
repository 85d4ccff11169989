"""A GPU's refusals: `make docs` does not try them again, `make record` does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from snippets.lab.experiment import find
from snippets.lab.tools import refusals
from snippets.lab.tools.prepare import prepare
from snippets.lab.tools.record import record
from snippets.lab.tools.refusals import load_refusals, save_refusals
from tests.lab.samples import recordings
from tests.lab.tools.machine import FakeMachine

NAME = "nvidia-t4"
CAUSE = "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
REFUSED = "linear/eager"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeMachine]:
    """A small GPU, which refused an experiment when the chapter, all of a small book, was recorded."""
    for module in ("experiment", "tools.listing", "tools.prepare", "tools.record"):
        monkeypatch.setattr(f"snippets.lab.{module}.chapters", lambda *_: ("linear",))
    root = recordings(monkeypatch, tmp_path / "recordings")
    monkeypatch.chdir(tmp_path)
    pending = [one.id for one in find("linear")]
    found = FakeMachine(
        device=NAME, failing=REFUSED, cause=CAUSE, pending=pending, refusals=tmp_path / ".cache" / "refusals"
    )
    assert prepare(root, fresh=False, here=NAME, machine=found.build) == 1
    assert found.recorded == pending
    found.pending = [REFUSED]
    found.recorded.clear()
    return found


def test_the_next_build_does_not_try_it_again(
    machine: FakeMachine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert prepare(tmp_path / "recordings", fresh=False, here=NAME, machine=machine.build) == 0
    assert machine.recorded == []
    assert capsys.readouterr().out.startswith(
        f"{NAME}: not tried again, because this GPU refused them: {REFUSED}; make record tries them\n"
    )


def test_make_record_and_a_fresh_build_do(machine: FakeMachine, tmp_path: Path) -> None:
    root = tmp_path / "recordings"
    assert prepare(root, fresh=True, here=NAME, machine=machine.build) == 1
    assert record(root, ["linear"], machine=machine.build()) == 1
    assert machine.recorded.count(REFUSED) == 2
    machine.failing = ""
    assert record(root, ["linear"], machine=machine.build()) == 0
    assert load_refusals(machine.refusals, NAME) == {}, "it is recorded now"


def test_a_refusal_is_of_one_gpu_and_of_this_code(machine: FakeMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_refusals(machine.refusals, NAME) == {REFUSED: CAUSE}
    assert load_refusals(machine.refusals, "nvidia-h100") == {}
    with monkeypatch.context() as patch:
        patch.setattr(refusals, "fingerprint", lambda experiment: "another")
        assert load_refusals(machine.refusals, NAME) == {}
    monkeypatch.setattr(refusals, "_version", lambda package: "9.9")
    assert load_refusals(machine.refusals, NAME) == {}, "a newer torch may need less"


def test_what_may_go_better_is_tried_again(tmp_path: Path) -> None:
    causes = {
        "linear/eager": "ran past its limit of 120 s",
        "linear/compiled": "not saved: No space left on device",
        "mlp/eager": "NeedsGpu: these kernels are written for Hopper",
    }
    save_refusals(tmp_path, NAME, causes, causes)
    assert load_refusals(tmp_path, NAME) == {"mlp/eager": causes["mlp/eager"]}
    save_refusals(tmp_path, NAME, {}, ["linear/eager"])
    assert [*load_refusals(tmp_path, NAME)] == ["mlp/eager"], "it was not tried"


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff", b'{"mlp/eager": 1}'])
def test_a_damaged_file_refuses_nothing(tmp_path: Path, content: bytes) -> None:
    (tmp_path / f"{NAME}.json").write_bytes(content)
    assert load_refusals(tmp_path, NAME) == {}


def test_a_read_only_disk_is_not_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    save_refusals(tmp_path / "file", NAME, {"mlp/eager": CAUSE}, ["mlp/eager"])
    assert load_refusals(tmp_path / "file", NAME) == {}
