"""`make serve` as it is used: a server, a save, and what a browser would get then."""

from __future__ import annotations

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

from snippets.lab.tools.scaffold import create_chapter

# KEEP preview
from tests.lab import copies

PATIENCE_S = 60


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
        """Until the condition holds; fails with what the server said."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert self.process.poll() is None, self.output.read_text()
            assert time.monotonic() < deadline, self.output.read_text()
            time.sleep(0.1)

    def edit(self, path: str, old: str, new: str) -> None:
        text = (self.root / path).read_text(encoding="utf-8")
        assert old in text
        (self.root / path).write_text(text.replace(old, new), encoding="utf-8")


def start(root: Path, port: int, output: Path) -> subprocess.Popen[bytes]:
    env = os.environ | {"PYTHONPATH": str(root), "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "snippets.lab", "serve", "--port", str(port)]
    with output.open("wb") as file:
        return subprocess.Popen(command, cwd=root, env=env, stdout=file, stderr=subprocess.STDOUT)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    root = copies.project(tmp_path_factory.mktemp("project"))
    create_chapter("rmsnorm", root)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    output = tmp_path_factory.mktemp("output") / "output.txt"
    process = start(root, port, output)
    found = Served(root, f"http://127.0.0.1:{port}/", output, process)
    try:
        found.wait(lambda: "follows what you save" in output.read_text())
        yield found
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0, output.read_text()
    assert "Traceback" not in output.read_text().splitlines()[-1]


def test_prose_and_code_follow_a_save(served: Served) -> None:
    assert "Not recorded yet" in served.get("rmsnorm/")
    served.edit("docs/rmsnorm.md", "It is an example:", "It is an exemplar:")
    served.wait(lambda: "It is an exemplar:" in served.get("rmsnorm/"))
    served.edit("snippets/rmsnorm/findings.py", "Compiled, one forward", "Compiled, each forward")
    served.wait(lambda: "Compiled, each forward is one kernel." in served.get("rmsnorm/"))
    served.edit("snippets/rmsnorm/model.py", "mean_square", "mean_of_squares")
    served.wait(lambda: "mean_of_squares" in served.get("rmsnorm/"))
    served.edit("snippets/lab/page.py", '"Not recorded yet"', '"Never recorded"')
    served.wait(lambda: "Never recorded" in served.get("rmsnorm/"))
    assert "built in" in served.output.read_text()


def test_other_pages_follow_when_they_are_asked_for(served: Served) -> None:
    served.edit(
        "docs/more.md", "# More\n", "# More\n\n`#!fig rmsnorm.rows`\n\n```python\n--8<-- 'pyproject.toml'\n```\n"
    )
    served.edit(
        "snippets/rmsnorm/findings.py", '"speedup": speedup}', '"rows": lambda device: Figure(12), "speedup": speedup}'
    )
    served.wait(lambda: ">12</data>" in served.get("more/"))
    served.edit("snippets/rmsnorm/findings.py", "Figure(12)", "Figure(13)")
    served.wait(lambda: ">13</data>" in served.get("more/"))


def test_a_mistake_is_told_and_mended(served: Served) -> None:
    served.edit("snippets/rmsnorm/findings.py", "def variants()", "def variants(:")
    served.wait(lambda: "SyntaxError: invalid syntax" in served.output.read_text())
    assert "What does fusing them save?" in served.get("rmsnorm/"), "the page as it was"
    served.edit("snippets/rmsnorm/findings.py", "def variants(:", "def variants()")
    served.edit("docs/rmsnorm.md", "What does fusing them save?", "What is saved?")
    served.wait(lambda: "What is saved?" in served.get("rmsnorm/"))

    served.edit("docs/rmsnorm.md", "#!fig rmsnorm.speedup", "#!fig rmsnorm.nonsense")
    served.wait(lambda: "no figure 'rmsnorm.nonsense'" in served.output.read_text())
    assert "What is saved?" in served.get("rmsnorm/")
    served.edit("docs/rmsnorm.md", "#!fig rmsnorm.nonsense", "#!fig rmsnorm.speedup")
    served.edit("docs/rmsnorm.md", "What is saved?", "What is won?")
    served.wait(lambda: "What is won?" in served.get("rmsnorm/"))


def test_a_fence_that_raises_shows_it(served: Served) -> None:
    served.edit("docs/rmsnorm.md", "findings.variants)", "findings.varieties)")
    served.wait(lambda: "AttributeError</span>" in served.get("rmsnorm/"))
    assert "has no attribute 'varieties'" in served.output.read_text()
    served.edit("docs/rmsnorm.md", "findings.varieties)", "findings.variants)")
    served.wait(lambda: "AttributeError</span>" not in served.get("rmsnorm/"))


def test_a_chapter_made_while_it_runs_has_its_page(served: Served) -> None:
    create_chapter("softmax", served.root)
    served.wait(lambda: "Softmax" in served.get("more/"))
    assert "there is no recording of <code>softmax/eager</code>" in served.get("softmax/")


def test_a_port_in_use_is_told_before_the_build(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = start(preview.ROOT, port, tmp_path / "output.txt")
        assert process.wait(PATIENCE_S) == 2
    said = (tmp_path / "output.txt").read_text()
    assert said.startswith(f"error: port {port} of 127.0.0.1: ")
    assert said.endswith("Another one: make serve PORT=8001\n")
    assert "built" not in said
