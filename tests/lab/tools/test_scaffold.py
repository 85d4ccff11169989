"""`make chapter`: what it lays out keeps every rule and goes away wholly, and what cannot be made leaves nothing."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kinetoscope.files import write_whole
from snippets.lab.__main__ import main
from snippets.lab.notebooks.files import SETUP, load_notebook
from snippets.lab.notebooks.outputs import dumped
from snippets.lab.recording.device import PROJECT
from snippets.lab.tools.chapter_rules import shape_problems
from snippets.lab.tools.page_rules import fence_problems, guess_problems, section_problems, stray_problems
from snippets.lab.tools.page_text import fences, pages, sources
from snippets.lab.tools.scaffold import (
    ScaffoldError,
    chapter_files,
    create_chapter,
    scaffold_chapter,
    with_lab,
    with_page,
)
from tests.lab import copies, samples

NAMES = ("rmsnorm", "flash_attention", "a", "labels", "lab_2", "zz_" + 21 * "x")
"""Those of the docs, the longest and the shortest, and some that sort before, after and beside `lab`."""
PLACES = {
    "snippets/flash_attention/model.py",
    "snippets/flash_attention/kernels.py",
    "snippets/flash_attention/experiments.py",
    "snippets/flash_attention/findings.py",
    "docs/flash_attention.md",
    "docs/labs/flash_attention.ipynb",
    "tests/chapters/flash_attention/__init__.py",
    "tests/chapters/flash_attention/samples.py",
    "tests/chapters/flash_attention/test_findings.py",
    "tests/chapters/flash_attention/test_kernels.py",
    "tests/chapters/flash_attention/test_model.py",
}


def remove(root: Path, name: str) -> None:
    """As docs/contributing.md shows it: folders, files, and two lines in nav."""
    for folder in ("snippets", "tests/chapters"):
        shutil.rmtree(root / folder / name)
    for path in (f"docs/{name}.md", f"docs/labs/{name}.ipynb"):
        (root / path).unlink()
    config = root / "mkdocs.yml"
    lines = config.read_text(encoding="utf-8").splitlines(keepends=True)
    config.write_text("".join(line for line in lines if f"{name}." not in line), encoding="utf-8")


def test_a_chapter_is_its_places_and_two_lines(tmp_path: Path) -> None:
    root = copies.project(tmp_path)
    before = samples.files(root)
    assert create_chapter("flash_attention", root) == [*chapter_files("flash_attention"), "mkdocs.yml"]
    after = samples.files(root)
    assert after.keys() - before.keys() == PLACES
    assert [path for path in before if before[path] != after[path]] == ["mkdocs.yml"]
    page, lab = b"      - Other: other.md\n", b"      - What a lab is: labs/index.md\n"
    expected = before["mkdocs.yml"].replace(page, page + b"      - Flash attention: flash_attention.md\n")
    title = b'"Flash attention, by yourself"'
    assert after["mkdocs.yml"] == expected.replace(lab, lab + b"      - " + title + b": labs/flash_attention.ipynb\n")


def test_a_chapter_that_was_removed_leaves_nothing_and_can_be_made_again(tmp_path: Path) -> None:
    root = copies.project(tmp_path)
    before = samples.files(root)
    create_chapter("flash_attention", root)
    remove(root, "flash_attention")
    assert samples.files(root) == before
    for folder in ("snippets/flash_attention", "tests/chapters/flash_attention"):
        (root / folder / "__pycache__").mkdir(parents=True)
        (root / folder / "__pycache__/model.cpython-311.pyc").write_bytes(b"ignored by git")
    create_chapter("flash_attention", root)
    assert samples.files(root).keys() >= PLACES


def test_the_commands_of_the_page_remove_every_place() -> None:
    text = (PROJECT / "docs/contributing.md").read_text(encoding="utf-8")
    removed = re.findall(r"^rm (?:-r )?((?:snippets|docs/)\S.*)$", text, re.MULTILINE)
    folders = " ".join(removed).split()
    left = [path for path in chapter_files("rmsnorm") if not any(path.startswith(folder) for folder in folders)]
    assert left == []
    listed = text.split("```text\n")[1].split("```")[0]
    assert not [folder for folder in folders if folder not in listed]


def test_the_books_own_nav_takes_a_chapter_at_the_end_of_its_lists() -> None:
    before = (PROJECT / "mkdocs.yml").read_text(encoding="utf-8")
    after = with_lab(with_page(before, "zz_made"), "zz_made").splitlines()
    page = after.index("      - Zz made: zz_made.md")
    assert re.fullmatch(r" {6}- .+: \w+\.md", after[page - 1])
    assert re.fullmatch(r"  - .+:", after[page + 1])
    lab = after.index('      - "Zz made, by yourself": labs/zz_made.ipynb')
    assert re.fullmatch(r" {6}- .+: labs/\w+\.ipynb", after[lab - 1])
    assert re.fullmatch(r"  - .+: \w+\.md", after[lab + 1])
    assert [line for index, line in enumerate(after) if index not in (page, lab)] == before.splitlines()


REFUSED = {
    "": "no name given. make chapter NAME=rmsnorm: lower-case letters",
    **{
        name: f"{name!r} cannot be the name of a chapter. make chapter NAME=rmsnorm"
        for name in ("RMSNorm", "rms-norm", "2d", "_x", "../x", "a b", "x\n", "é", "class", "lab", "docs", "test", "on")
    },
    "torch": "'torch' is a Python package that chapters import. ",
    "x" * 25: "cannot be the name of a chapter",
    "mine": "mine is taken: snippets/mine. Choose another name, or remove these paths",
    "more": "more is taken: docs/more.md. ",
    "assets": "'assets' cannot be the name of a chapter",
    "index": "index is taken: docs/labs/index.ipynb. ",
    "tested": "tested is taken: tests/chapters/tested. ",
    "recorded": "recorded is taken: docs/recordings/nvidia-sample/recorded. ",
    "listed": "listed is taken: nav in mkdocs.yml has its page. Choose another name, or remove the line",
    "tried": "tried is taken: nav in mkdocs.yml has its lab. Choose another name, or remove the line",
}


def test_what_cannot_be_made_leaves_nothing(tmp_path: Path) -> None:
    root = copies.project(tmp_path)
    (root / "docs/index.md").unlink()
    for path in (
        "tests/chapters/tested/test_it.py",
        "docs/recordings/nvidia-sample/recorded/a.json",
        "snippets/mine/model.py",
        "docs/labs/index.ipynb",
    ):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).touch()
    config = root / "mkdocs.yml"
    text = config.read_text().replace("other.md\n", "other.md\n      - Listed: listed.md\n")
    config.write_text(text.replace("labs/index.md\n", "labs/index.md\n      - labs/tried.ipynb\n"))
    before = samples.files(root)
    for name, message in REFUSED.items():
        with pytest.raises(ScaffoldError) as raised:
            create_chapter(name, root)
        assert message in str(raised.value)
        assert samples.files(root) == before, name


NO_LIST = {
    "  - Chapters:\n      - Other: other.md\n": "nav in mkdocs.yml has no part for chapters, only Start, ",
    "  - Labs:\n      - What a lab is: labs/index.md\n": "mkdocs.yml has no list `- Labs:` in nav",
}


@pytest.mark.parametrize(("part", "message"), NO_LIST.items())
def test_without_a_list_in_nav_nothing_is_made(tmp_path: Path, part: str, message: str) -> None:
    root = copies.project(tmp_path)
    config = root / "mkdocs.yml"
    config.write_text(config.read_text().replace(part, ""))
    before = samples.files(root)
    with pytest.raises(ScaffoldError, match=re.escape(message)):
        create_chapter("rmsnorm", root)
    assert samples.files(root) == before


@pytest.mark.parametrize(("error", "whole"), [(KeyboardInterrupt(), False), (OSError("No space left"), True)])
def test_what_is_interrupted_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, whole: bool
) -> None:
    """In the middle of each file or just after it, that of nav included."""
    root = copies.project(tmp_path)
    before, write, written = samples.files(root), Path.write_text, list[Path]()

    def interrupted(path: Path, text: str, **options: Any) -> int:
        written.append(path)
        if len(written) == files_before + 1:
            write(path, text if whole else text[: len(text) // 2], **options)
            raise error
        return write(path, text, **options)

    def interrupted_nav(path: Path, content: bytes) -> None:
        written.append(path)
        if len(written) != files_before + 1 or whole:
            write_whole(path, content)
        if len(written) == files_before + 1:
            raise error

    monkeypatch.setattr(Path, "write_text", interrupted)
    monkeypatch.setattr("snippets.lab.tools.scaffold.write_whole", interrupted_nav)
    for files_before in range(len(chapter_files("rmsnorm")) + 1):
        written.clear()
        with pytest.raises(type(error)):
            create_chapter("rmsnorm", root)
        assert len(written) > files_before
        assert samples.files(root) == before
        assert not (root / "snippets/rmsnorm").exists()
        assert not (root / "tests/chapters/rmsnorm").exists()


def test_its_page_keeps_the_rules_of_pages(tmp_path: Path) -> None:
    root = copies.project(tmp_path)
    for name in NAMES:
        create_chapter(name, root)
        page = f"{name}.md"
        text = pages(root / "docs")[page]
        own = {path: source for path, source in sources(root).items() if path.startswith(f"snippets/{name}/")}
        assert fence_problems(fences(page, text)) == []
        assert section_problems({page: text}, own) == []
        assert stray_problems(page, text) == []
        assert guess_problems(page, text) == []
        assert shape_problems(page, text) == []
        described = re.search(r"^description: (.*)$", text, re.MULTILINE)
        assert described is not None
        assert 50 <= len(described[1]) <= 160
        assert described[1].endswith(".")


def test_findings_fit_on_a_screen() -> None:
    assert len(chapter_files("rmsnorm")["snippets/rmsnorm/findings.py"].splitlines()) <= 20


def test_its_lab_begins_as_the_others_do(tmp_path: Path) -> None:
    root = copies.project(tmp_path)
    create_chapter("rmsnorm", root)
    lab = load_notebook(root / "docs/labs/rmsnorm.ipynb")
    assert lab.path.read_bytes() == dumped(lab.content)
    assert lab.title == "Rmsnorm, by yourself"
    assert "".join(lab.content["cells"][1]["source"]) == SETUP.strip()
    lab.path.write_text(lab.path.read_text("utf-8").replace('REPOSITORY = \\"\\"', 'REPOSITORY = \\"https://a.org\\"'))
    create_chapter("softmax", root)
    first = json.loads((root / "docs/labs/softmax.ipynb").read_text("utf-8"))["cells"][1]["source"]
    assert 'REPOSITORY = "https://a.org"\n' in first


def test_a_chapter_with_a_package_of_experiments_is_taken_and_removed_alike(tmp_path: Path) -> None:
    root = copies.project(tmp_path)
    create_chapter("rmsnorm", root)
    folder = root / "snippets/rmsnorm"
    (folder / "experiments").mkdir()
    (folder / "experiments.py").rename(folder / "experiments/__init__.py")
    with pytest.raises(ScaffoldError, match="rmsnorm is taken: snippets/rmsnorm"):
        create_chapter("rmsnorm", root)
    code = (
        "from snippets.lab.experiment import chapters, find; print(*chapters(), *(one.id for one in find('rmsnorm')))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["rmsnorm", "rmsnorm/eager", "rmsnorm/fused"]
    remove(root, "rmsnorm")
    create_chapter("rmsnorm", root)


def test_no_chapter_needs_an_exemption() -> None:
    """Settings are by folder and name no chapter, but for links to files that are checked where they are."""
    paths = (PROJECT / "pyproject.toml", PROJECT / "snippets/ruff.toml")
    named = re.findall(r"snippets/(?!lab\b|__init__|ruff)[\w/-]+", "".join(path.read_text("utf-8") for path in paths))
    assert named == [f"snippets/fused_mlp/geglu_kernels/{link}" for link in ("build", "torch-ext")]
    assert all((PROJECT / path).is_dir() for path in named)


def test_the_command_prints_what_comes_next(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert scaffold_chapter("rmsnorm", copies.project(tmp_path)) == 0
    out, err = capsys.readouterr()
    assert err == ""
    for line in (
        "  docs/rmsnorm.md\n",
        "  docs/labs/rmsnorm.ipynb\n",
        "make serve SAMPLE=rmsnorm ",
        "run rmsnorm/eager --rows 64",
        "pytest tests/chapters/rmsnorm ",
        "make record CHAPTER=rmsnorm ",
        "becomes a package of its name, such as experiments/ ",
    ):
        assert line in out
    options = re.findall(r"--(\w+) \d+", out)
    assert re.findall(r'"(\w+)": \d+', chapter_files("rmsnorm")["snippets/rmsnorm/experiments.py"]) == options


def test_the_command_without_a_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chapter"]) == 2
    assert capsys.readouterr().err.startswith("error: no name given. make chapter NAME=rmsnorm: ")
