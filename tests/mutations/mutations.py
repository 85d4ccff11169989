"""Recordings altered in memory, to see which claims notice.

`reads` names the recordings that a claim reads; `mutants` lists altered copies of one recording, and `directed` more of
them, toward what a claim says. A mutant alters times, or the structure: kernels, operators, calls, launches, bytes,
errors, names, text. trace_changes.py and recording_changes.py have what can happen.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import msgspec

from kinetoscope.trace.events import Trace
from snippets.lab.finding.book import judge
from snippets.lab.finding.claim import Claim, Status
from snippets.lab.finding.device import Run
from snippets.lab.finding.ranks import on_ranks
from snippets.lab.recording.schema import Recording
from tests.chapters.altered import RECORDED, AlteredDevice
from tests.mutations import recording_changes, trace_changes
from tests.mutations.trace_changes import Kind

replace = msgspec.structs.replace
ORDINARY = frozenset(["all", "call", "data", "long", "point", "points", "step", "times", "work"])
"""Words of many mutants' names that say nothing about what they alter."""


class CalmDevice(AlteredDevice):
    """The default device as if nothing had disturbed its recordings: what they measure decides.

    A claim that reads a disturbed recording is inconclusive, whatever that measures. Each time is as recorded.
    """

    def recording_of(self, run: Run) -> Recording:
        return calm(super().recording_of(run))


def calm(recording: Recording) -> Recording:
    """The recording without reasons to distrust it."""
    if not recording.disturbed:
        return recording
    points = tuple(replace(point, disturbed="") for point in recording.points)
    return replace(recording, points=points, environment=replace(recording.environment, other_processes=()))


class _Asked(dict[str, Any]):
    """A dict that remembers the keys it was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.keys_asked: dict[str, None] = {}

    def get(self, key: str, default: Any = None) -> Any:
        self.keys_asked[key] = None
        return super().get(key, default)


def status(claim: Claim, chapter: str, device: AlteredDevice) -> Status:
    """The verdict; `not measured` also where altered recordings do not fit the measure."""
    try:
        return judge(claim, chapter, device).status
    except Exception:
        return "not measured"


def reads(claim: Claim, chapter: str) -> dict[str, bool]:
    """The recordings that a claim reads, and whether it reads the trace of each."""
    recordings, traces = _Asked(), _Asked()
    status(claim, chapter, CalmDevice(recordings=recordings, traces=traces))
    return {name: name in traces.keys_asked for name in (*recordings.keys_asked, *traces.keys_asked)}


@dataclass(frozen=True)
class Mutant:
    """One recording of the default device, altered; `of_trace` or `of_recording` alters it."""

    id: str
    name: str
    kind: Kind
    of_trace: Callable[[Trace], Trace] | None = None
    of_recording: Callable[[Recording], Recording] | None = None
    rank: int | None = None
    """The rank whose trace is altered; None for all ranks."""
    made: list[CalmDevice] = field(default_factory=list)

    @cached_property
    def words(self) -> frozenset[str]:
        """The words of its name: the names, numbers and keys of what it alters."""
        return frozenset(re.findall(r"[\w:]+", self.name.lower())) - ORDINARY

    @property
    def device(self) -> CalmDevice:
        """The default device with this recording in place of its own. Kept, for other claims that read it."""
        if not self.made:
            self.made.append(CalmDevice())
            self.alter(self.made[0])
        return self.made[0]

    def alter(self, device: AlteredDevice) -> None:
        """Put the altered recording in place of the device's own."""
        for run in on_ranks(RECORDED[self.id]) if self.of_trace else ():
            if self.rank in (None, run.rank):
                assert self.of_trace is not None
                self._put(device, run, self.of_trace(run.trace))
        if self.of_recording:
            device.recordings[self.id] = self.of_recording(RECORDED[self.id].recording)

    def _put(self, device: AlteredDevice, run: Run, trace: Trace) -> None:
        if run.rank:
            device.rank_traces[run.id, run.rank] = trace
        else:
            device.traces[run.id] = trace

    def fits(self, claim: Claim) -> bool:
        """Whether it alters what claims of this scope are about: times, or the structure."""
        return self.kind in ("either", "time" if claim.scope == "timing" else "structure")


def flips(claim: Claim, chapter: str, mutant: Mutant, before: str, to: Sequence[Status] = ("holds", "differs")) -> bool:
    """Whether the claim gets one of these verdicts, and had another before."""
    return status(claim, chapter, mutant.device) in {*to} - {before}


@lru_cache(maxsize=256)
def mutants(experiment: str, with_trace: bool) -> tuple[Mutant, ...]:
    """The mutants of one recording that every claim can try; with those of its trace, or without."""
    run = RECORDED[experiment]
    of_trace = list(trace_changes.generic(run.trace)) if with_trace else []
    last = run.environment.gpus - 1
    return (
        *(
            Mutant(experiment, name, kind, None, change)
            for name, kind, change in recording_changes.generic(run.recording)
        ),
        *(_of_ranks(run) if with_trace and last else ()),
        *(Mutant(experiment, *each) for each in of_trace),
        *(
            Mutant(experiment, f"rank {last}: {name}", kind, change, rank=last)
            for name, kind, change in of_trace
            if last and name.endswith("all GPU work")
        ),
    )


