"""Report on a terminal how far the work on a large file is, and what was done; nothing if asked to be quiet."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType

from kinetoscope.trace.text import printable

QUIET_SECONDS = 0.5
_INTERVAL_SECONDS = 0.2
_is_quiet: ContextVar[bool] = ContextVar("_is_quiet", default=False)


@contextmanager
def quiet(is_quiet: bool = True) -> Iterator[None]:
    """No progress and no notices inside."""
    before = _is_quiet.set(is_quiet)
    try:
        yield
    finally:
        _is_quiet.reset(before)


def notice(text: str) -> None:
    """Print a line about what was done, such as the name of a written file."""
    if not _is_quiet.get():
        print(printable(text))


class Progress:
    """Reports to stderr, if that is a terminal and reading takes longer than half a second. Clears its line at the end.

    A context manager.
    """

    def __init__(self, where: str, work: str = "reading") -> None:
        self._work = work
        self._name = printable(os.path.basename(where))[:60]
        self._next = time.monotonic() + QUIET_SECONDS
        self._columns = 0
        """Of the line that is shown."""
        self._enabled = not _is_quiet.get() and sys.stderr is not None and sys.stderr.isatty()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._columns:
            self._write("")

    def read(self, done: int, total: int) -> None:
        """Report `done` of `total` bytes read; `total` is 0 if unknown, as for a pipe."""
        if self._enabled and time.monotonic() >= self._next:
            amount = f"{min(100, 100 * done // total)} %" if total else f"{done / 1e6:,.0f} MB"
            self._show(f"{self._work} {self._name}: {amount}")

    def stage(self, text: str, done: int = 0, total: int = 0) -> None:
        """Report a stage after reading, and `done` of its `total` parts; nothing if reading was fast."""
        if self._columns:
            self._show(f"{text} {self._name}" + (f": {100 * done // total} %" if total else ""))

    def _show(self, text: str) -> None:
        self._write(text)
        self._next = time.monotonic() + _INTERVAL_SECONDS

    def _write(self, text: str) -> None:
        """Replace the line that is shown. Spaces clear it, because a console of Windows may print escape sequences."""
        sys.stderr.write(f"\r{text:{self._columns}}" + ("" if text else "\r"))
        sys.stderr.flush()
        self._columns = len(text)
