"""Shown code in a window of 360 px: a wrapped line continues right of its indentation, and copies are the code."""

from __future__ import annotations

from typing import Any

import pytest

from tests.site.conftest import Opened

PAGES = ("mlp", "training_step_faults", "decoder_faults", "contributing")
PLACES = """() => {
  const range = document.createRange();
  const boxOf = ([node, index]) => {
    range.setStart(node, index);
    range.setEnd(node, index + 1);
    return range.getBoundingClientRect();
  };
  const linesOf = (code) => {
    const walker = document.createTreeWalker(code, NodeFilter.SHOW_TEXT), lines = [[]];
    while (walker.nextNode()) {
      [...walker.currentNode.data].forEach((letter, index) => {
        if (letter === "\\n") lines.push([]);
        else lines.at(-1).push([walker.currentNode, index, letter]);
      });
    }
    return lines;
  };
  const placed = (line) => {
    const sign = line[0][0].parentElement.matches(".gd, .gi") ? 1 : 0;
    const letters = line.slice(sign).filter(([, , letter]) => letter.trim()).map(boxOf);
    const start = boxOf(line[0]), [first, ...others] = letters, rest = others.filter((box) => box.top > first.top + 5);
    const background = line[0][0].parentElement.getBoundingClientRect();
    return {
      text: line.map(([, , letter]) => letter).join(""),
      sign,
      inFirstRow: Math.abs(first.top - start.top) < 5,
      wraps: rest.length > 0,
      right: rest.length ? Math.min(...rest.map((box) => box.left)) - first.left : 0,
      covered: !sign || letters.every((box) => box.left >= background.left && box.bottom <= background.bottom + 1),
      asBlock: getComputedStyle(line[0][0].parentElement).display === "block",
    };
  };
  document.querySelectorAll("details").forEach((fold) => (fold.open = true));
  const codes = [...document.querySelectorAll(".highlight > pre > code")].filter((code) => code.checkVisibility());
  return codes.flatMap(linesOf).filter((line) => line.some(([, , letter]) => letter.trim())).map(placed);
}"""
"""Of each line of code that is not empty: its text, and where its letters are."""


@pytest.mark.parametrize("name", PAGES)
def test_a_wrapped_line_continues_right_of_its_indentation(opened: Opened, name: str) -> None:
    lines: list[dict[str, Any]] = opened(f"{name}/", width=360).page.evaluate(PLACES)
    wrapped = [line for line in lines if line["wraps"]]
    assert len(wrapped) > 10
    assert [line["text"] for line in lines if not line["inFirstRow"]] == []
    assert [line["text"] for line in wrapped if line["right"] < 5] == []


@pytest.mark.parametrize("name", ["training_step_faults", "decoder_faults"])
def test_a_wrapped_line_of_a_diff_keeps_its_background(opened: Opened, name: str) -> None:
    lines: list[dict[str, Any]] = opened(f"{name}/", width=360).page.evaluate(PLACES)
    signed = [line for line in lines if line["sign"]]
    assert {line["text"][0] for line in signed if line["wraps"]} == {"+", "-"}
    assert [line["text"] for line in signed if not (line["covered"] and line["asBlock"])] == []


def test_a_wide_window_shows_lines_as_before(opened: Opened) -> None:
    lines: list[dict[str, Any]] = opened("training_step_faults/", width=1280).page.evaluate(PLACES)
    assert [line["text"] for line in lines if line["sign"] and (line["wraps"] or line["asBlock"])] == []


@pytest.mark.parametrize("width", [360, 1280])
def test_a_copy_of_code_is_the_code(opened: Opened, width: int) -> None:
    """By the button, and by a selection."""
    page = opened("training_step_faults/", width=width).page
    blocks = page.locator(".highlight > pre > code").filter(has=page.locator("[style]"), visible=True)
    codes = blocks.all()
    assert len(codes) > 5
    for code in codes:
        code.scroll_into_view_if_needed()
        copied, selected, text = code.evaluate(
            """async (code) => {
              // the browser skips what is out of sight, and what it draws on the way moves the block
              for (let i = 0; i < 30 && !code.innerText; i++) {
                code.scrollIntoView({ block: "center", behavior: "instant" });
                await new Promise(requestAnimationFrame);
              }
              code.setAttribute("data-md-copying", "");
              const copied = code.innerText;
              code.removeAttribute("data-md-copying");
              getSelection().selectAllChildren(code);
              return [copied, getSelection().toString(), code.textContent];
            }"""
        )
        assert copied == text
        assert selected.rstrip("\n") == text.rstrip("\n")
