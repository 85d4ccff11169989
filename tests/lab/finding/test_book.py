"""The book's findings: each status of a claim, unique ids, and what ends a build."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from snippets.lab.experiment import UnknownName
from snippets.lab.finding.book import (
    Verdict,
    all_claims,
    chapters_with_findings,
    figure,
    find_claim,
    findings,
    judge,
    verdicts,
)
from snippets.lab.finding.claim import equals
from snippets.lab.finding.device import Device
from snippets.lab.finding.figure import Figure
from snippets.lab.finding.measure import Measure
from snippets.lab.recording.device import DEFAULT_DEVICE
from snippets.lab.recording.schema import NotRecorded, NotTimed, RecordingError
from snippets.lab.trace.events import TraceError
from tests.lab import samples
from tests.lab.conftest import Book
from tests.lab.samples import claim, sample, save_all

MISMATCH = ValueError("ProfilerStep#2 has 6 matmuls instead of three")
ERRORS = (ZeroDivisionError("float division by zero"), IndexError("list index out of range"), MISMATCH)


def raising(error: Exception) -> Measure:
    def measure(device: Device) -> Figure:
        raise error

    return measure


@pytest.fixture
def device(tmp_path: Path) -> Device:
    return samples.device(tmp_path)


@pytest.mark.parametrize(
    ("measure", "status", "reason", "is_pending"),
    [
        (lambda device: Figure(5), "holds", "", False),
        (lambda device: Figure(4), "differs", "", False),
        (lambda device: Figure(5, conclusive=False), "inconclusive", "", False),
        (lambda device: Figure(4, conclusive=False), "inconclusive", "", False),
        (raising(NotRecorded("no recording; make record")), "not measured", "no recording; make record", True),
        (raising(NotTimed("recorded apart")), "not measured", "recorded apart", False),
        (raising(RecordingError("damaged")), "not measured", "damaged", False),
        (raising(TraceError("no active steps")), "not measured", "no active steps", False),
    ],
)
def test_each_status(device: Device, measure: Measure, status: str, reason: str, is_pending: bool) -> None:
    this_claim = claim(measure=measure)
    verdict = judge(this_claim, "mlp", device)
    assert (verdict.status, verdict.reason, verdict.is_pending) == (status, reason, is_pending)
    assert (verdict.claim, verdict.chapter, verdict.device) == (this_claim, "mlp", device)
    assert (verdict.measured is None) == (status == "not measured")


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("at", ["measure", "band"])
def test_another_gpu_may_have_a_trace_of_another_shape(tmp_path: Path, error: Exception, at: str) -> None:
    """Its owner gets the book without that number; on the default device it is a mistake of ours."""
    this_claim = claim(**{at: raising(error)})
    verdict = judge(this_claim, "mlp", Device(tmp_path, "nvidia-other"))
    assert (verdict.status, verdict.is_expected, verdict.is_pending) == ("not measured", True, False)
    assert verdict.reason == f"this trace lacks the expected kernels: {error}"
    with pytest.raises(type(error), match=str(error)):
        judge(this_claim, "mlp", Device(tmp_path, DEFAULT_DEVICE))


@pytest.mark.parametrize("name", ["nvidia-other", DEFAULT_DEVICE])
def test_a_claim_about_what_nothing_computes_is_a_mistake_on_every_device(tmp_path: Path, name: str) -> None:
    with pytest.raises(UnknownName, match="no experiment 'mlp/eagr'"):
        judge(claim(measure=lambda device: figure("mlp.eagr.cold_us", device)), "mlp", Device(tmp_path, name))
    with pytest.raises(AttributeError, match="typo"):
        judge(claim(measure=raising(AttributeError("typo"))), "mlp", Device(tmp_path, name))


def test_a_verdict_out_of_a_recording(device: Device) -> None:
    def measure(device: Device) -> Figure:
        return device["mlp/eager"].per_step(lambda step: len(step.kernels))

    two = claim(measure=measure, band=equals(2))
    assert judge(two, "mlp", device).status == "not measured"
    for counts, status in (((2, 2, 2), "holds"), ((3, 3, 3), "differs"), ((2, 2, 3), "inconclusive")):
        save_all(device.root, sample(), trace=samples.trace_json(kernels=counts))
        assert judge(two, "mlp", device).status == status


@pytest.mark.parametrize(
    ("status", "expected", "device", "fits"),
    [
        ("holds", {}, "nvidia-h200", True),
        ("differs", {}, "nvidia-h200", False),
        ("inconclusive", {}, "nvidia-h200", False),
        ("not measured", {}, "nvidia-h200", True),
        ("differs", {"nvidia-h200": "differs"}, "nvidia-h200", True),
        ("holds", {"nvidia-h200": "differs"}, "nvidia-h200", False),
        ("differs", {}, "nvidia-t4", True),
    ],
)
def test_a_verdict_that_was_not_expected(status: Any, expected: dict[str, Any], device: str, fits: bool) -> None:
    this_claim = claim(scope="this-gpu", expected=expected)
    assert Verdict(this_claim, "mlp", samples.device(Path(), device), status, None).is_expected is fits


def test_ids_are_unique(book: Book) -> None:
    book(mlp=samples.findings(claim()), linear=samples.findings(claim(id="L1")))
    assert {name: chapter for name, (chapter, _) in all_claims().items()} == {"M1": "mlp", "L1": "linear"}
    for twice in (
        {"mlp": samples.findings(claim()), "linear": samples.findings(claim())},
        {"mlp": samples.findings(), "linear": samples.findings(claim(), claim(4))},
    ):
        book(**twice)
        with pytest.raises(ValueError, match=r"^claim M1 is in (mlp|linear) and in linear; ids are unique$"):
            all_claims()


def test_a_claim_by_its_id(book: Book) -> None:
    book(mlp=samples.findings(claim(id="M21"), claim(id="M22")))
    assert find_claim("M22") == ("mlp", claim_of("M22"))
    with pytest.raises(UnknownName, match=r"^no claim 'M23'; did you mean M22 or M21\?$"):
        find_claim("M23")


def claim_of(name: str) -> object:
    return next(each for each in findings("mlp").claims if each.id == name)


def test_every_claim_on_one_device(book: Book, device: Device) -> None:
    book(mlp=samples.findings(claim()), linear=samples.findings(claim(4, id="L1")))
    assert [(each.claim.id, each.status, each.device) for each in verdicts(device)] == [
        ("M1", "holds", device),
        ("L1", "differs", device),
    ]


def test_findings_in_parts(book: Book) -> None:
    first, second = claim(id="M1"), claim(id="M2")
    parts = (samples.findings(first, gate=first.measure), samples.findings(second, up=second.measure))
    parts[1].__name__ = second.measure.__module__ = "findings.second"
    vars(parts[1]).update(imported=first)
    whole = ModuleType("findings")
    vars(whole).update(PARTS=parts, PAGE="page", unlisted=claim(id="M3"))
    book(mlp=whole)
    assert [each.id for each in findings("mlp").claims] == ["M1", "M2"]  # M1 once, though two parts name it
    assert findings("mlp").figures == {
        "claim_M1_0": first,
        "gate": first.measure,
        "claim_M2_0": second,
        "up": second.measure,
    }
    assert findings("mlp").page == "page"
    book(mlp=samples.findings(first))
    assert findings("mlp").page == "mlp"
    vars(whole).update(PARTS=(*parts, samples.findings(gate=first.measure)))
    book(mlp=whole)
    with pytest.raises(ValueError, match=r"^two figures mlp\.gate$"):
        findings("mlp")


def test_chapters_have_findings_or_none(book: Book) -> None:
    assert {"mlp", "linear"} <= set(chapters_with_findings())
    assert "lab" not in chapters_with_findings()
    book(mlp=samples.findings())
    for name in ("nowhere", "mpl"):
        with pytest.raises(UnknownName, match=rf"^no findings of '{name}'"):
            findings(name)


def test_findings_that_do_not_import(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A missing package is that package's error, not a chapter without findings."""
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "findings.py").write_text("import no_such_package\n")
    monkeypatch.setattr("snippets.__path__", [*sys.modules["snippets"].__path__, str(tmp_path)])
    with pytest.raises(ModuleNotFoundError, match="no_such_package"):
        findings("broken")