def _of_ranks(run: Run) -> Iterator[Mutant]:
    """What flips claims about late ranks. Few, as it takes long to compare ranks anew."""
    traces = [rank.trace for rank in on_ranks(run)]
    last = len(traces) - 1

    def mirrored(own: Trace) -> Trace:
        assert own.rank is not None
        return trace_changes.mirrored(traces[last - own.rank], last)

    yield Mutant(run.id, "ranks in reverse order", "either", mirrored)
    change = trace_changes.only_communication
    yield Mutant(run.id, f"rank {last}: dropped: all but communication", "structure", change, rank=last)


def generic(claim: Claim, experiments: Mapping[str, bool]) -> list[Mutant]:
    """The mutants of all recordings that a claim reads, first those whose name shares most words with its sentence.

    Of as many words, those of traces come last: a trace has hundreds of mutants.
    """
    words = {word.replace(",", "").lower() for word in re.findall(r"[\w,]{3,}", claim.sentence)}
    words |= {name.lower() for name in names_in(claim)}
    found = [mutant for experiment, with_trace in experiments.items() for mutant in mutants(experiment, with_trace)]
    return sorted(found, key=lambda mutant: (-len(words & mutant.words), mutant.of_trace is not None))


def swapped(experiments: Mapping[str, bool]) -> Iterator[Mutant]:
    """Each recording that a claim reads, with the content of another one."""
    for experiment, with_trace in experiments.items():
        for other, of_other in experiments.items():
            if other != experiment:
                yield Mutant(experiment, f"as {other}", "either", *_as_other(other, with_trace and of_other))


def directed(claim: Claim, experiments: Mapping[str, bool]) -> Iterator[Mutant]:
    """Mutants chosen by the claim's sentence: its names and numbers, the other recordings it reads, a single step.

    Mutants of the same name in all recordings come last, as one mutant.
    """
    together: dict[str, list[Mutant]] = {}
    for experiment, with_trace in experiments.items():
        recording = RECORDED[experiment].recording
        found = [mutant for mutant in swapped(experiments) if mutant.id == experiment]
        if with_trace:
            changes = trace_changes.directed(RECORDED[experiment].trace, names_in(claim), _numbers_in(claim))
            found += [Mutant(experiment, *each) for each in changes]
        changed = recording_changes.directed(recording, names_in(claim))
        found += [Mutant(experiment, name, kind, None, change) for name, kind, change in changed]
        for mutant in found:
            together.setdefault(mutant.name, []).append(mutant)
            yield mutant
    for same in together.values():
        if len(same) == len(experiments) > 1:
            yield _joined(same)


def _joined(same: list[Mutant]) -> Mutant:
    device = CalmDevice()
    for mutant in same:
        mutant.alter(device)
    return Mutant("all", same[0].name, same[0].kind, made=[device])


def _as_other(other: str, has_trace: bool) -> tuple[Callable[[Trace], Trace] | None, Callable[[Recording], Recording]]:
    """A recording with the trace, the points and the data of another."""

    def recording(own: Recording) -> Recording:
        new = RECORDED[other].recording
        return replace(own, points=new.points, data=new.data)

    ranks = on_ranks(RECORDED[other]) if has_trace else ()
    return (lambda own: ranks[min(own.rank or 0, len(ranks) - 1)].trace) if has_trace else None, recording


def names_in(claim: Claim) -> tuple[str, ...]:
    """Names in the sentence, in the source's value and in the code of the measure."""
    source = claim.source.value if claim.source else ""
    words = [word.strip(".,;:()…") for word in f"{claim.sentence} {source}".split()]
    named = [word for word in words if "_" in word or "::" in word]
    return tuple(dict.fromkeys([*([source] if source else []), *named, *_strings(claim.measure)]))


def _numbers_in(claim: Claim) -> tuple[int, ...]:
    text = f"{claim.sentence} {claim.source.value if claim.source else ''}"
    return tuple(dict.fromkeys(int(digits) for digits in re.findall(r"\d+", text)))


def _strings(measure: Any) -> Iterator[str]:
    """String constants of a function, of the functions in it, and of those of chapters that it calls."""
    seen = set[int]()
    waiting = [(measure.__code__, measure.__globals__)]
    while waiting:
        code, known = waiting.pop()
        if id(code) in seen:
            continue
        seen.add(id(code))
        for constant in code.co_consts:
            yield from _flat(constant)
            if hasattr(constant, "co_consts"):
                waiting.append((constant, known))
        for name in code.co_names:
            yield from _flat(known.get(name))
            function = getattr(known.get(name), "measure", known.get(name))
            module = getattr(function, "__module__", None) or ""
            if hasattr(function, "__code__") and module.startswith("snippets.") and ".lab." not in module:
                waiting.append((function.__code__, function.__globals__))


def _flat(value: Any) -> Iterator[str]:
    if isinstance(value, str) and 1 < len(value) < 120 and "\n" not in value:
        yield value
    elif isinstance(value, tuple | list | set | frozenset):
        for each in value:
            yield from _flat(each)
