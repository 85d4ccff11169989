"""How wide a table is: its class follows from what its cells show, and the style sheet knows every class."""

from __future__ import annotations

import re

import pytest

from kinetoscope.cells import CONTENT_REM, FRAMES_REM, Html, frame_class, is_wordy, plain_text
from kinetoscope.html import table
from tests.tool.recorded import PROJECT

STYLE = (PROJECT / "docs/assets/css/frames.css").read_text(encoding="utf-8")


def test_the_style_sheet_knows_every_frame() -> None:
    listed = re.findall(r"@container \(width < (\d+)rem\) \{ \.md-typeset \.lab-table\.needs-(\d+) ", STYLE)
    assert [int(frame) for _, frame in listed] == list(FRAMES_REM)
    for limit, frame in listed:
        # Beyond the widest frame of a page a table scrolls, but not on a phone.
        assert int(limit) == (int(frame) if int(frame) <= 46 else 46 if int(frame) <= 64 else CONTENT_REM)


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ([["a", "b"], ["n", "12.3 µs"], ["m", 7]], ""),
        ([["", "eager"], *[["time", "12.3 µs"]] * 5], " needs-22"),  # 2.75 + 5 x 3.47
        ([["", "eager"], *[["time", "123 to 124 µs"]] * 6], " needs-38 wide"),
        ([["", "eager"], *[["time", "123 to 124 µs"]] * 40], " needs-80 wide"),
        ([["", "x" * 300], ["time", "x" * 300]], ""),
    ],
)
def test_a_frame_is_as_wide_as_the_columns(columns: list[list[str]], expected: str) -> None:
    assert frame_class(columns, 1) == expected


def test_what_is_folded_or_pops_up_takes_no_room() -> None:
    cell = Html(
        'a<span popover id="x"><code>raw</code> <span>facts</span></span><details>more</details><small>b</small>c'
    )
    assert plain_text(cell) == "a\nb\nc"


def test_text_among_numbers_wraps() -> None:
    assert not is_wordy("512 elements for 256 threads")
    assert is_wordy(Html("12 µs<small>1024 elements, 4 warps: 952 µs; 512</small>"))


def test_a_cell_of_a_wide_table_tells_its_heading() -> None:
    wide = table("c", ["", Html("a &lt; <b>b</b>"), "n"], [["x", "y" * 25, "z" * 25]])
    assert '<td>x</td>\n<td class="number" data-head="a &lt; b">' in wide
    assert "data-head" not in table("c", ["", "a", "n"], [["x", 1, 2]])


def test_a_column_in_the_fold_of_its_row() -> None:
    shown = table("c", ["x", "n", "call"], [["a", 1, Html("<code>f</code>")], ["b", 2, None]], folded=["call"])
    fold = (
        '<details class="row-fold"><summary>more of it</summary><dl><dt>call</dt><dd><code>f</code></dd></dl></details>'
    )
    assert f'<td>a{fold}</td>\n<td class="number">1</td></tr><tr><td>b</td>\n<td class="number">2</td></tr>' in shown
    assert '<th scope="col">x</th>\n<th scope="col" class="number">n</th></tr>' in shown
