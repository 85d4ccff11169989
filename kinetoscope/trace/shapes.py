"""Shapes, strides and types of an operator's inputs, from the texts of a file."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec

from kinetoscope.trace.events import Shapes
from kinetoscope.trace.json_events import JSON_ERRORS

_MAX_SIZE = 2**48
"""Of a dimension or stride of a tensor."""


class ShapesOf(dict[bytes, Shapes]):
    """Parses each distinct text once: many ops share few shapes."""

    def __missing__(self, text: bytes) -> Shapes:
        try:
            return self.setdefault(text, _shapes(_plain(text)))
        except ValueError:
            return self.setdefault(text, ())


class TypesOf(dict[bytes, tuple[str, ...]]):
    """Parses each distinct text once."""

    def __missing__(self, text: bytes) -> tuple[str, ...]:
        data = _plain(text)
        types = tuple(kind if isinstance(kind, str) else "" for kind in data) if isinstance(data, list) else ()
        return self.setdefault(text, types)


def _plain(text: bytes) -> Any:
    """Decode JSON; None if the text is empty or unreadable, such as a number too large to decode."""
    with suppress(*JSON_ERRORS):
        return msgspec.json.decode(text)
    return None


def _shapes(dims: object) -> Shapes:
    """`[[64, 64], []]` -> ((64, 64), ()); a list of tensors is one level deeper, and each tensor counts as an input.

    Raises `ValueError` if a size is impossible.
    """
    shapes: list[tuple[int, ...]] = []
    for dim in dims if isinstance(dims, list) else ():
        if not isinstance(dim, list):
            shapes.append(())
        elif dim and all(isinstance(inner, list) for inner in dim):
            shapes.extend(_shapes(dim))
        else:
            if not all(type(size) is int and 0 <= size <= _MAX_SIZE for size in dim):
                raise ValueError(f"not the sizes of a tensor: {str(dim)[:80]}")
            shapes.append(tuple(dim))
    return tuple(shapes)
