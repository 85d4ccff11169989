"""Shown code is on a page and not in the index of its search; popovers of kernel names have ids of their own."""

from __future__ import annotations

import hashlib
from html.parser import HTMLParser

import markdown

from kinetoscope.report.rank_drawing import PATTERNS
from snippets.lab.page.kernel_name import kernel_name_html
from tests.lab.page.test_kernel_name import GELU, NVJET
from tests.lab.samples import EVIL, Markup

EXTENSIONS = ["snippets.lab.page.last"]

SHOWN = """
Prose about `tl.dot`.

```python
def kernel():
    pass
```

```sh
make docs
```

!!! note

    ```python
    inside = True
    ```
"""


class Searched(HTMLParser):
    """The text outside elements that Material's search leaves out."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.text = ""
        self.depths: list[bool] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("br", "hr", "img"):
            self.depths.append("data-search-exclude" in dict(attrs))

    def handle_endtag(self, tag: str) -> None:
        self.depths.pop()

    def handle_data(self, data: str) -> None:
        self.text += data * (not any(self.depths))


def test_python_is_shown_and_not_searched() -> None:
    extensions = ["admonition", "pymdownx.highlight", "pymdownx.superfences", "snippets.lab.page.last"]
    options = {"pymdownx.highlight": {"pygments_lang_class": True}}
    html = markdown.markdown(SHOWN, extensions=extensions, extension_configs=options)
    assert "kernel" in html
    assert "inside" in html
    words = Searched(html).text.split()
    assert words == ["Prose", "about", "tl.dot.", "make", "docs", "Note"]


def test_names_and_signs_of_shown_code_have_no_mark() -> None:
    extensions = ["pymdownx.highlight", "pymdownx.superfences", "snippets.lab.page.last"]
    html = markdown.markdown("```python\nx = f(1)  # one\n```", extensions=extensions)
    assert '<code>x = f(<span class="mi">1</span>)  <span class="c1"># one</span>' in html


GUESSED = """
??? question "Guess: how many?"

    <div class="guess" data-device="a" data-veils="p-b p-c"><p>Measured: five.</p></div>

    A reason.

<div class="lab" data-fence="p-a"><p>first</p></div>

<div class="lab" data-fence="p-b"><p>second</p></div>

<div class="lab" data-fence="p-c"><p>third</p></div>

??? note "More"

    Text.
"""


def test_a_search_does_not_tell_what_the_page_asks() -> None:
    html = markdown.markdown(GUESSED, extensions=["pymdownx.details", "snippets.lab.page.last"])
    assert Searched(html).text.split() == ["first", "More", "Text."]
    assert html.count('data-veiled data-search-exclude="yes"><p>') == 2
    assert Markup(html).text.split()[-6:] == ["reason.", "first", "second", "third", "More", "Text."]


def test_the_last_line_of_a_section_is_marked() -> None:
    html = markdown.markdown("**In your trace:** look.\n\nIn **your trace:** no.", extensions=EXTENSIONS)
    assert html == (
        '<p class="in-your-trace"><strong>In your trace:</strong> look.</p>\n<p>In <strong>your trace:</strong> no.</p>'
    )


def test_the_link_of_a_heading_is_no_stop_of_the_tab_key() -> None:
    options = {"toc": {"permalink": True}}
    html = markdown.markdown("## Why?", extensions=["toc", *EXTENSIONS], extension_configs=options)
    assert '<a class="headerlink" tabindex="-1" href="#why"' in html


def test_a_term_is_explained_once_in_a_section() -> None:
    text = "Of a GEMM, GEMM and warp.\n\nA GEMM.\n\n## Next\n\nA GEMM.\n\n*[GEMM]: a product\n*[warp]: 32 threads"
    seen = Markup(markdown.markdown(text, extensions=["abbr", *EXTENSIONS]))
    assert seen.titles == ["a product", "32 threads", "a product"]
    assert seen.text.count("GEMM") == 4


def rendered(*names: str) -> str:
    return markdown.markdown("\n\n".join(kernel_name_html(name) for name in names), extensions=EXTENSIONS)


def test_the_popovers_of_a_page_are_numbered() -> None:
    seen = Markup(rendered(NVJET, GELU, NVJET, *EVIL, NVJET))
    ids = [value or "" for name, value in seen.attributes if name == "id"]
    opened = [value for name, value in seen.attributes if name == "popovertarget"]
    assert ids == opened
    assert len(set(ids)) == len(ids) == 4 + len(EVIL)
    nvjet = f"kernel-{hashlib.sha256(NVJET.encode()).hexdigest()[:8]}"
    assert [ids[index] for index in (0, 2, -1)] == [f"{nvjet}-{number}" for number in (1, 2, 3)]
    assert [ident.rpartition("-")[2] for ident in ids] == ["1", "1", "2", *["1"] * len(EVIL), "3"]


def test_each_page_is_numbered_from_one_and_alike_at_every_build() -> None:
    assert rendered(NVJET, GELU, NVJET) == rendered(NVJET, GELU, NVJET)


def test_what_only_looks_like_a_popover_stays() -> None:
    text = '<p id="kernel-01234567"><a href="#kernel-01234567">popovertarget="kernel-01234567"</a></p>'
    assert markdown.markdown(text, extensions=EXTENSIONS) == text


def test_the_patterns_of_ranks_stand_once_where_they_are_used() -> None:
    figure = '<figure class="ranks"><svg></svg></figure>'
    shown = markdown.markdown(f"# Ranks\n\n{figure}\n\n{figure}\n", extensions=EXTENSIONS)
    assert shown.startswith(PATTERNS)
    assert shown.count(PATTERNS) == 1
    assert PATTERNS not in markdown.markdown("# Ranks\n\nNone.\n", extensions=EXTENSIONS)
