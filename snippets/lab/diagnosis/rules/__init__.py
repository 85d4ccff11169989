"""The rules, a file each; `RULES` has them in the order of their names."""

from __future__ import annotations

from snippets.lab.diagnosis.rule import Rule

RULES: tuple[Rule, ...] = ()
