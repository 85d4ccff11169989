"""The skill for agents: short, with the front matter of a skill, and it names what exists."""

from __future__ import annotations

import re

import pytest

from kinetoscope.__main__ import COMMANDS, main
from kinetoscope.exit_codes import EXIT_CODES
from kinetoscope.program import Program
from kinetoscope.schema import DOCUMENTS, field_texts, types_of
from kinetoscope.skill import skill_text
from kinetoscope.trace.errors import TraceError

SKILL = skill_text()


def test_it_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["skill"]) == 0
    assert capsys.readouterr().out == SKILL


def test_its_size_and_its_front_matter() -> None:
    assert len(SKILL.splitlines()) < 150
    matter = re.match(r"---\nname: ([a-z-]{1,64})\ndescription: (.{1,1024})\n---\n", SKILL)
    assert matter is not None
    assert matter[1] == "kinetoscope"


def test_its_commands_and_options_exist() -> None:
    lines = re.findall(r"`kinetoscope ([a-z]+)([^`]*)`", SKILL)
    assert {name for name, _ in lines} == {*COMMANDS} - {"skill"}
    for name, rest in lines:
        parser = Program("kinetoscope", "", COMMANDS, "", lambda error: 2 if isinstance(error, TraceError) else None)
        text = parser.build_parser(name)._subparsers._group_actions[0].choices[name].format_help()  # type: ignore[union-attr, index]
        assert [option for option in re.findall(r"--[a-z-]+", rest) if option not in text] == []


def test_its_keys_exist() -> None:
    """Every word in backticks that looks like a key is one of a document."""
    known = {key for documents in DOCUMENTS.values() for each in types_of(*documents) for key in _keys(each)}
    words = {part for each in re.findall(r"`([a-z_]+(?:\.[a-z_]+)?)`", SKILL) for part in each.split(".")}
    assert (
        words - known == {"kinetoscope", "comparison", "diff", "doctor", "ranks", "summary", "schema"} & words - known
    )
    assert {"is_whole", "headline", "findings", "cannot_tell", "truncated", "wait_us_per_step"} <= words


def _keys(of: type) -> set[str]:
    return {*field_texts(of), *getattr(of, "__annotations__", {}), "kind"}


def test_its_exit_codes_are_those_of_the_commands() -> None:
    assert [int(code) for code in re.findall(r"^\| (\d+) \|", SKILL, re.MULTILINE)] == [*EXIT_CODES]
