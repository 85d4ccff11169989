"""Verdicts: each word, what is expected where, and that a flip is noticed."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pymdownx.inlinehilite import InlineHiliteException

from snippets.lab.finding.book import Verdict, all_claims, judge
from snippets.lab.finding.claim import Claim, Source
from snippets.lab.finding.figure import Figure
from snippets.lab.finding.quantities import UnknownFigure, figure
from snippets.lab.page.inline import src_formatter
from snippets.lab.page.ledger import print_claims, verdict_data
from snippets.lab.recording.schema import NotRecorded, RecordingError
from snippets.lab.trace.events import TraceError

# KEEP claims
# KEEP recording
from tests.lab import samples
from tests.lab.samples import DEVICE, EVIL, Markup, assert_only_text, claim, put, sample

KEYS = ["id", "chapter", "sentence", "scope", "source", "device", "measured", "verdict", "expected", "why"]


def raising(error: Exception) -> Callable[[str], Figure]:
    def measure(device: str) -> Figure:
        raise error

    return measure


@pytest.fixture
def ledger(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Makes these the claims of the chapter mlp, and all there are."""
    all_claims.cache_clear()

    def fill(*mine: Claim, **others: tuple[Claim, ...]) -> None:
        of = {"mlp": mine, **others}
        monkeypatch.setattr(claims, "chapters", lambda: tuple(of))
        modules = {f"snippets.{chapter}.findings": SimpleNamespace(CLAIMS=found) for chapter, found in of.items()}
        monkeypatch.setattr(importlib, "import_module", modules.__getitem__)

    yield fill
    all_claims.cache_clear()


@pytest.mark.parametrize(
    ("measure", "word", "reason"),
    [
        (lambda device: Figure(5), "holds", ""),
        (lambda device: Figure(4), "differs", ""),
        (lambda device: Figure(5, conclusive=False), "inconclusive", ""),
        (lambda device: Figure(4, conclusive=False), "inconclusive", ""),
        (raising(NotRecorded("no recording; make record")), "not measured", "no recording; make record"),
        (raising(RecordingError("damaged")), "not measured", "damaged"),
        (raising(TraceError("no active steps")), "not measured", "no active steps"),
    ],
)
def test_each_verdict(measure: Callable[[str], Figure], word: str, reason: str) -> None:
    one = claim(measure=measure)
    found = judge(one, "mlp", DEVICE)
    assert (found.word, found.reason, found.claim, found.chapter, found.device) == (word, reason, one, "mlp", DEVICE)
    assert (found.measured is None) == (word == "not measured")


def test_a_claim_about_what_nothing_computes_is_a_mistake_and_no_verdict() -> None:
    with pytest.raises(UnknownFigure):
        judge(claim(measure=lambda device: figure("mlp.eagr.warm_us", device)), "mlp", DEVICE)


def test_a_verdict_out_of_a_recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = samples.shelf(monkeypatch, tmp_path)
    one = claim(measure=lambda device: figure("mlp.eager.kernels_per_step", device), holds=lambda f: f.value == 2)
    assert judge(one, "mlp", DEVICE).word == "not measured"
    put(root, sample())
    assert judge(one, "mlp", DEVICE).word == "holds"
    put(root, sample(), trace=samples.trace_json(kernels=(3, 3, 3)))
    assert judge(one, "mlp", DEVICE).word == "differs"
    put(root, sample(), trace=samples.trace_json(kernels=(2, 2, 3)))
    assert judge(one, "mlp", DEVICE).word == "inconclusive"


@pytest.mark.parametrize(
    ("scope", "expected", "device", "answer"),
    [
        ("every-gpu", {}, "nvidia-h200", "holds"),
        ("every-gpu", {}, "nvidia-t4", "holds"),
        ("this-gpu", {}, "nvidia-h200", "holds"),
        ("this-gpu", {}, "nvidia-t4", None),
        ("timing", {}, "nvidia-t4", None),
        ("timing", {"nvidia-h200": "differs"}, "nvidia-h200", "differs"),
        ("every-gpu", {"nvidia-h200": "differs"}, "nvidia-t4", "holds"),
        ("this-gpu", {"nvidia-h200": "differs"}, "nvidia-t4", None),
        ("every-gpu", {"*": "differs"}, "nvidia-t4", "differs"),
        ("this-gpu", {"*": "differs", "nvidia-t4": "holds"}, "nvidia-t4", "holds"),
    ],
)
def test_what_is_expected_where(scope: str, expected: dict[str, str], device: str, answer: str | None) -> None:
    assert claim(scope=scope, expected=expected).expected_on(device) == answer


