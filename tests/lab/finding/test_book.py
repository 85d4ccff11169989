"""The book's findings: each status of a claim, unique ids, and what ends a build."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from kinetoscope.trace.events import TraceError
from snippets.lab.experiment import UnknownName
from snippets.lab.finding.band import equals
from snippets.lab.finding.book import (
    all_claims,
    chapters_with_findings,
    figure,
    find_claim,
    findings,
    judge,
    judge_all,
)
from snippets.lab.finding.claim import Source
from snippets.lab.finding.device import Device
from snippets.lab.finding.figure import Figure
from snippets.lab.finding.measure import Measure
from snippets.lab.recording.device import DEFAULT_DEVICE
from snippets.lab.recording.schema import NotRecorded, NotTimed, RecordingError
from tests.lab import samples
from tests.lab.conftest import Book
from tests.lab.samples import claim, sample, save_all

MISMATCH = ValueError("ProfilerStep#2 has 6 matmuls instead of three")
ERRORS = (
    ZeroDivisionError("float division by zero"),
    IndexError("list index out of range"),
    StopIteration("nothing"),
    RecursionError("too deep"),
    MemoryError("too much"),
    AttributeError("typo"),
    MISMATCH,
)


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
        (lambda device: Figure(5, conclusive=False), "inconclusive", "the active steps of its trace disagree", False),
        (lambda device: Figure(4, conclusive=False), "inconclusive", "the active steps of its trace disagree", False),
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


@pytest.mark.parametrize(
    ("name", "device_of_source", "status"),
    [
        ("nvidia-h100-80gb-hbm3", "NVIDIA H100", "differs"),
        ("nvidia-h100-80gb-hbm3", "NVIDIA H100 80GB HBM3", "differs"),
        ("nvidia-h100-80gb-hbm3", "NVIDIA H100 PCIe", "cannot be tested"),
        ("nvidia-h100-80gb-hbm3", "NVIDIA H10", "cannot be tested"),
        ("nvidia-h100-80gb-hbm3", "NVIDIA A100-SXM4-80GB", "cannot be tested"),
    ],
)
def test_a_value_of_one_gpu_alone_is_tested_there(
    tmp_path: Path, name: str, device_of_source: str, status: str
) -> None:
    """Elsewhere ours is shown without a verdict; a value that is any GPU's is judged everywhere."""
    source = Source("An article", "0.12 ms", device_of_source, only_there=True)
    verdict = judge(claim(6, source=source), "mlp", samples.device(tmp_path, name))
    assert (verdict.status, verdict.measured and verdict.measured.value) == (status, 6)
    assert verdict.reason == ("" if status == "differs" else f"the source's value is for an {device_of_source}")
    anywhere = claim(6, source=replace(source, only_there=False))
    assert judge(anywhere, "mlp", samples.device(tmp_path, name)).status == "differs"


def test_a_value_of_another_gpu_is_not_measured_where_nothing_is_recorded(device: Device) -> None:
    source = Source("An article", "0.12 ms", "NVIDIA H100", only_there=True)
    missing = claim(measure=raising(NotRecorded("nothing there")), source=source)
    verdict = judge(missing, "mlp", device)
    assert (verdict.status, verdict.reason, verdict.measured) == ("not measured", "nothing there", None)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("at", ["measure", "band"])
def test_another_gpu_may_have_a_trace_of_another_shape(tmp_path: Path, error: Exception, at: str) -> None:
    """Its owner gets the book without that number; on the default device it is a mistake of ours."""
    this_claim = claim(**{at: raising(error)})
    verdict = judge(this_claim, "mlp", Device(tmp_path, "nvidia-other"))
    assert (verdict.status, verdict.is_pending) == ("not measured", False)
    assert verdict.reason.startswith("What is recorded for the OTHER does not fit this part of the page: ")
    with pytest.raises(type(error), match=str(error)):
        judge(this_claim, "mlp", Device(tmp_path, DEFAULT_DEVICE))


