"""The ladder of data parallel."""

from __future__ import annotations
