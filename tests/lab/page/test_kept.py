"""HTML is kept from one build to the next, and made again after any change of what pages show."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import markdown
import pytest
from markdown_exec import validator

from snippets.lab import cache
from snippets.lab.page import inline, kept
from snippets.lab.page.fences import run_fence
from snippets.lab.page.frame import FRAME

FILES = {
    "snippets/mlp/findings.py": "A = 1",
    "snippets/mlp/tuned.json": "{}",
    "kinetoscope/trace/kineto.py": "B = 1",
    "mkdocs.yml": "nav:",
    "docs/assets/terms.txt": "terms",
    "docs/labs/mlp.ipynb": "{}",
    "docs/recordings/nvidia-x/mlp/eager.json": "{}",
    "docs/recordings/nvidia-x/mlp/eager.trace.json.gz": "trace",
    "docs/recordings/nvidia-x/accepted.json": "{}",
    "docs/mlp.md": "---\ndescription: An MLP.\n---\n# MLP\n\nProse.\n",
    "docs/assets/css/book.css": "a {}",
}


@pytest.fixture
def project(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A project of a few files, whose code this process is said to run."""
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.setattr(cache, "PROJECT", tmp_path)
    monkeypatch.setattr(kept, "PROJECT", tmp_path)
    monkeypatch.delenv("RECORDINGS", raising=False)
    kept.imported_again()
    yield tmp_path
    monkeypatch.undo()
    kept.imported_again()


def next_process(project: Path, make: Callable[[], str] = lambda: "again") -> str:
    """What another process, which imports the code as it is now, shows for the same name."""
    kept.stop()
    kept.imported_again()
    kept.look(project / "docs/recordings")
    text = kept.kept(("fence", "x"), make)
    kept.keep()
    return text


def test_a_text_is_made_once(project: Path) -> None:
    assert [next_process(project, lambda: "first"), next_process(project)] == ["first", "first"]


@pytest.mark.parametrize("name", [name for name in FILES if not name.endswith((".md", ".css"))])
@pytest.mark.parametrize("change", ["changed", "touched", "renamed", "deleted", "beside"])
def test_a_change_of_code_recordings_labs_or_terms_is_seen(project: Path, name: str, change: str) -> None:
    """By content: what has only a new time stamp, as in a fresh clone, is the same."""
    next_process(project, lambda: "first")
    path = project / name
    if change == "changed":
        path.write_text(path.read_text()[::-1] + " ")
    elif change == "touched":
        path.write_text(path.read_text())
        os.utime(path, (1, 1))
    elif change == "renamed":
        path.rename(path.with_name(f"other_{path.name}"))
    elif change == "deleted":
        path.unlink()
    else:
        path.with_name(f"new_{path.name}").write_text("")
    outside = change == "beside" and name in kept.OTHERS
    assert next_process(project) == ("first" if change == "touched" or outside else "again")


def test_a_change_of_the_same_length_is_seen(project: Path) -> None:
    next_process(project, lambda: "first")
    (project / "snippets/mlp/findings.py").write_text("A = 2")
    assert next_process(project) == "again"


@pytest.mark.parametrize("variable", kept.VARIABLES)
def test_a_variable_that_chooses_recordings_is_seen(
    project: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    next_process(project, lambda: "first")
    monkeypatch.setenv(variable, "nvidia-y")
    assert next_process(project) == "again"


def test_another_version_of_a_package_is_seen(project: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    next_process(project, lambda: "first")
    (tmp_path / "site/torch-99.0.dist-info").mkdir(parents=True)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "site")])
    assert next_process(project) == "again"


@pytest.mark.parametrize(
    ("text", "is_seen"),
    [
        ("---\ndescription: An MLP.\n---\n# MLP\n\nOther prose, of `#!fig mlp.gelu_us`.\n", False),
        ("---\ndescription: Another.\n---\n# MLP\n\nProse.\n", True),
        ("---\ndescription: An MLP.\n---\n# Another\n\nProse.\n", True),
        ('---\ndescription: An MLP.\n---\n# MLP\n\nProse.\n\n    print(show("a", verdicts, "M1"))\n', True),
    ],
)
def test_of_a_page_only_what_another_may_show_is_seen(project: Path, text: str, is_seen: bool) -> None:
    next_process(project, lambda: "first")
    (project / "docs/mlp.md").write_text(text)
    assert next_process(project) == ("again" if is_seen else "first")