@pytest.mark.parametrize(
    ("word", "expected", "device", "fits"),
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
def test_a_verdict_that_was_not_expected(word: Any, expected: dict[str, Any], device: str, fits: bool) -> None:
    one = claim(scope="this-gpu", expected=expected)
    assert Verdict(one, "mlp", device, word, None).is_expected is fits


def test_ids_are_unique(ledger: Callable[..., None]) -> None:
    ledger(claim(), linear=(claim(id="L1"),))
    assert {name: chapter for name, (chapter, _) in all_claims().items()} == {"M1": "mlp", "L1": "linear"}
    all_claims.cache_clear()
    ledger(claim(), linear=(claim(),))
    with pytest.raises(ValueError, match=r"^claim M1 stands in mlp and in linear$"):
        all_claims()


@pytest.mark.parametrize(("missing", "raises"), [("snippets.mlp.findings", False), ("numpy", True)])
def test_a_chapter_without_findings_and_findings_that_do_not_import(
    monkeypatch: pytest.MonkeyPatch, ledger: Callable[..., None], missing: str, raises: bool
) -> None:
    ledger()

    def import_module(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {missing!r}", name=missing)

    monkeypatch.setattr(importlib, "import_module", import_module)
    if raises:
        with pytest.raises(ModuleNotFoundError):
            all_claims()
    else:
        assert all_claims() == {}


def test_a_verdict_for_machines() -> None:
    source = Source("Part 2", "5 kernels", "NVIDIA A100")
    measured = Figure(21.5, "us", (21.0, 22.0), "origin")
    one = claim(source=source, why="Because.", measure=lambda device: measured)
    assert list(verdict_data(judge(one, "mlp", "nvidia-h200"))) == KEYS
    assert verdict_data(judge(one, "mlp", "nvidia-h200")) == {
        "id": "M1",
        "chapter": "mlp",
        "sentence": "Five kernels.",
        "scope": "every-gpu",
        "source": {"who": "Part 2", "device": "NVIDIA A100", "value": "5 kernels"},
        "device": "nvidia-h200",
        "measured": {"value": 21.5, "unit": "us", "spread": (21.0, 22.0), "text": "21.5 µs"},
        "verdict": "differs",
        "expected": "holds",
        "why": "Because.",
    }
    plain = verdict_data(
        judge(claim(measure=raising(TraceError("x")), scope="timing", why="Because."), "mlp", "nvidia-t4")
    )
    assert (plain["source"], plain["measured"], plain["verdict"]) == (None, None, "not measured")
    assert (plain["expected"], plain["why"]) == (None, "")


def test_the_ledger_for_machines(ledger: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    ledger(claim(), claim(4, id="M2"), *(claim(name, id=f"X{place}") for place, name in enumerate(EVIL)))
    assert print_claims("nvidia-h200", as_json=True, check=False) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(one["id"], one["verdict"]) for one in found[:2]] == [("M1", "holds"), ("M2", "differs")]
    assert [one["measured"]["value"] for one in found[2:]] == list(EVIL)
    assert all(list(one) == KEYS for one in found)


def test_the_ledger_for_people(ledger: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    ledger(claim(), claim(4, id="M2"), claim(measure=raising(TraceError("no steps")), id="M3"))
    assert print_claims("nvidia-h200", as_json=False, check=False) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [" ".join(line.split()) for line in lines] == [
        "nvidia-h200 M1 holds 5 Five kernels.",
        "nvidia-h200 M2 differs 4 Five kernels.",
        "nvidia-h200 M3 not measured no steps Five kernels.",
        "1 holds, 1 differs, 0 inconclusive, 1 not measured",
    ]


@pytest.mark.parametrize("as_json", [True, False])
@pytest.mark.parametrize(
    ("value", "expected", "code"), [(5, {}, 0), (4, {}, 1), (4, {"*": "differs"}, 0), (5, {"*": "differs"}, 1)]
)
def test_a_flip_fails_the_check(
    ledger: Callable[..., None],
    capsys: pytest.CaptureFixture[str],
    as_json: bool,
    value: int,
    expected: dict[str, Any],
    code: int,
) -> None:
    ledger(claim(value, expected=expected))
    assert print_claims("nvidia-h200", as_json, check=False) == 0
    assert capsys.readouterr().err == ""
    assert print_claims("nvidia-h200", as_json, check=True) == code
    word, prose = ("holds", "differs") if value == 5 else ("differs", "holds")
    said = f"M1 on nvidia-h200: {word}, but the prose was written for {prose}; read mlp's page and findings.py again\n"
    assert capsys.readouterr().err == (said if code else "")


def test_all_devices_unless_one_is_named(
    ledger: Callable[..., None],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    root = samples.shelf(monkeypatch, tmp_path)
    ledger(claim())
    for expected in ([DEVICE], [DEVICE, "nvidia-a"]):
        assert print_claims(None, as_json=True, check=False) == 0
        assert [one["device"] for one in json.loads(capsys.readouterr().out)] == expected
        put(root, sample(), device="nvidia-a")
        put(root, sample())


def test_the_value_of_a_source(ledger: Callable[..., None]) -> None:
    ledger(claim(source=Source("Part 2", "5 kernels")), claim(id="M2"))
    assert src_formatter(" M1 ", "src", "src", None) == (
        '<data class="src" value="5 kernels" title="Part 2, on an NVIDIA A100-SXM4-80GB">5 kernels</data>'
    )
    for name in ("M2", "M3", ""):
        with pytest.raises(InlineHiliteException, match=rf"^#!src {name}: no claim of that id with a source$"):
            src_formatter(name, "src", "src", None)


@pytest.mark.parametrize("name", EVIL)
def test_untrusted_text(ledger: Callable[..., None], name: str) -> None:
    ledger(claim(source=Source(name, name, name)))
    shown = src_formatter("M1", "src", "src", None)
    assert_only_text(shown, name)
    assert Markup(shown).text == name
