"""Make JSON of an event that a decoder refuses."""

from __future__ import annotations

import json
import math
import re
from contextlib import suppress

_NO_NUMBER = re.compile(rb"(?<=[:,\[])\s*-?(?:nan|inf(?:inity)?)(?=\s*[,}\]])", re.IGNORECASE)


def repaired(text: bytes) -> bytes | None:
    """The event as JSON despite NaN, 1e999, lone surrogates, control characters, or bytes that are not UTF-8."""
    for candidate in (text, _NO_NUMBER.sub(b"null", text)):
        with suppress(ValueError, RecursionError):
            event = json.loads(
                candidate.decode("utf-8", "replace"), strict=False, parse_float=_finite, parse_constant=lambda _: None
            )
            written = json.dumps(event, ensure_ascii=False)
            return written.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()
    return None


def _finite(text: str) -> float | None:
    number = float(text)
    return number if math.isfinite(number) else None
