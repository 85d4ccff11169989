"""Faults of several GPUs, before and after."""

from __future__ import annotations
