"""The table of a page's functions is generated from the code."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import snippets.lab.page as page_room
from snippets.lab.finding.device import Device
from snippets.lab.page import finding_functions, page_functions
from tests.lab.samples import Markup


def rows(tmp_path: Path) -> list[list[str]]:
    content = page_functions(Device(tmp_path, "nvidia-h200"))
    return [[Markup(cell).text for cell in re.findall(r"<td.*?</td>", row)] for row in content.split("<tr>")[2:]]


def test_every_function_of_the_room_is_listed_once(tmp_path: Path) -> None:
    functions = [name for name, offered in vars(page_room).items() if inspect.isfunction(offered)]
    assert sorted(row[0] for row in rows(tmp_path)) == sorted(functions)


def test_arguments_are_written_as_a_fence_gives_them(tmp_path: Path) -> None:
    arguments = {name: arguments for name, arguments, _ in rows(tmp_path)}
    assert arguments["kernel_table"] == "experiment, caption='', *, work=None"
    assert arguments["verdicts"] == "*claim_ids"
    assert arguments["guess_choice"] == "figure_or_claim, *options, veils=()"
    assert arguments["ledger_list"] == "none"
    assert arguments["show"] == "fence, piece, *args, **options"


def test_no_argument_is_an_address(tmp_path: Path) -> None:
    """Of a function, a default would show where it lies in memory, elsewhere in each build."""
    for listed in (page_functions, finding_functions):
        assert " at 0x" not in listed(Device(tmp_path, "nvidia-h200"))


def test_every_function_is_described_by_a_sentence(tmp_path: Path) -> None:
    assert [name for name, _, text in rows(tmp_path) if len(text) < 20 or not text.endswith(".")] == []


def test_what_findings_can_call_is_listed_with_its_arguments(tmp_path: Path) -> None:
    content = finding_functions(Device(tmp_path, "nvidia-h200"))
    text = Markup(content).text
    for words in ("paired_ratio", "upper, lower, kind='interleaved'", "between", "low, high", "share_of_ceiling"):
        assert words in text, words
    assert "Figure(" not in text, "classes are not called"
