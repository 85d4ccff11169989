"""`make chapter`: what it lays out passes every gate and goes away wholly, and what cannot be made leaves nothing."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from snippets.lab.__main__ import main
from snippets.lab.tools.scaffold import ScaffoldError, chapter_files, create_chapter, with_page

# KEEP scaffold
from tests import page_sources
from tests.lab import copies, samples
from tests.lab.layers import ROOT

NAMES = ("rmsnorm", "a", "labels", "lab_2", "zz_" + 21 * "x")
"""The longest and the shortest, and some that sort before, after and beside `lab`."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a new chapter of each name."""
    root = copies.project(tmp_path_factory.mktemp("project"))
    for name in NAMES:
        create_chapter(name, root)
    return root


def run(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Python's `-m` in the copy; its own packages come before those of this project."""
    env = os.environ | {"PYTHONPATH": str(root), "NO_MKDOCS_2_WARNING": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", *arguments]
    return subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, check=False)


def test_a_chapter_is_four_places_and_one_line(tmp_path: Path) -> None:
    root = copies.project(tmp_path)
    before = samples.files(root)
    assert create_chapter("flash_attention", root) == [*chapter_files("flash_attention"), "mkdocs.yml"]
    after = samples.files(root)
    assert after.keys() - before.keys() == {
        "snippets/flash_attention/model.py",
        "snippets/flash_attention/experiments.py",
        "snippets/flash_attention/findings.py",
        "docs/flash_attention.md",
        "tests/flash_attention/__init__.py",
        "tests/flash_attention/test_model.py",
        "tests/flash_attention/test_findings.py",
    }
    assert [path for path in before if before[path] != after[path]] == ["mkdocs.yml"]
    line = b"      - Flash attention: flash_attention.md\n"
    assert after["mkdocs.yml"] == before["mkdocs.yml"].replace(
        b"      - Other: other.md\n", b"      - Other: other.md\n" + line
    )

    for folder in ("snippets", "tests"):
        shutil.rmtree(root / folder / "flash_attention")
    (root / "docs/flash_attention.md").unlink()
    (root / "mkdocs.yml").write_bytes((root / "mkdocs.yml").read_bytes().replace(line, b""))
    assert samples.files(root) == before


def test_the_books_own_nav_takes_a_chapter_at_the_end_of_its_list() -> None:
    before = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    after = with_page(before, "rmsnorm").splitlines()
    place = after.index("      - Rmsnorm: rmsnorm.md")
    assert re.fullmatch(r" {6}- .+: \w+\.md", after[place - 1])
    assert re.fullmatch(r"  - .+:", after[place + 1])
    assert after[:place] + after[place + 1 :] == before.splitlines()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("", "a name is needed. make chapter NAME=rmsnorm: lower-case letters"),
        *(
            (name, f"{name!r} cannot be the name of a chapter. make chapter NAME=rmsnorm")
            for name in ("RMSNorm", "rms-norm", "2d", "_x", "../x", "a b", "x\n", "é", "class", "lab", "labs", "on")
        ),
        ("x" * 25, "cannot be the name of a chapter"),
        ("mlp", "mlp is taken: snippets/mlp. Choose another name, or remove what is there"),
        ("more", "more is taken: docs/more.md. "),
        ("assets", "'assets' cannot be the name of a chapter"),
        ("conftest", "conftest is taken: tests/conftest.py. "),
        ("tested", "tested is taken: tests/tested. "),
        ("recorded", "recorded is taken: docs/recordings/nvidia-sample/recorded. "),
        ("listed", "listed is taken: nav in mkdocs.yml has its page. Choose another name, or remove the line"),
    ],
)  # fmt: skip
def test_what_cannot_be_made_leaves_nothing(tmp_path: Path, name: str, said: str) -> None:
    root = copies.project(tmp_path)
    for folder in ("tests/tested", "docs/recordings/nvidia-sample/recorded"):
        (root / folder).mkdir(parents=True)
    config = root / "mkdocs.yml"
    config.write_text(config.read_text().replace("other.md\n", "other.md\n      - Listed: listed.md\n"))
    before = samples.files(root)
    with pytest.raises(ScaffoldError) as raised:
        create_chapter(name, root)
    assert said in str(raised.value)
    assert samples.files(root) == before


