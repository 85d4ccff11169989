"""Possible changes of a recording without its trace: each has a name and a kind. A timing changes as a whole."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from snippets.lab.recording.schema import Recording, Timing
from tests.mutations.trace_changes import FACTORS, FINE_FACTORS, OTHER, Kind

replace = msgspec.structs.replace
TIMINGS = ("interleaved", "from_python", "enqueue", "cold", "steady")
Named = tuple[str, Kind, Callable[[Recording], Recording]]


def generic(recording: Recording) -> Iterator[Named]:
    count = len(recording.points)
    for index in [*([None] if count > 1 else []), *range(count)]:
        where = "all points" if index is None else f"point {index}"
        for factor in FACTORS:
            yield from _scaled(recording, index, where, factor)
            for ceiling in recording.points[index or 0].ceilings:
                yield f"{factor:g} {ceiling.name}: {where}", "time", _points(index, _ceiling(ceiling.name, factor))
            for name in ("flops", "bytes", "peak_memory_bytes", "relative_error"):
                yield f"{factor:g} {name}: {where}", "structure", _points(index, _number(name, factor))
    for name, kind, data in _altered(recording.data):
        yield f"data: {name}", kind, lambda r, data=data: replace(r, data=data)  # type: ignore[misc]
    for factor in (2.0, 0.5):
        new = int(recording.environment.multiprocessors * factor)
        yield (
            f"{new} multiprocessors",
            "structure",
            lambda r, new=new: replace(  # type: ignore[misc]
                r, environment=replace(r.environment, multiprocessors=new)
            ),
        )


def directed(recording: Recording, names: Sequence[str]) -> Iterator[Named]:
    for name in names:
        for path, data in _with_name(recording.data, name):
            yield f"data: {name} in {path}", "structure", lambda r, data=data: replace(r, data=data)  # type: ignore[misc]
    for name, data in _fine_times(recording.data):
        yield f"data: {name}", "time", lambda r, data=data: replace(r, data=data)  # type: ignore[misc]
    for factor in FINE_FACTORS:
        for index in range(len(recording.points)):
            yield from _scaled(recording, index, f"point {index}", factor)


def _scaled(recording: Recording, index: int | None, where: str, factor: float) -> Iterator[Named]:
    """Each kind of timing of a point, or of all points, so many times as long."""
    timings = recording.points[index or 0].timings
    for kind in TIMINGS if timings else ():
        if getattr(timings, kind) is not None:
            yield f"{factor:.3g} {kind}: {where}", "time", _points(index, _timing(kind, factor))
    if recording.points[index or 0].iteration is not None:
        yield f"{factor:.3g} iteration: {where}", "time", _points(index, _iteration(factor))


def _points(index: int | None, change: Callable[[Any], Any]) -> Callable[[Recording], Recording]:
    def changed(recording: Recording) -> Recording:
        points = (change(p) if index in (None, place) else p for place, p in enumerate(recording.points))
        return replace(recording, points=tuple(points))

    return changed


def _longer(timing: Timing, factor: float) -> Timing:
    median_us, q1_us, q3_us = (factor * us for us in (timing.median_us, timing.q1_us, timing.q3_us))
    samples_us = tuple(factor * sample for sample in timing.samples_us)
    return replace(timing, median_us=median_us, q1_us=q1_us, q3_us=q3_us, samples_us=samples_us)


def _timing(kind: str, factor: float) -> Callable[[Any], Any]:
    return lambda point: replace(
        point, timings=replace(point.timings, **{kind: _longer(getattr(point.timings, kind), factor)})
    )


def _iteration(factor: float) -> Callable[[Any], Any]:
    return lambda point: replace(point, iteration=_longer(point.iteration, factor))


def _ceiling(name: str, factor: float) -> Callable[[Any], Any]:
    def changed(point: Any) -> Any:
        longer = (replace(c, timing=_longer(c.timing, factor)) if c.name == name else c for c in point.ceilings)
        return replace(point, ceilings=tuple(longer))

    return changed


def _number(name: str, factor: float) -> Callable[[Any], Any]:
    return lambda point: replace(point, **{name: type(getattr(point, name))(factor * getattr(point, name))})


# -- what a probe returned


def _altered(value: Any, path: str = "") -> Iterator[tuple[str, Kind, Any]]:
    """A probe's data with one value altered, and the value's name."""
    kind: Kind = "time" if re.search(r"_(us|ms)(\[|$)", path) else "either"
    if isinstance(value, dict):
        for name, numbers in _altered_numbers(list(value.values())):
            yield f"{name} {path}", kind, dict(zip(value, numbers, strict=True))
        yield from ((name, "either", {**value, **rows}) for name, rows in _altered_rows(value, path))
        yield from ((f"{name} {path}", "either", {**value, **new}) for name, new in _as_others(value))
        yield from ((f"{name} {path}", "either", {**value, **new}) for name, new in _alike(value))
        for key, inner in value.items():
            yield f"without {path}/{key}", "structure", {k: v for k, v in value.items() if k != key}
            for name, inner_kind, new in _altered(inner, f"{path}/{key}"):
                yield name, inner_kind, {**value, key: new}
    elif isinstance(value, list) and value:
        for name, new in _other_lengths(value):
            yield f"{name} {path}", "either", new
        for name, new in _altered_numbers(value):
            yield f"{name} {path}", kind, new
        is_sample = all(isinstance(each, float) for each in value)
        for place, inner in enumerate(() if is_sample else value):
            for name, inner_kind, new in _altered(inner, f"{path}[{place}]"):
                yield name, inner_kind, [*value[:place], new, *value[place + 1 :]]
    elif isinstance(value, bool):
        yield f"the contrary of {path}", "structure", not value
    elif isinstance(value, int | float):
        for factor in FACTORS:
            yield f"{factor:g} times {path}", kind, type(value)(factor * value) if value else type(value)(factor)
    elif isinstance(value, str):
        yield f"another {path}", "structure", OTHER
        yield f"more in {path}", "structure", f"{value} {OTHER}"
        lines = value.splitlines()
        for place, line in enumerate(lines if len(lines) > 1 else ()):
            less = "\n".join([*lines[:place], *lines[place + 1 :]])
            yield f"without {line.strip()[:50]!r} in {path}", "structure", less


def _altered_rows(columns: Mapping[str, Any], path: str) -> Iterator[tuple[str, dict[str, list[Any]]]]:
    """Lists of one length are the columns of a table: all its rows are as one of them, but for one."""
    lists = {key: value for key, value in columns.items() if isinstance(value, list) and len(value) > 2}
    if len(lists) < 2 or len({len(value) for value in lists.values()}) != 1:
        return
    count = len(next(iter(lists.values())))
    for one, other in itertools.permutations(range(min(count, 6)), 2):
        places = [other] + [one] * (count - 1)
        rows = {key: [value[place] for place in places] for key, value in lists.items()}
        yield f"all rows but one as row {one}, that as {other}: {path}", rows


def _as_others(value: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """One part as another; only one with a key that some have; the lists of the whole as those of a part's part."""
    parts = {key: part for key, part in value.items() if isinstance(part, dict)}
    for key, other in itertools.permutations(parts, 2):
        yield f"{key} as {other} of", {key: parts[other]}
    for name in dict.fromkeys(name for part in parts.values() for name in part):
        having = [key for key, part in parts.items() if name in part]
        lacking = [part for part in parts.values() if name not in part]
        for only in having if lacking and len(having) > 1 else ():
            yield f"only {only} has {name} of", {key: lacking[0] for key in having if key != only}
    for key, part in parts.items():
        for inner, trial in part.items():
            if isinstance(trial, dict) and (shared := {name: trial[name] for name in trial if name in value}):
                yield f"as {key}/{inner}", shared


