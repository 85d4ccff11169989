"""`make serve` as it is used: a server, a save, what a browser would get then, and what the terminal says."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from snippets.lab.recording.device import PROJECT
from snippets.lab.tools.scaffold import create_chapter
from snippets.lab.tools.search import CHAPTER_BOOST
from tests.lab import copies
from tests.lab.ports import free_port

PATIENCE_S = 120
"""For what takes seconds on a machine that has nothing else to do."""


@dataclass
class Served:
    """A server of a project that may be changed."""

    root: Path
    url: str
    output: Path
    process: subprocess.Popen[bytes]

    def get(self, page: str) -> str:
        with urllib.request.urlopen(f"{self.url}{page}", timeout=PATIENCE_S) as reply:
            return str(reply.read().decode())

    def wait(self, condition: Callable[[], bool]) -> None:
        """Wait until the condition holds; fail with the server's output."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert self.process.poll() is None, self.output.read_text()
            assert time.monotonic() < deadline, self.output.read_text()
            time.sleep(0.1)

    def save(self, path: str, text: str) -> None:
        """Save a file at once: a build never sees a part of it."""
        draft = self.root / f".draft{Path(path).suffix}"
        draft.write_text(text, encoding="utf-8")
        draft.replace(self.root / path)

    def edit(self, path: str, old: str, new: str) -> None:
        text = (self.root / path).read_text(encoding="utf-8")
        assert old in text
        self.save(path, text.replace(old, new))

    def settle(self) -> int:
        """Wait until all that is saved is built, which a page is before it is answered; the length of the output."""
        self.get("rmsnorm/")
        return len(self.output.read_text())

    def printed(self, path: str, old: str, new: str, last: str) -> list[str]:
        """The lines of the build that a mistake brings, one of which contains `last`; it is mended after."""
        before = self.settle()
        text = (self.root / path).read_text(encoding="utf-8")
        try:
            self.edit(path, old, new)
            self.wait(lambda: last in self.output.read_text()[before:])  # without a request: the save is enough
            mended = self.settle()
            lines = self.output.read_text()[before:mended].splitlines()
        finally:
            self.save(path, text)
        self.settle()
        assert "built in" in self.output.read_text()[mended:]
        return lines


