"""Sharded weights: FSDP2."""

from __future__ import annotations
