"""Report on a terminal how far the work on a large file is."""

from __future__ import annotations

import os
import sys
import time
from types import TracebackType

from kinetoscope.trace.text import printable

QUIET_SECONDS = 0.5
_INTERVAL_SECONDS = 0.2


class Progress:
    """Reports to stderr, if that is a terminal and reading takes longer than half a second. Clears its line at the end.

    A context manager.
    """

    def __init__(self, where: str, work: str = "reading") -> None:
        self._work = work
        self._name = printable(os.path.basename(where))[:60]
        self._next = time.monotonic() + QUIET_SECONDS
        self._is_shown = False
        self._enabled = sys.stderr is not None and sys.stderr.isatty()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._is_shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def read(self, done: int, total: int) -> None:
        """Report `done` of `total` bytes read; `total` is 0 if unknown, as for a pipe."""
        if self._enabled and time.monotonic() >= self._next:
            amount = f"{min(100, 100 * done // total)} %" if total else f"{done / 1e6:,.0f} MB"
            self._show(f"{self._work} {self._name}: {amount}")

    def stage(self, text: str, done: int = 0, total: int = 0) -> None:
        """Report a stage after reading, and `done` of its `total` parts; nothing if reading was fast."""
        if self._is_shown:
            self._show(f"{text} {self._name}" + (f": {100 * done // total} %" if total else ""))

    def _show(self, text: str) -> None:
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()
        self._is_shown, self._next = True, time.monotonic() + _INTERVAL_SECONDS
