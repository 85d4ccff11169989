"""Where the pages of the book are: an option, a variable, the package's metadata, or nowhere."""

from __future__ import annotations

import json
from collections.abc import Callable
from email.message import Message
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from kinetoscope.__main__ import main
from kinetoscope.report import site
from kinetoscope.report.site import VARIABLE, default_site
from tests.tool.report.samples import write


def metadata(*addresses: str) -> Callable[[str], Message]:
    message = Message()
    for address in addresses:
        message["Project-URL"] = address
    return lambda _: message


def no_metadata(name: str) -> Message:
    raise PackageNotFoundError(name)


@pytest.mark.parametrize(
    ("variable", "package", "expected"),
    [
        ("https://a.org/", metadata("Documentation, https://b.org"), "https://a.org/"),
        ("", metadata("Documentation, https://b.org"), ""),
        (None, metadata("Source, https://c.org", "Documentation, https://b.org"), "https://b.org"),
        (None, metadata(), ""),
        (None, no_metadata, ""),
    ],
)
def test_where_the_address_comes_from(
    monkeypatch: pytest.MonkeyPatch, variable: str | None, package: Callable[[str], Message], expected: str
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    if variable is not None:
        monkeypatch.setenv(VARIABLE, variable)
    monkeypatch.setattr(site, "metadata", package)
    assert default_site() == expected


def test_an_address_is_checked_wherever_it_comes_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = str(write(tmp_path))
    assert main(["report", trace, "--json", "--site", "https://a.org/book"]) == 0
    assert json.loads(capsys.readouterr().out)["site"] == "https://a.org/book/"
    monkeypatch.setenv(VARIABLE, "javascript:alert(1)")
    with pytest.raises(SystemExit) as ended:
        main(["report", trace, "--json"])
    assert ended.value.code == 2
    assert "argument --site: must begin with https:// or http://" in capsys.readouterr().err
