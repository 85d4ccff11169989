"""Lines over sizes: what is written, and what cannot be drawn."""

from __future__ import annotations

from pathlib import Path

import pytest

from snippets.lab.charts.line_charts import Line, line_chart
from snippets.lab.finding.device import Device
from snippets.lab.finding.figure import Figure
from tests.lab.charts.drawings import description, texts
from tests.lab.samples import cells

ANY = Device(Path("nowhere"), "nvidia-sample")
LINES: dict[str, Line] = {
    "two": {4: Figure(1e9, "bytes/s"), 16: Figure(30e9, "bytes/s", (29e9, 32e9)), 64: Figure(41e9, "bytes/s")},
    "four": {16: Figure(20e9, "bytes/s"), 64: Figure(44e9, "bytes/s")},
}


COPY = Figure(45e9, "bytes/s")


def chart(lines: dict[str, Line] = LINES, limit: Figure = COPY) -> str:
    return line_chart(
        ANY, lines, "Rates", axis="bytes", size_text=lambda size: f"{size:g} KiB", limits={"a copy": limit}
    )


def test_each_size_has_a_row_and_each_limit_a_line() -> None:
    content = chart()
    assert cells(content) == [
        ["bytes", "two", "four"],
        ["4 KiB", "1.00 GB/s", "–"],
        ["16 KiB", "30.0 GB/s29.0 to 32.0 GB/s", "20.0 GB/s"],
        ["64 KiB", "41.0 GB/s", "44.0 GB/s"],
        ["a copy", "45.0 GB/s", "–"],
    ]
    assert description(content) == (
        "two at 4 KiB 1.00 GB/s; two at 16 KiB 30.0 GB/s; two at 64 KiB 41.0 GB/s; "
        "four at 16 KiB 20.0 GB/s; four at 64 KiB 44.0 GB/s; a copy 45.0 GB/s."
    )
    written = texts(content)
    assert [text for text in written if text.endswith("GB/s") or text == "0"][-6:] == [
        "0",
        *(f"{10 * step} GB/s" for step in range(1, 6)),
    ]
    assert {"two", "four", "a copy: 45.0 GB/s", "64 KiB", "bytes"} <= set(written)


@pytest.mark.parametrize(
    ("lines", "limit", "message"),
    [
        ({}, 1.0, "0 lines; draw one to 4"),
        ({"one": {4: Figure(1.0, "x")}}, 1.0, r"one has the sizes \[4\], not two or more above zero"),
        ({"one": {4: Figure(1.0, "us"), 8: Figure(2.0, "us")}}, 1.0, "amounts in us and x have no common scale"),
        ({"one": {4: Figure(0.0, "x"), 8: Figure(2.0, "x")}}, 1.0, "must be above zero: {'one at 4 KiB': 0.0}"),
    ],
)
def test_what_cannot_be_drawn(lines: dict[str, Line], limit: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        chart(lines, Figure(limit, "x"))
