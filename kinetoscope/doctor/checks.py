"""The result of a check of `doctor`, and how results are printed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from msgspec import Struct

from kinetoscope.trace.documents import SCHEMA_VERSION, Cut
from kinetoscope.trace.text import wrapped

Status = Literal["ok", "warning", "failed"]
MISSING_EVENTS = ("pytorch#192021", "pytorch#124547", "kineto#996", "kineto#859", "kineto#762")
"""Threads with the most frequent question: why are GPU events missing, or zero?"""
COLUMNS = 100
_STATUS_COLUMNS, _NAME_COLUMNS = 9, 20


class Check(Struct, frozen=True):
    """The result of one check. `failed`: no useful recording or reading is possible until it is fixed."""

    name: str
    """What is checked, such as `file`, `steps` or `driver`."""
    status: Status
    """`failed`: no useful recording or reading is possible until it is fixed."""
    seen: str
    """The result of the check, with the values."""
    cure: str = ""
    """What to do; empty if nothing needs fixing."""
    sources: tuple[str, ...] = ()
    """Threads in which people asked about this fault, as `repository#number`, or the rule's origin."""


def is_ok(checks: Sequence[Check]) -> bool:
    """Whether no check failed; warnings do not count."""
    return all(check.status != "failed" for check in checks)


class DoctorDocument(Struct, frozen=True, kw_only=True, tag_field="kind", tag="doctor"):
    """The JSON of `doctor`."""

    schema_version: Literal[1] = SCHEMA_VERSION
    """Version of the schema. It rises when a key is renamed, removed or changes its meaning, not when one is added."""
    subject: Literal["machine", "trace"]
    """What was checked."""
    file: str
    """Name of the trace's file, without its folder; empty for a machine."""
    verdict: str
    """Whether the machine or the trace can be relied on, in a sentence."""
    ok: bool
    """Whether no check failed; warnings do not count."""
    checks: tuple[Check, ...]
    """The checks, in the order in which they ran; a check that does not apply is left out."""
    truncated: tuple[Cut, ...] = ()
    """Always empty: no check is left out."""


def checks_text(checks: Sequence[Check], verdict: str) -> str:
    """A line for each check with its cure below, at most 100 columns, unprintable characters escaped."""
    lines = [line for check in checks for line in _lines(check)]
    return "\n".join([*lines, "", *wrapped(verdict, COLUMNS)])


def _lines(check: Check) -> Iterator[str]:
    texts = [check.seen, *([f"cure: {check.cure}"] if check.cure else [])]
    margin = f"{check.status:<{_STATUS_COLUMNS}}{check.name:<{_NAME_COLUMNS}}"
    for text in texts:
        for line in wrapped(text, COLUMNS - len(margin)):
            yield f"{margin}{line}"
            margin = " " * len(margin)
