"""Traces of others, which lie beside the checkout and are read in place, and the project's own recordings."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

PROJECT = Path(__file__).resolve().parents[3]
PUBLIC = PROJECT.parent / "shared" / "traces" / "public"
CASES = PROJECT.parent / "shared" / "traces" / "cases"
PUBLIC_TRACES = sorted(PUBLIC.glob("*.json.gz"))
RECORDINGS = sorted(PROJECT.glob("docs/recordings/*/*/*.trace.json.gz"))
needs_public_traces = pytest.mark.skipif(not PUBLIC_TRACES, reason="no public traces in ../shared/traces/public")
needs_cases = pytest.mark.skipif(not CASES.is_dir(), reason="no cases in ../shared/traces/cases")


def public(name: str) -> Path:
    """The public trace whose name begins so."""
    return next(path for path in PUBLIC_TRACES if path.name.startswith(name))


def content(path: Path) -> Any:
    packed = gzip.decompress(path.read_bytes())
    try:
        return msgspec.json.decode(packed)
    except msgspec.DecodeError:  # stricter than the standard library, and four times as fast
        return json.loads(packed.decode("utf-8", "replace"), strict=False)
