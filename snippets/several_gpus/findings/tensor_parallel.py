"""Tensor parallel layers."""

from __future__ import annotations
