"""A preview's report of a mistake: its place, and one short traceback."""

from __future__ import annotations

import logging
import traceback
from pathlib import Path

import pytest
from pymdownx.inlinehilite import InlineHiliteException

from snippets.lab.page.inline import fig_formatter
from snippets.lab.tools.preview_errors import FenceErrors, describe_error, shorten

BODY = 'from snippets.lab.page import provenance, show\nprint(show("mlp-{0}", provenance, "mlp"))'
FENCE = f'```python exec="on" html="on"\n{BODY}\n```\n'
PAGES = {"mlp.md": "# MLP\n\n" + "\n".join(FENCE.format(name) for name in ("a", "b", "c"))}
RAISED = """\
Traceback (most recent call last):
  File "/x/site-packages/markdown_exec/python.py", line 9, in run
    exec(code)
  File "<code block: n7>", line 2, in <module>
    print(show("mlp-a", provenance, "mlp"))
  File "/x/snippets/lab/page/frame.py", line 40, in show
    piece(device)
  File "/x/snippets/mlp/findings.py", line 12, in order
    return device["mlp/eagre"]
  File "/x/snippets/lab/experiment.py", line 30, in find
    raise UnknownName
snippets.lab.experiment.UnknownName: no experiment 'mlp/eagre'; did you mean mlp/eager?"""
SYNTAX = """\
Traceback (most recent call last):
  File "<frozen importlib._bootstrap>", line 241, in _call_with_frames_removed
  File "/x/snippets/mlp/findings.py", line 12
    def order(:
              ^
SyntaxError: invalid syntax"""


def logged(errors: FenceErrors, name: str, output: str) -> bool:
    """As markdown-exec logs an error of a fence."""
    code, shown = ("\n".join(f"  {line}" for line in text.splitlines()) for text in (BODY.format(name), output))
    text = f"Execution of python code block exited with errors\n\nCode block is:\n\n{code}\n\nOutput is:\n\n{shown}\n"
    return errors.filter(logging.LogRecord("mkdocs", logging.WARNING, "", 0, text, None, None))


def test_a_mistake_that_every_fence_meets_is_printed_once() -> None:
    errors = FenceErrors()
    assert not any(logged(errors, name, SYNTAX) for name in ("a", "b", "c"))
    assert errors.report(PAGES) == (
        "error in docs/mlp.md:3 and in 2 more fences\n"
        "Traceback (most recent call last):\n"
        '  File "/x/snippets/mlp/findings.py", line 12\n'
        "    def order(:\n"
        "              ^\n"
        "SyntaxError: invalid syntax"
    )


def test_the_place_below_an_error_is_not_its_cause() -> None:
    errors = FenceErrors()
    for name in ("a", "b"):
        logged(errors, name, f"{RAISED}\n  fence mlp-{name}, on nvidia-h200, read last: mlp/eager")
    assert {error.cause for error in errors.errors} == {RAISED.splitlines()[-1]}
    assert errors.report(PAGES).startswith("error in docs/mlp.md:3 and in 1 more fence\n")
    assert errors.report(PAGES).endswith("fence mlp-a, on nvidia-h200, read last: mlp/eager")


def test_of_two_mistakes_the_first_is_one_line() -> None:
    errors = FenceErrors()
    logged(errors, "b", RAISED)
    logged(errors, "c", SYNTAX)
    first, second, *rest = errors.report(PAGES).splitlines()
    assert first.startswith("error in docs/mlp.md:8: snippets.lab.experiment.UnknownName: no experiment 'mlp/eagre'")
    assert second == "error in docs/mlp.md:13"
    assert sum(line.startswith("Traceback") for line in rest) == 1


def test_other_messages_are_printed() -> None:
    errors = FenceErrors()
    record = logging.LogRecord("mkdocs", logging.WARNING, "", 0, "A page is not in nav", None, None)
    assert errors.filter(record) is True
    assert errors.report(PAGES) == ""


def test_a_traceback_keeps_the_calls_of_the_author_and_the_last_one() -> None:
    assert shorten(RAISED) == (
        "Traceback (most recent call last):\n"
        '  File "<code block: n7>", line 2, in <module>\n'
        '    print(show("mlp-a", provenance, "mlp"))\n'
        '  File "/x/snippets/mlp/findings.py", line 12, in order\n'
        '    return device["mlp/eagre"]\n'
        '  File "/x/snippets/lab/experiment.py", line 30, in find\n'
        "    raise UnknownName\n"
        "snippets.lab.experiment.UnknownName: no experiment 'mlp/eagre'; did you mean mlp/eager?"
    )


def test_a_mistake_in_the_tools_keeps_its_last_calls() -> None:
    calls = "".join(f'  File "/x/snippets/lab/page/frame.py", line {line}, in f\n    f()\n' for line in range(9))
    short = shorten(f"Traceback (most recent call last):\n{calls}ValueError: no\nof two lines")
    assert [line for line in short.splitlines() if "line" in line and "File" in line] == [
        f'  File "/x/snippets/lab/page/frame.py", line {line}, in f' for line in (6, 7, 8)
    ]
    assert short.endswith("ValueError: no\nof two lines")


def test_text_other_than_a_traceback_stays() -> None:
    assert shorten("error: no tests/chapters/x/samples.py") == "error: no tests/chapters/x/samples.py"


def test_an_inline_figure_is_named_by_page_and_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = {"mlp.md": "# MLP\n\nIt takes `#!fig mlp.nonsense`.\n"}
    monkeypatch.setenv("RECORDINGS", str(tmp_path))
    with pytest.raises(InlineHiliteException) as raised:
        fig_formatter("mlp.nonsense", "", "", None)
    first, *rest = describe_error(raised.value, page).splitlines()
    assert first == "error in docs/mlp.md:3"
    assert rest[-1].startswith("snippets.lab.experiment.errors.UnknownName: no figure 'mlp.nonsense'; did you mean ")
    assert len(traceback.format_exception(raised.value)) > len(rest)
