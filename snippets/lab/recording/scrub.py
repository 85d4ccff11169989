"""Remove a machine's host names and paths from recorded data."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

_ABSOLUTE_PATH = re.compile(
    r"(?:file://|(?<![\w./]))(?:/(?:home|Users)/[\w.+@%=-]+(?![\w.+@%=/-])|~?/(?:[\w.+@%=-]+/)+)"
)
"""Directories with their last slash; or a home directory alone, which contains a user name."""


def scrub(value: Any, hosts: tuple[str, ...] = ()) -> Any:
    """Remove directories from absolute paths and replace host names by `host`."""
    if isinstance(value, str):
        return _scrub_text(value, hosts)
    if isinstance(value, dict):
        return {scrub(key, hosts): scrub(item, hosts) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [scrub(item, hosts) for item in value]
    return value


@lru_cache(maxsize=4096)  # the texts of a trace repeat: without this, a trace of 9 MB took seconds
def _scrub_text(text: str, hosts: tuple[str, ...]) -> str:
    for host in hosts:
        text = re.sub(rf"(?<![\w-]){re.escape(host)}(?![\w-])", "host", text)
    return _ABSOLUTE_PATH.sub("", text)
