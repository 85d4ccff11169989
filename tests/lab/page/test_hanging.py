"""Long lines of shown code know the column at which a narrow screen continues them; the text stays as it is."""

from __future__ import annotations

import markdown
import pytest

from snippets.lab.page.hanging import LONGEST, with_hanging_lines
from tests.lab.samples import Markup

FITS = "x" * LONGEST


def shown(code: str) -> str:
    """The lines of a block, as it is on a page."""
    block = f'<div class="language-python highlight"><pre><code>{code}</code></pre></div>'
    start, end = block.split(code)
    marked = with_hanging_lines(block)
    assert marked.startswith(start)
    assert marked.endswith(end)
    return marked.removeprefix(start).removesuffix(end)


@pytest.mark.parametrize(
    ("line", "style"),
    [
        ("return loss(model, batch[:, :-1], batch)", "--hang:2"),
        ("    return loss(model, batch[:, :-1], batch)", "--hang:6"),
        (f"{FITS} y", "--hang:2"),
        (f"{FITS}y", "--hang:2;word-break:break-all"),
        (f"    {FITS[4:]} y", "--hang:6"),
        (f"    {FITS[3:]} y", "--hang:6;word-break:break-all"),
        ("a &lt; b and c &amp; d or e &gt; f and also", "--hang:2"),
        ('<span class="c1">    # a comment that is longer than this</span>', "--hang:6"),
    ],
)
def test_a_long_line_has_the_column_of_its_continuation(line: str, style: str) -> None:
    assert shown(f"short\n{line}\nshort") == f'short\n<span style="{style}">{line}\n</span>short'


@pytest.mark.parametrize("line", ["", FITS, f"{FITS}   ", f'<span class="k">{FITS}</span>', "&lt;" * LONGEST])
def test_a_line_that_fits_is_as_before(line: str) -> None:
    assert shown(f"{line}\n{line}") == f"{line}\n{line}"


@pytest.mark.parametrize(("sign", "kind"), [("+", "gi"), ("-", "gd")])
def test_a_long_line_of_a_diff_continues_right_of_its_sign(sign: str, kind: str) -> None:
    long = "    loss = next_token_loss(model, batch)"
    code = f'  context\n<span class="{kind}">{sign}short\n</span><span class="{kind}">{sign}{long}\n</span> {long}\n'
    assert shown(code) == (
        f'  context\n<span class="{kind}">{sign}short\n</span>'
        f'<span class="{kind}" style="--hang:7">{sign}{long}\n</span><span style="--hang:7"> {long}\n</span>'
    )


CODE = '''    def f(a):
        """A docstring of one line that is long.

        Its second paragraph, which is longer than the first.
        """
        return "a string that is longer", (a, a and a)'''


def test_code_has_the_same_text_as_without_marks() -> None:
    fence = f"```python\n{CODE}\n```"
    extensions = ["pymdownx.highlight", "pymdownx.superfences"]
    plain, marked = (
        markdown.markdown(fence, extensions=extensions + more) for more in ([], ["snippets.lab.page.last"])
    )
    assert "--hang" not in plain
    assert marked.count("--hang:10") == 3
    assert "<span></span>" not in marked
    assert Markup(marked).text == Markup(plain).text