def _alike(value: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The numbers of one name in several parts, so many times."""
    parts = {key: part for key, part in value.items() if isinstance(part, dict)}
    having = Counter(keys for part in parts.values() for keys in _number_keys(part))
    for keys, factor in itertools.product((keys for keys, count in having.items() if count > 1), FACTORS):
        name = "/".join(keys)
        yield f"{factor:g} times each {name} of", {key: _times(part, keys, factor) for key, part in parts.items()}


def _number_keys(part: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    for key, inner in part.items():
        if isinstance(inner, dict):
            yield from ((key, *keys) for keys in _number_keys(inner))
        elif isinstance(inner, int | float) and not isinstance(inner, bool):
            yield (key,)


def _times(part: Any, keys: Sequence[str], factor: float) -> Any:
    """A part whose number behind these keys, if it has one, is so many times as large."""
    if not keys:
        return type(part)(factor * part)
    if not isinstance(part, dict) or keys[0] not in part:
        return part
    return {**part, keys[0]: _times(part[keys[0]], keys[1:], factor)}


def _fine_times(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """A probe's data with the samples of one time a little longer or shorter."""
    for key, inner in value.items() if isinstance(value, dict) else ():
        where = f"{path}/{key}"
        if re.search(r"[/_]us$", where) and isinstance(inner, list) and all(isinstance(us, float) for us in inner):
            for factor in FINE_FACTORS:
                yield f"{factor:.3g} times {where}", {**value, key: [factor * us for us in inner]}
        for name, new in _fine_times(inner, where):
            yield name, {**value, key: new}


def _other_lengths(values: list[Any]) -> Iterator[tuple[str, list[Any]]]:
    yield "nothing in", []
    yield "without the last of", values[:-1]
    yield "without the first of", values[1:]
    yield "the first twice in", [values[0], *values]
    yield "the last twice in", [*values, values[-1]]


def _altered_numbers(values: list[Any]) -> Iterator[tuple[str, list[Any]]]:
    if values and all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        for factor in FACTORS:
            yield f"{factor:g} times", [type(value)(factor * value) for value in values]
        middle = sorted(values)[len(values) // 2]
        yield "a doubled upper half of", [2 * value if value >= middle else value for value in values]
        yield "the same numbers in", [values[0]] * len(values)
        yield "rising numbers in", [values[0] + place for place in range(len(values))]


def _with_name(value: Any, name: str, path: str = "") -> Iterator[tuple[str, Any]]:
    """A probe's data, with a name in one of its texts."""
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            for where, new in _with_name(inner, name, f"{path}/{key}"):
                copied = dict(value) if isinstance(value, dict) else list(value)
                copied[key] = new
                yield where, copied
    elif isinstance(value, str):
        yield path, f"{value} {name}"
        yield f"{path} alone", name