def test_without_a_list_of_chapters_nothing_is_made(tmp_path: Path) -> None:
    root = copies.project(tmp_path)
    config = root / "mkdocs.yml"
    config.write_text(config.read_text().replace("- Chapters:", "- Parts:"))
    before = samples.files(root)
    with pytest.raises(ScaffoldError, match=r"mkdocs\.yml has no list `- Chapters:` in nav"):
        create_chapter("rmsnorm", root)
    assert samples.files(root) == before


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError("No space left on device")])
@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("files_before", range(len(chapter_files("rmsnorm")) + 1))
def test_what_is_interrupted_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, whole: bool, files_before: int
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

    monkeypatch.setattr(Path, "write_text", interrupted)
    with pytest.raises(type(error)):
        create_chapter("rmsnorm", root)
    assert len(written) > files_before
    assert samples.files(root) == before
    assert not (root / "snippets/rmsnorm").exists()
    assert not (root / "tests/rmsnorm").exists()


@pytest.mark.skipif(importlib.util.find_spec("ruff") is None, reason="needs ruff, of the extra `lint`")
@pytest.mark.parametrize("arguments", [("check", "--no-cache"), ("format", "--check", "--no-cache")])
def test_it_is_in_the_one_style(made: Path, arguments: tuple[str, ...]) -> None:
    done = run(made, "ruff", *arguments, *(f"{folder}/{name}" for folder in ("snippets", "tests") for name in NAMES))
    assert (done.returncode, done.stderr) == (0, ""), done.stdout


@pytest.mark.skipif(importlib.util.find_spec("mypy") is None, reason="needs mypy, of the extra `lint`")
def test_its_types_are_right(made: Path, tmp_path: Path) -> None:
    """By themselves: following what they import would take as long as all other tests of this file."""
    options = ("--follow-imports=skip", f"--cache-dir={tmp_path}")
    done = run(made, "mypy", *options, *(f"snippets/{name}" for name in NAMES))
    assert done.returncode == 0, done.stdout


def test_its_tests_pass(made: Path) -> None:
    """But that which compiles: it takes longer than all others here, and runs as often as its chapter's tests do."""
    chosen = ("tests/rmsnorm", "tests/labels/test_findings.py", "-k", "not compiled]")
    done = run(made, "pytest", "-q", "-p", "no:cacheprovider", *chosen)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert re.search(r"^\d+ passed", done.stdout, re.MULTILINE)


def test_its_page_passes_the_gates_on_sources(made: Path) -> None:
    pages = {f"{name}.md": (made / f"docs/{name}.md").read_text(encoding="utf-8") for name in NAMES}
    sources = {
        path.relative_to(made).as_posix(): path.read_text(encoding="utf-8")
        for name in NAMES
        for path in made.glob(f"snippets/{name}/*.py")
    }
    fences = [fence for page, text in pages.items() for fence in page_sources.fences(page, text)]
    assert page_sources.fence_problems(fences) == []
    assert page_sources.section_problems(pages, sources) == []
    assert [problem for page, text in pages.items() for problem in page_sources.stray_problems(page, text)] == []
    described = [re.search(r"^description: (.*)$", text, re.MULTILINE) for text in pages.values()]
    assert all(found and 50 <= len(found[1]) <= 160 and found[1].endswith(".") for found in described)


def test_the_site_builds_and_says_that_nothing_is_recorded(made: Path) -> None:
    done = run(made, "mkdocs", "build", "--strict", "--site-dir", "site")
    assert done.returncode == 0, done.stderr
    page = (made / "site/rmsnorm/index.html").read_text(encoding="utf-8")
    fences = re.findall(r'data-fence="([^"]+)"', page)
    assert fences == [f"rmsnorm-{name}" for name in ("provenance", "guess-kernels", "forward", "variants", "check")]
    assert "there is no recording of <code>rmsnorm/eager</code>, <code>rmsnorm/compiled</code>" in page
    assert "<code>make record CHAPTER=rmsnorm</code>" in page
    assert page.count("Not recorded yet") == 4, "beside the claim, which is not measured"


def test_what_is_not_recorded_yet_is_no_fault(made: Path) -> None:
    for arguments in (("list", "--check"), ("claims", "--check")):
        done = run(made, "snippets.lab", *arguments)
        assert (done.returncode, done.stderr) == (0, "")
        assert re.search(r"rmsnorm/eager +missing|RMSNORM-1 +not measured", done.stdout)


def test_the_command_says_what_comes_next(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(scaffold, "create", lambda name: [f"docs/{name}.md"])
    assert main(["chapter", "rmsnorm"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    for said in ("  docs/rmsnorm.md\n", "make serve ", "run rmsnorm/eager --rows 64", "make record CHAPTER=rmsnorm "):
        assert said in out
    options = re.findall(r"--(\w+) \d+", out)
    assert re.findall(r'"(\w+)": \d+', chapter_files("rmsnorm")["snippets/rmsnorm/experiments.py"]) == options


def test_the_command_without_a_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chapter"]) == 2
    assert capsys.readouterr().err.startswith("error: a name is needed. make chapter NAME=rmsnorm: ")
