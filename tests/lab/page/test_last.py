"""Shown code is on a page and not in the index of its search."""

from __future__ import annotations

from html.parser import HTMLParser

import markdown

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
    extensions = ["admonition", "pymdownx.highlight", "pymdownx.superfences", "snippets.lab.unsearched"]
    options = {"pymdownx.highlight": {"pygments_lang_class": True}}
    html = markdown.markdown(SHOWN, extensions=extensions, extension_configs=options)
    assert "kernel" in html
    assert "inside" in html
    words = Searched(html).text.split()
    assert words == ["Prose", "about", "tl.dot.", "make", "docs", "Note"]