def start(root: Path, port: int, output: Path, *options: str) -> subprocess.Popen[bytes]:
    env = os.environ | {"PYTHONPATH": str(root), "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "snippets.lab", "serve", "--port", str(port), *options]
    with output.open("wb") as file:
        return subprocess.Popen(command, cwd=root, env=env, stdout=file, stderr=subprocess.STDOUT)


def served_project(root: Path, output: Path, *options: str) -> Iterator[Served]:
    """A server of the project, until it is no longer needed."""
    port = free_port()
    process = start(root, port, output, *options)
    server = Served(root, f"http://127.0.0.1:{port}/", output, process)
    try:
        server.wait(lambda: "follows what you save" in output.read_text())
        yield server
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0, output.read_text()
    assert "Traceback" not in output.read_text().splitlines()[-1]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    root = copies.project(tmp_path_factory.mktemp("project"), runs=True)
    create_chapter("rmsnorm", root)
    yield from served_project(root, tmp_path_factory.mktemp("output") / "output.txt")


@pytest.fixture(scope="module")
def sampled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    root = copies.project(tmp_path_factory.mktemp("project"), runs=True)
    create_chapter("rmsnorm", root)
    create_chapter("softmax", root)
    yield from served_project(root, tmp_path_factory.mktemp("output") / "output.txt", "--sample", "rmsnorm")


def test_prose_and_code_follow_a_save(served: Served) -> None:
    assert "Not recorded yet" in served.get("rmsnorm/")
    served.edit("docs/rmsnorm.md", "leaves with them", "leaves knowing them")
    served.wait(lambda: "leaves knowing them" in served.get("rmsnorm/"))
    served.edit("snippets/rmsnorm/findings.py", "Fused, one forward", "Fused, each forward")
    served.wait(lambda: "Fused, each forward is one kernel." in served.get("rmsnorm/"))
    served.edit("snippets/rmsnorm/model.py", "mean_square", "mean_of_squares")
    served.wait(lambda: "mean_of_squares" in served.get("rmsnorm/"))
    served.edit("snippets/lab/page/frame.py", '"Not recorded yet"', '"Never recorded"')
    served.wait(lambda: "Never recorded" in served.get("rmsnorm/"))
    assert "built in" in served.output.read_text()


def test_the_search_puts_chapters_first_after_every_build(served: Served) -> None:
    for word in ("leaves", "goes"):
        served.edit("docs/more.md", "# More\n", f"# More\n\nWho {word}?\n")
        served.wait(lambda word=word: f"Who {word}?" in served.get("more/"))  # type: ignore[misc]
        entries = json.loads(served.get("search/search_index.json"))["docs"]
        boosts = {entry["location"]: entry.get("boost") for entry in entries}
        assert boosts["rmsnorm/"] == CHAPTER_BOOST
        assert boosts["more/"] is None


def test_other_pages_follow_when_they_are_asked_for(served: Served) -> None:
    served.edit(
        "docs/more.md", "# More\n", "# More\n\n`#!fig rmsnorm.rows`\n\n```python\n--8<-- 'pyproject.toml'\n```\n"
    )
    added = "def rows(device: Device) -> Figure:\n    return Figure(12)\n\n\ndef speedup("
    served.edit("snippets/rmsnorm/findings.py", "def speedup(", added)
    served.wait(lambda: ">12</data>" in served.get("more/"))
    served.edit("snippets/rmsnorm/findings.py", "Figure(12)", "Figure(13)")
    served.wait(lambda: ">13</data>" in served.get("more/"))


def test_the_old_page_stays_until_a_mistake_is_mended(served: Served) -> None:
    before = served.settle()
    served.edit("snippets/rmsnorm/findings.py", "def speedup(", "def speedup(:")
    served.wait(lambda: "SyntaxError: invalid syntax" in served.output.read_text()[before:])
    assert "What does one kernel save?" in served.get("rmsnorm/"), "the page as it was"
    served.edit("snippets/rmsnorm/findings.py", "def speedup(:", "def speedup(")
    served.edit("docs/rmsnorm.md", "What does one kernel save?", "What is saved?")
    served.wait(lambda: "What is saved?" in served.get("rmsnorm/"))


def test_a_chapter_made_while_it_runs_has_its_page_and_its_labs_title(served: Served) -> None:
    create_chapter("softmax", served.root)
    served.wait(lambda: "Softmax" in served.get("more/"))
    assert "recording of this chapter: run <code>make record" in served.get("softmax/")
    served.edit("docs/more.md", "# More", "# Even more")
    served.wait(lambda: "Even more" in served.get("more/"))
    assert "Softmax, by yourself" in served.get("more/")


@pytest.mark.parametrize(
    ("old", "new", "last"),
    [
        ("#!fig rmsnorm.speedup", "#!fig rmsnorm.speeduq", "'rmsnorm.speeduq'; did you mean rmsnorm.speedup"),
        ('verdicts, "RMSNORM-1"', 'verdicts, "RMSNORM-55"', "no claim 'RMSNORM-55'; did you mean RMSNORM-1"),
        ('timeline, {"eager": "rmsnorm/eager"', 'timeline, {"eager": "rmsnorm/eagr"', "no experiment 'rmsnorm/eagr'"),
        ("import kernel_table, show", "import kernel_tabel, show", "cannot import name 'kernel_tabel'"),
    ],
)  # fmt: skip
def test_a_mistake_on_a_page_is_one_traceback_with_page_and_line(
    sampled: Served, old: str, new: str, last: str
) -> None:
    text = (sampled.root / "docs/rmsnorm.md").read_text(encoding="utf-8")
    line = text.count("\n", 0, text.index(old)) + 1
    lines = sampled.printed("docs/rmsnorm.md", old, new, last)
    *_, place = (index for index, each in enumerate(lines) if each.startswith("error in docs/rmsnorm.md:"))
    near = int(lines[place].rpartition(":")[2])
    assert near <= line <= near + 2, "the line of a fence is its first one"
    assert [each for each in lines if each.startswith("Traceback")] == [lines[place + 1]]
    assert len(lines) - place < 15


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("so its time goes", "so 12 ms go", ": '12 ms' is typed by hand; use `#!fig ...`"),
        ("kernels.py:rms_norm_kernel", "kernels.py", "section rms_norm_kernel is marked but no page shows it"),
    ],
)
def test_a_broken_rule_is_printed_with_its_place(sampled: Served, old: str, new: str, problem: str) -> None:
    """Of prose and of code; tests/lab/tools/test_page_rules.py has all rules."""
    lines = sampled.printed("docs/rmsnorm.md", old, new, problem)
    (line,) = (line for line in lines if problem in line)
    assert line.startswith(("docs/rmsnorm.md", "snippets/rmsnorm/kernels.py:"))
    assert not [line for line in lines if line.startswith("Traceback")]