@pytest.mark.parametrize("name", ["nvidia-other", DEFAULT_DEVICE])
def test_a_claim_about_what_nothing_computes_is_a_mistake_on_every_device(tmp_path: Path, name: str) -> None:
    with pytest.raises(UnknownName, match="no experiment 'mlp/eagr'"):
        judge(claim(measure=lambda device: figure("mlp.eagr.cold_us", device)), "mlp", Device(tmp_path, name))


def test_a_verdict_out_of_a_recording(device: Device) -> None:
    def measure(device: Device) -> Figure:
        return device["mlp/eager"].per_step(lambda step: len(step.kernels))

    two = claim(measure=measure, band=equals(2))
    assert judge(two, "mlp", device).status == "not measured"
    for counts, status in (((2, 2, 2), "holds"), ((3, 3, 3), "differs"), ((2, 2, 3), "inconclusive")):
        save_all(device.root, sample(), trace=samples.trace_json(kernels=counts))
        assert judge(two, "mlp", device).status == status


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
    assert [(each.claim.id, each.status, each.device) for each in judge_all(device)] == [
        ("M1", "holds", device),
        ("L1", "differs", device),
    ]


def measure_in(module: ModuleType, value: int) -> Measure:
    """A function of a module, as `def` leaves it."""

    def measure(device: Device) -> Figure:
        return Figure(value)

    measure.__module__ = module.__name__
    return measure


def test_findings_in_parts(book: Book) -> None:
    """A claim and a measure belong to the part that they are written in, and may be imported by another."""
    first, second = samples.findings(claim(id="M1")), samples.findings(claim(id="M2"))
    gate, up = measure_in(first, 1), measure_in(second, 2)
    typed = measure_in(first, 4)
    typed.__annotations__ = {"_": Device, "return": Figure}  # no text, and whatever the device is called
    vars(first).update(gate=gate, typed=typed, FIGURES={"doubled": gate})
    vars(second).update(gate=gate, up=up, first_claim=vars(first)["_0"], _hidden=measure_in(second, 3))
    whole = ModuleType("findings")
    vars(whole).update(PARTS=(first, second), PAGE="page", unlisted=claim(id="M3"))
    book(mlp=whole)
    assert [each.id for each in findings("mlp").claims] == ["M1", "M2"]
    assert dict(findings("mlp").figures) == {"gate": gate, "typed": typed, "doubled": gate, "up": up}
    assert findings("mlp").page == "page"
    book(mlp=first)
    assert findings("mlp").page == "mlp"


def test_a_claim_is_a_figure_by_the_name_of_its_function(book: Book, device: Device) -> None:
    module = samples.findings()
    five = claim(measure=measure_in(module, 5))
    vars(module).update(five_kernels=five)
    book(mlp=module)
    assert findings("mlp").claims == (five,)
    assert figure("mlp.five_kernels", device) == Figure(5)


def test_a_name_of_two_figures(book: Book) -> None:
    first, second = samples.findings(), samples.findings()
    vars(first).update(gate=measure_in(first, 1))
    vars(second).update(gate=measure_in(second, 2))
    whole = ModuleType("findings")
    vars(whole).update(PARTS=(first, second))
    book(mlp=whole)
    with pytest.raises(ValueError, match=r"^two figures mlp\.gate$"):
        findings("mlp")
    vars(first).update(FIGURES={"gate": measure_in(first, 3)})
    book(mlp=first)
    with pytest.raises(ValueError, match=r"FIGURES has a 'gate' that is not the function of this name$"):
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


def test_a_reason_has_no_character_that_hides_or_reorders_text(device: Device) -> None:
    for error in (NotRecorded("a\u202eb\x1b"), ValueError("a\u202eb\x1b")):
        verdict = judge(claim(measure=raising(error)), "mlp", replace(device, name="nvidia-other"))
        assert "a\\u202eb\\x1b" in verdict.reason
