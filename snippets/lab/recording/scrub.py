"""Host names and paths of a machine, cut out of what is recorded."""

from __future__ import annotations

import re
from typing import Any

_ABSOLUTE_PATH = re.compile(
    r"(?:file://|(?<![\w./]))(?:/(?:home|Users)/[\w.+@%=-]+(?![\w.+@%=/-])|~?/(?:[\w.+@%=-]+/)+)"
)
"""Directories with their last slash; a home by itself, which is named after its owner."""


def scrub(value: Any, hosts: tuple[str, ...] = ()) -> Any:
    """Data without the machine's privacy: directories cut from absolute paths, host names replaced by `host`."""
    if isinstance(value, str):
        for host in hosts:
            value = re.sub(rf"(?<![\w-]){re.escape(host)}(?![\w-])", "host", value)
        return _ABSOLUTE_PATH.sub("", value)
    if isinstance(value, dict):
        return {scrub(key, hosts): scrub(item, hosts) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [scrub(item, hosts) for item in value]
    return value
