"""The errors of names, experiments and results."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UnknownName(LookupError):
    """No such chapter, experiment, point, quantity, figure or claim; the message names the nearest ones."""


class ExperimentError(ValueError):
    """An experiment that contradicts itself, its group or its functions; the message names the cure."""


class NeedsGpu(RuntimeError):
    """This experiment cannot run on a CPU; the message says why."""


class WrongAnswer(ArithmeticError):
    """The result of a step differs from its reference by more than the tolerance."""


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of an error about an unknown name: `; did you mean mlp/eager?`."""
    known = tuple(known)
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.4) or sorted(known)
    return f"; did you mean {' or '.join(near)}?" if near else "; there is none yet"