def test_a_new_page_is_seen(project: Path) -> None:
    next_process(project, lambda: "first")
    (project / "docs/labs/index.md").write_text("# Labs")
    assert next_process(project) == "again"


def test_nothing_is_kept_that_was_made_while_something_changed(project: Path) -> None:
    """It may be made of the old half and of the new one."""

    def make() -> str:
        (project / "docs/recordings/nvidia-x/mlp/eager.json").write_text("{ }")
        return "mixed"

    assert next_process(project, make) == "mixed"
    (project / "docs/recordings/nvidia-x/mlp/eager.json").write_text("{}")
    assert next_process(project) == "again"


def test_a_process_that_runs_older_code_keeps_nothing(project: Path) -> None:
    (project / "snippets/mlp/findings.py").write_text("A = 2")
    root = project / "docs/recordings"
    for text in ("old", "older"):
        kept.look(root)
        assert kept.kept(("fence", "x"), lambda text=text: text) == text  # type: ignore[misc]
        kept.keep()
    assert next_process(project) == "again"


def test_a_look_forgets_what_the_build_remembers_only_after_a_change(project: Path) -> None:
    made = cache.once(lambda: object())
    root = project / "docs/recordings"
    kept.look(root)
    first = made()
    kept.look(root)
    assert made() is first
    (project / "docs/recordings/nvidia-x/mlp/eager.json").write_text("{ }")
    kept.look(root)
    assert made() is not first


def test_without_a_look_nothing_is_kept(project: Path) -> None:
    for text in ("first", "second"):
        assert kept.kept(("fence", "x"), lambda text=text: text) == text  # type: ignore[misc]
        kept.keep()


def convert(source: str) -> str:
    """A page as MkDocs converts it, with the extensions that keep."""
    fence = {"name": "python", "class": "python", "validator": validator, "format": run_fence}
    figure = {"name": "fig", "class": "fig", "format": inline.fig_formatter}
    configs = {
        "pymdownx.superfences": {"custom_fences": [fence]},
        "pymdownx.inlinehilite": {"custom_inline": [figure]},
    }
    return markdown.markdown(source, extensions=[*configs, "snippets.lab.page.last"], extension_configs=configs)


SHOWN = f'{FRAME}mlp-x">shown</div>'
FENCE = '# A page\n\n```python exec="on" html="on"\n{}\n```\n'


def test_a_kept_fence_does_not_run(project: Path, tmp_path: Path) -> None:
    count = tmp_path / "count"
    source = FENCE.format(f"with open({str(count)!r}, 'a') as file: file.write('x'); print({SHOWN!r})")
    pages = [convert(source), convert(source)]
    assert pages[0] == pages[1]
    assert SHOWN in pages[0]
    assert count.read_text() == "x"
    assert convert(source + "\nMore prose.\n").startswith(pages[0])
    assert count.read_text() == "x"
    (project / "snippets/mlp/findings.py").write_text("A = 2")
    kept.imported_again()
    convert(source)
    assert count.read_text() == "xx"


def test_a_fence_that_raises_is_not_kept(project: Path, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    source = FENCE.format(f"import pathlib; print(pathlib.Path({str(flag)!r}).read_text())")
    assert "FileNotFoundError" in convert(source)
    flag.write_text(SHOWN)
    assert SHOWN in convert(source)


def test_a_figure_is_kept(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def measured(name: str) -> str:
        asked.append(name)
        return "<data>7</data>"

    monkeypatch.setattr(inline, "_of_all_devices", measured)
    pages = [convert("A page with `#!fig mlp.kernels` kernels.") for _ in range(2)]
    assert pages[0] == pages[1]
    assert "7" in pages[0]
    assert asked == ["mlp.kernels"]