def test_the_sample_is_shown_under_banners(sampled: Served) -> None:
    page = sampled.get("rmsnorm/")
    assert page.count('<p class="lab-sample">Sample numbers, made up for a preview</p>') == 9
    assert page.count('<span class="lab-sample"') == 1
    assert "Not recorded yet" not in page
    assert "rms_norm_kernel" in page
    assert "SAMPLE: 1" in page, "the verdict"
    other = sampled.get("softmax/")
    assert "lab-sample" not in other
    assert "Not recorded yet" in other


def test_the_sample_follows_a_save_and_reaches_what_waits_for_recordings(sampled: Served) -> None:
    sampled.edit("tests/chapters/rmsnorm/samples.py", '("rms_norm_kernel", 38.0)', '("other_kernel", 39.0)')
    sampled.wait(lambda: "other_kernel" in sampled.get("rmsnorm/"))
    lines = sampled.printed(
        "snippets/rmsnorm/findings.py", "len(step.kernels)", "step.kernels[5].duration_us", "IndexError: "
    )
    assert "error in docs/rmsnorm.md:85" in lines
    assert [line.strip() for line in lines if "findings.py" in line and "File" in line] != []
    assert len([line for line in lines if line.startswith("Traceback")]) == 1


def test_a_mistake_in_the_samples_is_printed_and_the_old_ones_stay(sampled: Served) -> None:
    lines = sampled.printed(
        "tests/chapters/rmsnorm/samples.py",
        'sample_of("rmsnorm/eager"',
        'sample_of("rmsnorm/eagr"',
        "no experiment 'rmsnorm/eagr'; did you mean rmsnorm/eager",
    )
    assert len([line for line in lines if line.startswith("Traceback")]) == 1
    assert any("tests/chapters/rmsnorm/samples.py" in line for line in lines if "File" in line)
    assert "Not recorded yet" not in sampled.get("rmsnorm/")


def test_a_mistake_in_findings_is_one_traceback_for_all_fences(sampled: Served) -> None:
    text = (sampled.root / "snippets/rmsnorm/findings.py").read_text(encoding="utf-8")
    names = "cpu_gpu_bars, guess_number, kernel_table, provenance, show, timeline, verdicts, waiting"
    sampled.save("snippets/rmsnorm/findings.py", text + f"\nfrom snippets.lab.page import {names}  # noqa\n")
    sampled.edit("docs/rmsnorm.md", "from snippets.lab.page import", "from snippets.rmsnorm.findings import")
    sampled.wait(lambda: "SAMPLE: 1" in sampled.get("rmsnorm/"))
    lines = sampled.printed("docs/rmsnorm.md", "`#!fig rmsnorm.speedup`", "many times", "built in")
    assert not [line for line in lines if line.startswith("Traceback")]
    sampled.edit("docs/rmsnorm.md", "`#!fig rmsnorm.speedup`", "many times")
    lines = sampled.printed(
        "snippets/rmsnorm/findings.py", "def speedup(", "def speedup(:", "SyntaxError: invalid syntax"
    )
    place = lines.index("error in docs/rmsnorm.md:10 and in 7 more fences")
    assert [line for line in lines if line.startswith("Traceback")] == [lines[place + 1]]
    assert len(lines) - place < 10


def test_a_port_in_use_is_reported_before_the_build(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = start(PROJECT, port, tmp_path / "output.txt")
        assert process.wait(PATIENCE_S) == 2
    output = (tmp_path / "output.txt").read_text()
    assert output.startswith(f"error: port {port} of 127.0.0.1: ")
    assert output.endswith("Another one: make serve PORT=8001\n")
    assert "built" not in output


@pytest.mark.parametrize("chapter", ["none", "../mlp"])
def test_a_chapter_without_samples_is_named_with_its_cure(tmp_path: Path, chapter: str) -> None:
    process = start(PROJECT, 0, tmp_path / "output.txt", "--sample", chapter)
    assert process.wait(PATIENCE_S) == 2
    assert (tmp_path / "output.txt").read_text() == (
        f"error: no tests/chapters/{chapter}/samples.py; write its recordings(), as make chapter lays it out\n"
    )
