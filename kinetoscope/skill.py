"""The command `skill`: print SKILL.md, which tells an agent which command to use when, and how to read its JSON."""

from __future__ import annotations

import argparse
from importlib.resources import files

DESCRIPTION = """\
Print SKILL.md: which command an agent uses when, how it reads findings, and what it never concludes. Agents that know
skills read it from a folder of theirs.

  %(prog)s
  mkdir -p .claude/skills/kinetoscope && %(prog)s > .claude/skills/kinetoscope/SKILL.md
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `skill`: it has none."""


def command(arguments: argparse.Namespace) -> int:
    """Print the skill."""
    print(skill_text(), end="")
    return 0


def skill_text() -> str:
    """The text of SKILL.md."""
    return files("kinetoscope").joinpath("SKILL.md").read_text(encoding="utf-8")
