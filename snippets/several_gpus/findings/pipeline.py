"""A pipeline of stages."""

from __future__ import annotations
