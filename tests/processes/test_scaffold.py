"""A chapter as `make chapter` lays it out, under the tools that `make check` runs: style, types, tests, site, gates."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from snippets.lab.notebooks.cells import code_cells
from snippets.lab.tools.check_site import problems
from snippets.lab.tools.page_rules import width_problems
from snippets.lab.tools.page_text import pages, sources
from snippets.lab.tools.scaffold import create_chapter
from tests.lab import copies
from tests.lab.tools.test_scaffold import NAMES, remove

LEDGER = """\
# Claims

```python exec="on" html="on"
from snippets.lab.page import ledger_list, show
print(show("claims-ledger", ledger_list))
```
"""


def project_with_ledger(folder: Path) -> Path:
    """A copy of the project with the page that verdicts link to."""
    root = copies.project(folder, runs=True)
    (root / "docs/claims.md").write_text(LEDGER, encoding="utf-8")
    config = root / "mkdocs.yml"
    nav = config.read_text(encoding="utf-8").replace(
        "- More: more.md\n", "- More: more.md\n      - Claims: claims.md\n"
    )
    config.write_text(nav, encoding="utf-8")
    return root


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a new chapter of each name."""
    root = project_with_ledger(tmp_path_factory.mktemp("project"))
    for name in NAMES:
        create_chapter(name, root)
    return root


def run(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Python's `-m` in the copy; its own packages come before those of this project."""
    env = os.environ | {"PYTHONPATH": str(root), "NO_MKDOCS_2_WARNING": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", *arguments]
    return subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, check=False)


@pytest.mark.skipif(importlib.util.find_spec("ruff") is None, reason="needs ruff, of the extra `lint`")
@pytest.mark.parametrize("arguments", [("check", "--no-cache"), ("format", "--check", "--no-cache")])
@pytest.mark.parametrize("config", [(), ("--config", "pyproject.toml")], ids=["folders", "findings"])
def test_it_is_in_the_one_style(made: Path, arguments: tuple[str, ...], config: tuple[str, ...]) -> None:
    folders = [f"{folder}/{name}" for folder in ("snippets", "tests/chapters") for name in NAMES]
    findings = [f"snippets/{name}/findings.py" for name in NAMES]
    done = run(made, "ruff", *arguments, *config, *(findings if config else [*folders, "docs/labs"]))
    assert (done.returncode, done.stderr) == (0, ""), done.stdout


def test_what_its_page_shows_fits_the_page(made: Path) -> None:
    assert width_problems(pages(made / "docs"), sources(made)) == []


@pytest.mark.skipif(importlib.util.find_spec("mypy") is None, reason="needs mypy, of the extra `lint`")
def test_its_types_are_right(made: Path, tmp_path: Path) -> None:
    """By themselves: following what they import would take as long as all other tests of this file."""
    options = ("--follow-imports=skip", "--disable-error-code=untyped-decorator", f"--cache-dir={tmp_path}")
    done = run(made, "mypy", *options, *(f"snippets/{name}" for name in NAMES))
    assert done.returncode == 0, done.stdout


def test_its_tests_pass_the_kernel_without_a_gpu(made: Path) -> None:
    chosen = ("tests/chapters/rmsnorm", "tests/chapters/labels/test_findings.py")
    done = run(made, "pytest", "-q", "-p", "no:cacheprovider", *chosen)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert re.search(r"^14 passed", done.stdout, re.MULTILINE)


def test_its_lab_runs_on_a_cpu(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    path = made / "docs/labs/rmsnorm.ipynb"
    done = run(made, "snippets.lab.notebooks.cells", "--result", str(tmp_path / "result.json"), str(path))
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "result.json").read_text("utf-8"))["by_name"]["rmsnorm"]
    assert result["failed"] == ""
    shown = [output["data"]["text/plain"] for cell in result["outputs"] for output in cell if "data" in output]
    answered = [text for text in shown if text.startswith("No guess yet. Measured: ")]
    sources = code_cells(json.loads(path.read_text("utf-8")))
    asked = [source for source in sources if source.startswith("guess = None  # ")]
    assert len(answered) == len(asked) >= 3
    assert answered[1] == "No guess yet. Measured: 2 calls of aten::mul"


def test_the_site_says_that_nothing_is_recorded_and_keeps_its_links(made: Path) -> None:
    done = run(made, "mkdocs", "build", "--strict", "--site-dir", "site")
    assert done.returncode == 0, done.stderr
    page = (made / "site/rmsnorm/index.html").read_text(encoding="utf-8")
    fences = re.findall(r'data-fence="([^"]+)"', page)
    names = ("opening", "provenance", "guess-kernels", "forward", "guess-speedup", "times", "kernels", "check")
    assert fences == [f"rmsnorm-{name}" for name in names]
    assert "recording of this chapter: run <code>make record CHAPTER=rmsnorm</code>." in page
    assert page.count("Not recorded yet") == 1
    assert page.count("<p>Not recorded on the ") == 6, "beside the claim, which is not measured"
    (made / "site/claims.json").write_text("[]")
    found = problems(made / "site", made / "docs")
    assert [problem for problem in found if not problem.startswith("404.html:")] == [], "404 leads to the whole book"


def test_what_is_not_recorded_yet_is_no_fault(made: Path) -> None:
    for arguments in (("list", "--check"), ("claims", "--check")):
        done = run(made, "snippets.lab", *arguments)
        assert (done.returncode, done.stderr) == (0, "")
        assert re.search(r"rmsnorm/eager +missing|RMSNORM-1 +not measured", done.stdout)


def test_a_chapter_that_was_removed_leaves_no_dead_link(tmp_path: Path) -> None:
    root = project_with_ledger(tmp_path)
    create_chapter("rmsnorm", root)
    create_chapter("softmax", root)
    remove(root, "rmsnorm")
    done = run(root, "mkdocs", "build", "--strict", "--site-dir", "site")
    assert done.returncode == 0, done.stderr
    (root / "site/claims.json").write_text("[]")
    found = problems(root / "site", root / "docs")
    assert [problem for problem in found if not problem.startswith("404.html:")] == [], "404 leads to the whole book"
    listed = run(root, "snippets.lab", "list")
    assert (listed.returncode, "rmsnorm" in listed.stdout, "softmax/eager" in listed.stdout) == (0, False, True)
