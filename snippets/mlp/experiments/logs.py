"""The messages of a logger, collected."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


class _Lines(logging.Handler):
    """A log handler that keeps its messages."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one message."""
        self.lines.append(record.getMessage())


@contextmanager
def logged(name: str, level: int) -> Iterator[list[str]]:
    """Collect the messages of a logger and its children instead of printing
    them."""
    logger, keeper = logging.getLogger(name), _Lines()
    before, propagate, handlers = (
        logger.level,
        logger.propagate,
        logger.handlers,
    )
    logger.setLevel(level)
    logger.propagate, logger.handlers = False, [keeper]
    try:
        yield keeper.lines
    finally:
        logger.setLevel(before)
        logger.propagate, logger.handlers = propagate, handlers