def _measure(device: Device) -> Figure:
    return Figure(7)


def _typed(device: Device) -> Figure:
    """As where annotations are no text."""
    return Figure(8)


def test_a_public_measure_is_a_figure_by_its_own_name(book: Book, device: Device) -> None:
    module = samples.findings(claim(5), short=lambda device: Figure(6))
    measures = {"kernels": _measure, "_hidden": _measure, "typed": _typed, "imported": samples.environment}
    _measure.__module__ = _typed.__module__ = "findings"
    _measure.__annotations__.update({"device": "Device", "return": "Figure"})
    _typed.__annotations__.update({"device": Device, "return": Figure})
    vars(module).update(measures)
    book(mlp=module)
    assert {name: figure(f"mlp.{name}", device).value for name in findings("mlp").figures} == {
        "claim_M1_0": 5,
        "kernels": 7,
        "short": 6,
        "typed": 8,
    }


def test_a_claim_that_a_part_imports_is_not_its_own(book: Book) -> None:
    other = samples.findings(claim(id="L1"))
    vars(other)["claim_L1_0"].measure.__module__ = "snippets.linear.findings"
    module = samples.findings(claim())
    vars(module).update(another=vars(other)["claim_L1_0"])
    book(mlp=module)
    assert [each.id for each in findings("mlp").claims] == ["M1"]


def test_a_name_for_two_figures_is_an_error(book: Book) -> None:
    module = samples.findings(claim(5), claim_M1_0=lambda device: Figure(6))
    book(mlp=module)
    with pytest.raises(ValueError, match="FIGURES has a 'claim_M1_0' that is not the function of this name"):
        findings("mlp")
