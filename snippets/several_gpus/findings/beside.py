"""A matrix product beside a transfer."""

from __future__ import annotations
