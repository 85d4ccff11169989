"""Which page of the book shows what a rule finds: name of the rule -> page and section."""

from __future__ import annotations

PAGES: dict[str, str] = {}
"""`sync-in-step` -> `matmul_add/#item`."""
