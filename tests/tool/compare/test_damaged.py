"""A comparison names what its files lost, and a gate on such files does not pass."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kinetoscope.__main__ import main
from kinetoscope.compare.diff import DAMAGED
from kinetoscope.ranks.digest import digest
from kinetoscope.ranks.digest_files import write_digest
from kinetoscope.report.several import report_several
from kinetoscope.trace.kineto import read_trace
from tests.tool.events import Event, kernel, launch, memory, op, step, trace_bytes

TEXT = "damaged: 1 event without a duration, or with an impossible one, left out: "


def events(gemm_us: float = 20.0) -> list[Event]:
    """Five steps with ten launches and kernels each."""
    return [
        event
        for number in range(5)
        for event in (
            step(number, 1000.0 * number, 990),
            *(launch(20 * number + i + 1, 1000.0 * number + 5 * i) for i in range(10)),
            *(kernel("gemm", 20 * number + i + 1, 1000.0 * number + 60 + 80 * i, gemm_us) for i in range(10)),
        )
    ]


def cpu_events() -> list[Event]:
    return [
        event for n in range(5) for event in (step(n, 1000.0 * n, 990), op("aten::mm", 1000.0 * n + 5, 900.0 + n % 2))
    ]


def write(path: Path, content: list[Event], cut: int = 0) -> str:
    data = trace_bytes(*content)
    path.write_bytes(data[: len(data) - cut])
    return str(path)


def damage(found: list[Event], category: str, **values: Any) -> list[Event]:
    """The events with values replaced in the last one of a category."""
    last = max(index for index, event in enumerate(found) if event["cat"] == category)
    return [*found[:last], {**found[last], **values}, *found[last + 1 :]]


LOST = {"dur": None}
CASES: dict[str, tuple[list[Event], list[Event], int, list[str]]] = {
    "whole": (events(), events(), 0, []),
    "a kernel after": (events(), damage(events(), "kernel", **LOST), 3, [f"after: {TEXT}gemm"]),
    "a kernel before": (damage(events(), "kernel", **LOST), events(), 3, [f"before: {TEXT}gemm"]),
    "a launch": (events(), damage(events(), "cuda_runtime", **LOST), 3, [f"after: {TEXT}cudaLaunchKernel"]),
    "no object": (events(), [*events(), []], 3, ["after: damaged: 1 event that are no objects, left out"]),  # type: ignore[list-item]
    "the size of a block": (
        events(),
        [*events(), memory(10, 10**400, 1)],
        0,
        ["after: damaged: 1 event without a size in bytes, or with an impossible one, left out: [memory]"],
    ),
    "a slower and damaged file": (events(), damage(events(30), "kernel", **LOST), 3, [f"after: {TEXT}gemm"]),
    "an operator of the CPU": (cpu_events(), damage(cpu_events(), "cpu_op", **LOST), 3, [f"after: {TEXT}aten::mm"]),
}


@pytest.mark.parametrize("name", CASES)
def test_a_gate_does_not_pass_on_damage(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, after, code, texts = CASES[name]
    paths = write(tmp_path / "a.json", before), write(tmp_path / "b.json", after)
    assert main(["diff", *paths, "--gate", "3", "--json"]) == code
    data = json.loads(capsys.readouterr().out)
    assert (data["damage"], data["gate"]["is_whole"]) == (texts, code == 0)
    assert main(["diff", *paths]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert all(text in printed for text in texts)
    assert report_several([tmp_path / "a.json", tmp_path / "b.json"]).data["damage"] == texts


def test_a_cut_file_and_missing_kernels_pass_no_gate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = write(tmp_path / "a.json", events())
    cut = write(tmp_path / "b.json", events(), cut=400)
    few = write(tmp_path / "c.json", [*events()[:-1], *(launch(900 + n, 4500) for n in range(9))])
    for other, words in ((cut, "after: the file is cut off"), (few, "after: 10 of 59 launches (17%) have no kernel")):
        assert main(["diff", whole, other, "--gate", "3"]) == DAMAGED
        out = capsys.readouterr().out
        assert words in out
        assert "The gate does not pass: a file is cut off, or kernels, calls or operators in it are damaged" in out


def test_a_digest_keeps_what_its_trace_lost(tmp_path: Path) -> None:
    whole = write(tmp_path / "a.json", events())
    lost = digest(read_trace(trace_bytes(*damage(events(), "kernel", **LOST))))
    write_digest(lost, tmp_path / "b.json")
    assert report_several([Path(whole), tmp_path / "b.json"]).data["damage"] == [f"after: {TEXT}gemm"]
