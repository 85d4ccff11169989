"""The cells of notebooks, run in this process."""

from __future__ import annotations

import pytest

from snippets.lab.notebooks.cells import CellFailed, execute_cells


def test_the_outputs_of_cells() -> None:
    sources = [
        "import math\nprint('a')\nprint('b')",
        "x = 1",
        "# nothing",
        "print(x)\nx + 1",
        "None",
        "math.floor(2.5)",
        "class Drawn:\n    __repr__ = lambda self: 'plain'\n    _repr_html_ = lambda self: '<p>'\nDrawn()",
    ]
    outputs = execute_cells(sources, "linear")
    assert outputs[0] == [{"output_type": "stream", "name": "stdout", "text": "a\nb\n"}]
    assert [outputs[1], outputs[2], outputs[4]] == [[], [], []]
    assert outputs[3][0]["text"] == "1\n"
    assert outputs[3][1]["data"] == outputs[5][0]["data"] == {"text/plain": "2"}
    assert outputs[3][1]["execution_count"] == 4
    assert outputs[6][0]["data"] == {"text/plain": "plain", "text/html": "<p>"}


@pytest.mark.parametrize("source", ["1 / 0", "raise SystemExit('1 / 0')", "1 /"])
def test_a_cell_that_fails_is_named_with_its_line(source: str) -> None:
    with pytest.raises(CellFailed, match=r"^linear, code cell 2: (ZeroDivision|SystemExit|Syntax)") as raised:
        execute_cells(["x = 1", f"x = 2\n{source}"], "linear")
    assert f"    {source}\n" in str(raised.value)
