"""A jump to a heading of a page with wide figures: the heading is in sight, and nothing wide lies over the contents."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.site.conftest import Opened
from tests.site.looking import box_of

ANCHORS = ("item-in-every-step", "a-loader-that-stalls", "pageable-copies", "recompilation", "on-your-machine")
IS_COVERED = """(contents) => {
  const { left, right, top, bottom } = contents.querySelector(".md-nav").getBoundingClientRect();
  for (let y = Math.max(0, top) + 1; y < Math.min(innerHeight, bottom); y += 4) {
    for (let x = left + 1; x < right; x += 20) {
      if (document.elementsFromPoint(x, y).some((element) => element.closest(".lab"))) return true;
    }
  }
  return false;
}"""
"""Whether a figure or table lies where the contents are."""
SETTLED = f"""() => {{
  const contents = document.querySelector(".md-sidebar--secondary");
  return getComputedStyle(contents).opacity === (({IS_COVERED})(contents) ? "0" : "1");
}}"""


@pytest.mark.parametrize("anchor", ANCHORS)
def test_a_jump_to_a_heading(opened: Opened, anchor: str) -> None:
    page = opened("training_step_faults/").page
    page.locator(f'.md-sidebar--secondary a[href="#{anchor}"]').evaluate("(link) => link.click()")
    heading = page.locator(f"h2#{anchor}")
    expect(heading).to_be_in_viewport(ratio=1)
    header = box_of(page.locator(".md-header"))
    assert box_of(heading)["y"] >= header["y"] + header["height"]
    page.wait_for_function(SETTLED)
