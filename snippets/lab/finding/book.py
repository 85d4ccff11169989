"""All findings of the book: figures by name, claims with their verdicts. Only this module imports chapters' findings.

A quantity of a run is the figure `<chapter>.<experiment>.<quantity>`, with the point of a sweep in brackets:
`matmul_add.sweep_eager.interleaved_us[size=4096]`. A measure of a chapter's findings is the figure `<chapter>.<name>`:
a claim, a public function from a device to a figure, or an entry of `FIGURES`.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import TypeGuard

import snippets
from kinetoscope.trace.events import TraceError
from kinetoscope.trace.text import visible
from snippets.lab.cache import once
from snippets.lab.experiment import UnknownName, chapters, nearest
from snippets.lab.finding.claim import Claim, Status
from snippets.lab.finding.device import Device
from snippets.lab.finding.figure import Figure, checked
from snippets.lab.finding.measure import Measure
from snippets.lab.finding.mismatch import reading
from snippets.lab.finding.quantities import quantity
from snippets.lab.finding.spread import measure_spread
from snippets.lab.finding.views import Noted
from snippets.lab.recording.schema import NotRecorded, RecordingError

STEPS_DISAGREE = "the active steps of its trace disagree"

_NAME = re.compile(r"([a-z0-9_]+)\.([a-z0-9_]+)\.([a-z0-9_]+)(?:\[([a-z_]+=[^\],]+(?:,[a-z_]+=[^\],]+)*)\])?")


@dataclass(frozen=True)
class Findings:
    """The figures and claims of one chapter, from `findings.py` or from a package's modules in the order of `PARTS`."""

    chapter: str
    figures: Mapping[str, Measure]
    claims: tuple[Claim, ...]
    page: str
    """The page with the chapter's claims: `PAGE`, else the chapter's own page."""


@lru_cache(maxsize=64)
def findings(chapter: str) -> Findings:
    """The findings of a chapter. Raises `UnknownName` if it has none, `ValueError` for a duplicate name."""
    try:
        module = importlib.import_module(f"snippets.{chapter}.findings")
    except ModuleNotFoundError as error:
        if error.name not in (f"snippets.{chapter}", f"snippets.{chapter}.findings"):
            raise
        raise UnknownName(f"no findings of {chapter!r}{nearest(chapter, chapters_with_findings())}") from None
    figures: dict[str, Measure] = {}
    claims: list[Claim] = []
    for part in _parts(module):
        own = _own_figures(part)
        if twice := sorted(figures.keys() & own.keys()):
            raise ValueError(f"two figures {chapter}.{twice[0]}")
        figures |= own
        claims += [value for value in vars(part).values() if _is_claim(value, part)]
    return Findings(chapter, figures, tuple(claims), getattr(module, "PAGE", chapter))


def _own_figures(part: ModuleType) -> dict[str, Measure]:
    """A module's public measures by function name, and `FIGURES`: name -> short measure, such as a lambda."""
    measures = {
        name: value
        for name, value in vars(part).items()
        if not name.startswith("_") and (_is_claim(value, part) or _is_measure(value, part))
    }
    short: Mapping[str, Measure] = getattr(part, "FIGURES", {})
    if twice := sorted(name for name in measures.keys() & short.keys() if measures[name] is not short[name]):
        raise ValueError(f"{part.__name__}: FIGURES has a {twice[0]!r} that is not the function of this name")
    return {**measures, **short}


def _is_claim(value: object, part: ModuleType) -> TypeGuard[Claim]:
    """Whether the module itself defines this claim: a part may import another part's claim to reuse its measure."""
    return isinstance(value, Claim) and value.measure.__module__ == part.__name__


def _is_measure(value: object, part: ModuleType) -> TypeGuard[Measure]:
    """Whether the module defines this function, from a device alone to a figure."""
    if not inspect.isfunction(value) or value.__module__ != part.__name__:
        return False
    kinds = [getattr(kind, "__name__", kind) for kind in value.__annotations__.values()]
    return kinds == ["Device", "Figure"]  # strings, because modules postpone annotations


def _parts(module: ModuleType) -> tuple[ModuleType, ...]:
    parts: tuple[ModuleType, ...] = getattr(module, "PARTS", (module,))
    return parts


def chapters_with_findings() -> tuple[str, ...]:
    """Chapters with findings; a chapter without experiments has none."""
    folders = (Path(folder) / chapter for folder in snippets.__path__ for chapter in chapters())
    return tuple(folder.name for folder in folders if list(folder.glob("findings*")))


