"""A claim is a sentence plus a predicate over recordings; its verdict on a device is computed at every build.

holds          the predicate is true of what was measured
differs        it is false: a finding, shown beside what the source said
inconclusive   the active steps of a trace disagree, so nothing may be counted
not measured   a recording it needs is missing on this device
"""

from __future__ import annotations

import importlib
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from html import escape
from typing import Any, Literal

from pymdownx.inlinehilite import InlineHiliteException

from snippets.lab import recording
from snippets.lab.experiment import chapters
from snippets.lab.figures import MISFITS, Figure, is_misfit
from snippets.lab.recording import RecordingError, RecordingMissing
from snippets.lab.trace import TraceError

Scope = Literal["every-gpu", "this-gpu", "timing"]
Word = Literal["holds", "differs", "inconclusive", "not measured"]
WORDS: tuple[Word, ...] = ("holds", "differs", "inconclusive", "not measured")


@dataclass(frozen=True)
class Source:
    """Who said it, of which device, and which value they gave."""

    who: str
    value: str
    device: str = "NVIDIA A100-SXM4-80GB"


@dataclass(frozen=True)
class Claim:
    """One sentence of the book that can be checked."""

    id: str
    sentence: str
    scope: Scope
    """every-gpu: counts, orders, equal names; this-gpu: a name, an API, a tile; timing: a ratio or a band."""
    measure: Callable[[str], Figure]
    """Takes a device, returns what was measured there."""
    holds: Callable[[Figure], bool]
    source: Source | None = None
    """Empty when the sentence is ours."""
    expected: Mapping[str, Word] = field(default_factory=dict)
    """By device, or `*` for every one. Elsewhere `every-gpu` claims are expected to hold and the others are open."""
    why: str = ""
    """What is different on the builder and why it matters; needed where a verdict is not `holds`."""

    def expected_on(self, device: str) -> Word | None:
        """The verdict that the prose was written for; None where nothing is expected."""
        if device in self.expected or "*" in self.expected:
            return self.expected.get(device) or self.expected["*"]
        return "holds" if self.scope == "every-gpu" or device == recording.BUILDER else None


@dataclass(frozen=True)
class Verdict:
    """A claim on a device."""

    claim: Claim
    chapter: str
    device: str
    word: Word
    measured: Figure | None
    reason: str = ""
    """Why there is no measurement."""
    is_pending: bool = False
    """Whether that is because a recording was never made."""

    @property
    def is_expected(self) -> bool:
        """Whether the prose still fits. A recording that is missing is another gate's business."""
        expected = self.claim.expected_on(self.device)
        return self.word == "not measured" or expected is None or self.word == expected


@lru_cache(maxsize=1)
def all_claims() -> Mapping[str, tuple[str, Claim]]:
    """Every claim of the book by its id, with its chapter. Raises `ValueError` for an id used twice."""
    found: dict[str, tuple[str, Claim]] = {}
    for chapter in chapters():
        try:
            claims: Iterable[Claim] = importlib.import_module(f"snippets.{chapter}.findings").CLAIMS
        except ModuleNotFoundError as error:
            if error.name != f"snippets.{chapter}.findings":
                raise
            continue
        for claim in claims:
            if claim.id in found:
                raise ValueError(f"claim {claim.id} stands in {found[claim.id][0]} and in {chapter}")
            found[claim.id] = (chapter, claim)
    return found


def judge(claim: Claim, chapter: str, device: str) -> Verdict:
    """Measure a claim on a device and give the verdict."""
    try:
        measured = claim.measure(device)
        word: Word = "inconclusive" if not measured.conclusive else "holds" if claim.holds(measured) else "differs"
    except (RecordingError, TraceError) as error:
        is_pending = isinstance(error, RecordingMissing)
        return Verdict(claim, chapter, device, "not measured", None, str(error), is_pending)
    except MISFITS as error:
        if not is_misfit(error, device):
            raise
        return Verdict(claim, chapter, device, "not measured", None, f"this trace is not shaped as expected: {error}")
    return Verdict(claim, chapter, device, word, measured)


def verdicts(device: str) -> list[Verdict]:
    """The ledger of one device."""
    return [judge(claim, chapter, device) for chapter, claim in all_claims().values()]


def ledger_row(claim_id: str, device: str) -> str:
    """The id of a claim's row in the ledger: `ledger-m1` on the first recorded device, else `ledger-m1-<device>`."""
    devices = recording.devices()
    return f"ledger-{claim_id.lower()}" + (f"-{device}" if device in devices[1:] else "")


def as_data(verdict: Verdict) -> dict[str, Any]:
    """A verdict for machines: id, chapter, sentence, scope, source, device, measured, verdict, expected."""
    claim, measured = verdict.claim, verdict.measured
    source = claim.source and {"who": claim.source.who, "device": claim.source.device, "value": claim.source.value}
    return {
        "id": claim.id,
        "chapter": verdict.chapter,
        "sentence": claim.sentence,
        "scope": claim.scope,
        "source": source,
        "device": verdict.device,
        "measured": measured
        and {"value": measured.value, "unit": measured.unit, "spread": measured.spread, "text": measured.text},
        "verdict": verdict.word,
        "expected": claim.expected_on(verdict.device),
        "why": claim.why if verdict.word == "differs" else "",
    }


def main(device: str | None, as_json: bool, check: bool) -> int:
    """Print the ledger; with `check`, 1 when a verdict is not the one the prose was written for."""
    known = recording.devices() or (recording.BUILDER,)
    if device and device not in known:
        raise recording.RecordingMissing(f"{device} is not recorded; recorded are {', '.join(known)}")
    wanted = (device,) if device else known
    ledger = [verdict for name in wanted for verdict in verdicts(name)]
    if as_json:
        print(json.dumps([as_data(verdict) for verdict in ledger], indent=1, ensure_ascii=False))
    else:
        for verdict in ledger:
            measured = verdict.measured.text if verdict.measured else verdict.reason
            shown = "".join(letter if letter.isprintable() else "?" for letter in measured)  # names are untrusted
            print(f"{verdict.device:14} {verdict.claim.id:5} {verdict.word:13} {shown:24}  {verdict.claim.sentence}")
        counts = Counter(verdict.word for verdict in ledger)
        print(", ".join(f"{counts[word]} {word}" for word in WORDS))
    flipped = [verdict for verdict in ledger if not verdict.is_expected]
    for verdict in flipped if check else ():
        print(
            f"{verdict.claim.id} on {verdict.device}: {verdict.word}, but the prose was written for "
            f"{verdict.claim.expected_on(verdict.device)}; read {verdict.chapter}'s page and findings.py again",
            file=sys.stderr,
        )
    return 1 if check and flipped else 0


def src_formatter(source: str, language: str, class_name: str, md: object) -> str:
    """`#!src L8` for pymdownx.inlinehilite: the value that a claim's source gave; an unknown claim ends the build."""
    name = source.strip()
    _, claim = all_claims().get(name, ("", None))
    if claim is None or claim.source is None:
        raise InlineHiliteException(f"#!src {name}: no claim of that id with a source")
    title = f"{claim.source.who}, on an {claim.source.device}"
    value = escape(claim.source.value)
    return f'<data class="src" value="{value}" title="{escape(title)}">{value}</data>'
