"""The point of a sweep that a selector names: `batch=1,seq=1`."""

from __future__ import annotations

from collections.abc import Sequence

from snippets.lab.experiment import Parameters, UnknownName, nearest


def select_point(experiment: str, points: Sequence[Parameters], selector: str) -> int:
    """The index of the point that `batch=1,seq=1` selects; an only point needs no selector. Raises `UnknownName`."""
    chosen = dict(pair.split("=", 1) for pair in selector.split(",")) if selector else {}
    indices: list[int] = [*range(len(points))]
    for key, text in chosen.items():
        indices = [index for index in indices if str(points[index].get(key)) == text]
    if len(indices) == 1:
        return indices[0]
    known = [",".join(f"{key}={value}" for key, value in point.items()) for point in points]
    if selector and not indices:
        raise UnknownName(f"{experiment} has no point {selector!r}{nearest(selector, known)}")
    raise UnknownName(f"{experiment} has {len(points)} points; pick one, such as [{known[0] if known else ''}]")