def figure(name: str, device: Device) -> Figure:
    """Compute one figure, with its spread. Raises `UnknownName`, `NotRecorded`, `NotTimed`, `RecordingError`."""
    match = _NAME.fullmatch(name)
    if match is not None:
        chapter, experiment, quantity_name, selector = match.groups()
        point = f"[{selector}]" if selector else ""
        return checked(quantity(device[f"{chapter}/{experiment}{point}"], quantity_name))
    chapter, _, measure_name = name.partition(".")
    figures = findings(chapter).figures
    if measure_name not in figures:
        raise UnknownName(f"no figure {name!r}{nearest(name, (f'{chapter}.{known}' for known in figures))}")
    measured = measure_spread(figures[measure_name], device).figure
    low, high = measured.spread or (0.0, 0.0)
    return checked(replace(measured, spread=(low, high) if low < high else None))


def doubt(name: str, device: Device) -> str:
    """Why the claim with this figure's name is inconclusive on a device; empty if it is conclusive, or if there is no
    claim."""
    chapter, _, measure_name = name.partition(".")
    measure = findings(chapter).figures.get(measure_name) if _NAME.fullmatch(name) is None else None
    verdict = judge(measure, chapter, device) if isinstance(measure, Claim) and measure.scope == "timing" else None
    return verdict.reason if verdict is not None and verdict.status == "inconclusive" else ""


@dataclass(frozen=True)
class Verdict:
    """The result of checking a claim on a device."""

    claim: Claim
    chapter: str
    device: Device
    status: Status
    measured: Figure | None
    """With the spread that decided about a timing."""
    reason: str = ""
    """Why there is no measurement, why it is inconclusive, or why it cannot be tested here; else empty."""
    is_pending: bool = False
    """Whether the reason is a missing recording."""
    has_spread: bool = False
    """Whether a spread decided: only a timing has one, and each should."""


@lru_cache(maxsize=1)
def all_claims() -> Mapping[str, tuple[str, Claim]]:
    """Claim id -> its chapter and the claim. Raises `ValueError` for a duplicate id."""
    known: dict[str, tuple[str, Claim]] = {}
    for chapter in chapters_with_findings():
        for claim in findings(chapter).claims:
            if claim.id in known:
                raise ValueError(f"claim {claim.id} is in {known[claim.id][0]} and in {chapter}; ids are unique")
            known[claim.id] = (chapter, claim)
    return known


def find_claim(claim_id: str) -> tuple[str, Claim]:
    """The chapter and the claim with this id. Raises `UnknownName`."""
    if claim_id not in all_claims():
        raise UnknownName(f"no claim {claim_id!r}{nearest(claim_id, all_claims())}")
    return all_claims()[claim_id]


def judge(claim: Claim, chapter: str, device: Device) -> Verdict:
    """Measure a claim on a device and return the verdict, which itself says what was disturbed."""
    return _judge_once(claim, chapter, device.unnoted)


@once
def _judge_once(claim: Claim, chapter: str, device: Device) -> Verdict:
    try:
        with reading(device, f"claim {claim.id}") as noted:
            verdict = (_judge_timing if claim.scope == "timing" else _judge)(claim, chapter, noted)
    except (RecordingError, TraceError) as error:
        is_pending = isinstance(error, NotRecorded)
        return Verdict(claim, chapter, device, "not measured", None, visible(str(error)), is_pending)
    if claim.source is not None and not claim.source.can_be_tested_on(device.name):
        reason = f"the source's value is for an {claim.source.device}"
        verdict = replace(verdict, status="cannot be tested", reason=reason)
    return replace(verdict, device=device, reason=visible(verdict.reason))


def _judge(claim: Claim, chapter: str, device: Noted) -> Verdict:
    measured = checked(claim.measure(device))
    status: Status = "holds" if claim.band(measured) else "differs"
    if not measured.conclusive:
        return Verdict(claim, chapter, device, "inconclusive", measured, measured.doubt or STEPS_DISAGREE)
    return Verdict(claim, chapter, device, status, measured)


def _judge_timing(claim: Claim, chapter: str, device: Noted) -> Verdict:
    """The verdict on the whole spread: processes, thirds of a sweep's samples, and steps of a trace may disagree."""
    spread = measure_spread(claim.measure, device)
    is_in = spread.is_in(claim.band)
    disturbed = {name: reason for name in device.runs if (reason := device[name].disturbed)}
    if not spread.figure.conclusive:
        reason = spread.figure.doubt or STEPS_DISAGREE
    elif disturbed:
        reason = "; ".join(f"{name} was disturbed: {reason}" for name, reason in disturbed.items())
    else:
        reason = "" if is_in is not None else spread.contradiction(claim.band)
    status: Status = "inconclusive" if reason else "holds" if is_in else "differs"
    return Verdict(claim, chapter, device, status, checked(spread.figure), reason, has_spread=spread.is_known)


def judge_all(device: Device) -> Iterator[Verdict]:
    """Judge every claim on one device."""
    return (judge(claim, chapter, device) for chapter, claim in all_claims().values())
