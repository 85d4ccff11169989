"""Report on a terminal how far the reading of a large file is."""

from __future__ import annotations

import os
import sys
import time

from kinetoscope.trace.text import printable

QUIET_SECONDS = 2
_INTERVAL_SECONDS = 0.2


class Progress:
    """Reports to stderr, if that is a terminal and reading takes longer than about 2 s. Clears its line at the end."""

    def __init__(self, where: str) -> None:
        self._name = printable(os.path.basename(where))[:60]
        self._next = time.monotonic() + QUIET_SECONDS
        self._is_shown = False
        self._enabled = sys.stderr is not None and sys.stderr.isatty()

    def report(self, done: int, total: int) -> None:
        """Report `done` of `total` bytes read; `total` is 0 if unknown, as for a pipe."""
        if self._enabled and time.monotonic() >= self._next:
            amount = f"{min(100, 100 * done // total)} %" if total else f"{done / 1e6:,.0f} MB"
            self._show(f"reading {self._name}: {amount}")

    def linking(self) -> None:
        """Report that all events are read."""
        if self._enabled and self._is_shown:
            self._show(f"reading {self._name}: linking events")

    def close(self) -> None:
        """Clear the line."""
        if self._is_shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def _show(self, text: str) -> None:
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()
        self._is_shown, self._next = True, time.monotonic() + _INTERVAL_SECONDS
