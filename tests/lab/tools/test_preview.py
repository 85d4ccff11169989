"""A preview's work after a build, the same as in `make docs`, and what it keeps from one build to the next."""

from __future__ import annotations

from pathlib import Path

import pytest
from jinja2 import DictLoader, Environment

from snippets.lab.tools.finish import publish_all
from snippets.lab.tools.preview import Templates
from tests.lab.samples import BOOK


def test_the_sheet_that_the_home_page_links_to_is_there(tmp_path: Path) -> None:
    publish_all(tmp_path, BOOK.root)
    assert (tmp_path / "what_do_you_see.svg").read_text(encoding="utf-8").startswith("<svg")


def test_a_template_is_compiled_again_only_if_it_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    templates, compiled, compile_template = Templates(), list[str](), Environment.compile

    def counted(self: Environment, source: str, *args: str) -> object:
        compiled.append(source)
        return compile_template(self, source, *args)

    monkeypatch.setattr(Environment, "compile", counted)
    for text, shown in (("{{ x }}", "1"), ("{{ x }}", "1"), ("{{ x + 1 }}", "2"), ("{{ x }}", "1")):
        env = templates.used_by(Environment(loader=DictLoader({"page": text})))
        assert env.get_template("page").render(x=1) == shown
    assert compiled == ["{{ x }}", "{{ x + 1 }}"]
