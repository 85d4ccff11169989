"""The one boundary between a device's recordings and what the book computes from them.

A recording of another GPU may lack a kernel, a point or a key, or hold text where a number should be: what is computed
from it can raise anything. There the book is built without that piece, and says why. On the default device and on a
sample the same error is a mistake of ours and ends the build, with the place in its notes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kinetoscope.trace.events import TraceError
from kinetoscope.trace.text import shortened
from snippets.lab.experiment import UnknownName
from snippets.lab.finding.device import Device
from snippets.lab.finding.views import Noted, noted
from snippets.lab.recording.device import DEFAULT_DEVICE
from snippets.lab.recording.schema import NotRecorded, NotTimed, RecordingError
from snippets.lab.recording.scrub import scrub

REASONS: tuple[tuple[type[Exception], str], ...] = (
    (MemoryError, "it is too large"),
    (RecursionError, "it is nested too deeply"),
    (KeyError, "something that the page asks for by name is missing in it"),
    (LookupError, "something that the page asks for is missing in it"),
    (StopIteration, "something that the page asks for is missing in it"),
    (ArithmeticError, "a number in it is zero or too large"),
    (TypeError, "a value in it is missing or of another kind"),
    (AttributeError, "a value in it is missing or of another kind"),
)
"""Exceptions of Python, in the words of a reader; the first that fits is taken."""
PLAIN = (RecordingError, TraceError, UnknownName)
"""Exceptions whose text is all that a reader needs."""
LONGEST = 300


class Mismatch(RecordingError):
    """A device's recordings do not fit the book; the message is one sentence for a reader."""


NOT_SHOWN = (NotRecorded, NotTimed, Mismatch)
"""What `reading` raises where a device has no value to show."""


@contextmanager
def reading(device: Device, place: str = "") -> Iterator[Noted]:
    """Hand out the device to compute with; on another GPU than the default, any error becomes a `Mismatch`.

    The device notes what is read. `NotRecorded` and `NotTimed` pass, for they name the cure. So does `UnknownName`
    unless the default device is recorded, too: a mistake in code or page is found there, and a name may come from a
    recording.

    Args:
        device: the device whose recordings are read.
        place: the place in the book, for the notes of an error that ends the build.
    """
    watched = noted(device)
    try:
        yield watched
    except NOT_SHOWN:
        raise
    except Exception as error:
        if isinstance(error, UnknownName) and not (device.root / DEFAULT_DEVICE).is_dir():
            raise
        if device.is_default or device.is_sample:
            last = f"read last: {list(watched.runs)[-1]}" if watched.runs else ""
            error.add_note(f"  {', '.join(part for part in (place, f'on {device.name}', last) if part)}")
            raise
        raise Mismatch(_sentence(watched, error)) from error


def _sentence(device: Noted, error: Exception) -> str:
    """The mismatch, and its recording: the last one read."""
    names = list(device.runs)
    if not names:
        which = f"What is recorded for the {device.short_name}"
    elif len(names) == 1:
        which = f"The recording of {names[0]} on the {device.short_name}"
    else:
        which = f"One of {len(names)} recordings on the {device.short_name}, the last of them {names[-1]},"
    return f"{which} does not fit this part of the page: {_reason(error)}."


def _reason(error: Exception) -> str:
    said = _text(error)
    if isinstance(error, PLAIN):
        return said or "it is damaged"
    for kind, reason in REASONS:
        if isinstance(error, kind):
            return f"{reason} ({said})" if isinstance(error, LookupError) and said else reason
    return said or "it is not as expected"


def _text(error: Exception) -> str:
    """The text of an error in one line, without folders of this machine and a full stop; empty if it cannot be
    printed."""
    try:
        return shortened(" ".join(scrub(str(error)).split()).rstrip("."), LONGEST)
    except Exception:  # a message made of what is nested too deeply
        return ""
