"""Rows that are for an H100: judged by an H100's recordings and by nothing else."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from snippets.fact_check.findings import block, facts, tables
from snippets.fact_check.findings.facts import judged, source_verdict
from snippets.fact_check.findings.sources import TUTORIAL
from snippets.fact_check.findings.statements import STATEMENTS
from snippets.lab.finding import Device, Figure, NotRecorded
from snippets.lab.finding.book import Verdict
from snippets.lab.finding.mismatch import Mismatch
from snippets.lab.finding.other_device import H100, measured_on, recorded
from snippets.lab.recording.device import DEFAULT_DEVICE
from tests.lab.samples import BOOK, Markup
from tests.second_device import scale_timings

NAME = "nvidia-h100-80gb-hbm3"
ROWS = ("FC27", "FC28", "FC29", "FC30", "FC31", "FC32")
READ = ("fact_check/block.*", "fused_mlp/linear_8192_*")
"""What the rows read."""


def add(root: Path, device: str) -> Path:
    """A device whose recordings are copies of the default one's."""
    for pattern in READ:
        for path in (BOOK.root / DEFAULT_DEVICE).glob(pattern):
            target = root / device / path.parent.name / path.name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
    return root / device


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An H100 alone: nothing of another device is there."""
    add(tmp_path, NAME)
    return tmp_path


def rows(root: Path, device: str = NAME) -> dict[str, Verdict]:
    return {each.verdict.claim.id: each.verdict for each in judged(Device(root, device), ROWS)}


def values(found: dict[str, Verdict]) -> dict[str, tuple[str, str]]:
    """Claim -> status and measured value."""
    return {name: (each.status, each.measured.text if each.measured else "") for name, each in found.items()}


def scale(folder: Path, factor: float) -> None:
    """Everything takes so many times as long."""
    for path in folder.glob("*/*.json"):
        recording = json.loads(path.read_text("utf-8"))
        for _ in scale_timings(recording["points"], factor):
            pass
        _scale_samples(recording["data"], factor)
        path.write_text(json.dumps(recording), encoding="utf-8")


def _scale_samples(value: Any, factor: float) -> None:
    """The samples of `fact_check/block`: lists of numbers at any depth."""
    for key, each in value.items() if isinstance(value, dict) else ():
        if isinstance(each, list) and each and isinstance(each[0], float):
            value[key] = [factor * sample for sample in each]
        else:
            _scale_samples(each, factor)


def test_an_h100_alone_is_judged(root: Path) -> None:
    found, default = rows(root), rows(BOOK.root, DEFAULT_DEVICE)
    assert {each.status for each in found.values()} <= {"holds", "differs", "inconclusive"}
    assert {each.status for each in default.values()} == {"cannot be tested"}, "the values are for another GPU"
    measured = {name: text for name, (_, text) in values(found).items()}
    assert measured == {name: text for name, (_, text) in values(default).items()}, "the recordings are copies"


def test_another_device_beside_it_changes_nothing(root: Path) -> None:
    alone = values(rows(root))
    scale(add(root, DEFAULT_DEVICE), 2)
    assert values(rows(root)) == alone
    scale(root / NAME, 2)
    assert {name for name, each in values(rows(root)).items() if each == alone[name]} == {"FC28"}, "FC28 reads a trace"


def test_what_an_h100_lacks_is_not_taken_from_another(root: Path) -> None:
    add(root, DEFAULT_DEVICE)
    shutil.rmtree(root / NAME / "fused_mlp")
    without_kernels = rows(root)
    assert {name for name, each in without_kernels.items() if each.status == "not measured"} == {"FC28", "FC29"}
    shutil.rmtree(root / NAME / "fact_check")
    assert {each.status for each in rows(root).values()} == {"not measured"}


def test_on_every_tab_the_h100_judges(root: Path) -> None:
    add(root, DEFAULT_DEVICE)
    scale(root / DEFAULT_DEVICE, 2)
    here, there = Device(root, DEFAULT_DEVICE), Device(root, NAME)
    for piece in (lambda device: facts.article(device, "n1n.ai", *STATEMENTS[TUTORIAL]), tables.h100_table):
        assert piece(here) == piece(there)
    text = Markup(facts.article(here, "n1n.ai", *STATEMENTS[TUTORIAL])).text
    assert "cannot be tested" not in text
    for each in rows(root).values():
        assert each.claim.sentence in text
        assert (each.claim.why in text) == (each.status == "differs")
        assert each.measured is not None
        assert f"H100: {each.measured.text}" in text
    for name, of in block.FIGURES.items():
        if name.startswith("h100_"):
            assert of(here).text == of(there).text, name
    assert {source_verdict(each).device.name for each in rows(root, DEFAULT_DEVICE).values()} == {NAME}
    assert facts.h100_verdicts(here).text == facts.h100_verdicts(there).text
    assert "(values for an H100 are judged on the H100 80GB HBM3)" in Markup(facts.tally(here)).text
    assert "values for" not in Markup(facts.tally(there)).text


def test_without_an_h100_there_is_no_verdict(root: Path) -> None:
    add(root, DEFAULT_DEVICE)
    shutil.rmtree(root / NAME)
    here = Device(root, DEFAULT_DEVICE)
    with pytest.raises(NotRecorded, match="no NVIDIA H100 is recorded"):
        recorded(here, H100)
    assert "cannot be tested" in Markup(facts.article(here, "n1n.ai", *STATEMENTS[TUTORIAL])).text
    assert "on the H200" in Markup(tables.h100_table(here)).text
    assert {source_verdict(each).status for each in rows(root, DEFAULT_DEVICE).values()} == {"cannot be tested"}


def test_what_does_not_fit_on_the_h100_ends_no_build(root: Path) -> None:
    add(root, DEFAULT_DEVICE)

    def damaged(device: Device) -> Figure:
        raise KeyError(device.name)

    with pytest.raises(Mismatch, match="H100 80GB HBM3"):
        measured_on(H100, damaged)(Device(root, DEFAULT_DEVICE))
