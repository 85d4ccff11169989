"""What `import` accepts builds: a stranger's recordings and outputs of a lab, with odd text in every field at once."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest

from kinetoscope.report.rank_drawing import PATTERNS
from snippets.lab.cache import start_build
from snippets.lab.finding.device import all_devices
from snippets.lab.recording.device import DEFAULT_DEVICE
from snippets.lab.tools.archive import unpack_archive
from snippets.lab.tools.built_page import MACHINE_PATH, NOT_EXECUTED, TRACEBACK, Page, Reader
from snippets.lab.tools.check_site import problems
from tests import odd_recordings
from tests.book.pieces import pieces
from tests.lab.samples import BOOK
from tests.site import two_devices

LAB = "linear"


def imported(root: Path, *devices: str, chapters: tuple[str, ...] = ()) -> None:
    """Import the recordings of odd devices."""
    for device in devices:
        count = len(unpack_archive(root, odd_recordings.archive(root.parent / "a.tar.gz", device, chapters)).written)
        assert count == sum(
            1 for path in (BOOK.root / BOOK.name).glob("*/*.json") if path.parent.name in chapters or not chapters
        )
    (root.parent / "a.tar.gz").unlink()


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The book's recordings, those of two odd devices, and a lab with odd outputs."""
    folder = tmp_path_factory.mktemp("project")
    shutil.copytree(BOOK.root / DEFAULT_DEVICE, folder / "recordings" / DEFAULT_DEVICE)
    shutil.copytree(BOOK.root.parent / "labs", folder / "labs")
    imported(folder / "recordings", odd_recordings.PLAIN, odd_recordings.EVERYWHERE)
    archive = odd_recordings.lab_archive(folder / "lab.tar.gz", LAB)
    assert unpack_archive(folder / "recordings", archive).written == [f"{DEFAULT_DEVICE} labs/{LAB}"]
    return folder / "recordings"


def read(html: str) -> Page:
    """A part of a page as the gate reads it."""
    reader = Reader("part.html")
    reader.page.has_script = True  # the part has no policy, the page has
    reader.feed(html)
    reader.close()
    return reader.page


def test_every_part_of_the_book_is_sound(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECORDINGS", str(root))
    monkeypatch.setenv("DEVICE", "")
    strangers = tuple(device for device in all_devices(root) if device.name != DEFAULT_DEVICE)
    for page in ("frame", "inline"):  # the default device's panels are those of the book
        monkeypatch.setattr(f"snippets.lab.page.{page}.shown_devices", lambda *_: strangers)
    patterns = set(read(PATTERNS).ids)  # the build adds them to a page of which any piece draws ranks
    faults, odd = [], Counter[str]()
    start_build()
    for name, build in pieces():
        html = build()
        page = read(html)
        twice = [ident for ident, times in Counter(page.ids).items() if times > 1 and not ident.startswith("kernel-")]
        lost = [ident for _, ident in page.id_references if ident not in page.anchors | patterns]
        faults += [f"{name}: {fault}" for fault in [*page.problems, *twice, *lost]]
        odd.update({"path": len(MACHINE_PATH.findall(html)), "fence": len(NOT_EXECUTED.findall(html))})
        odd["traceback"] += html.count(TRACEBACK)
    assert faults == []
    assert min(odd.values()) > 100, "what the gate would say of our own text"


def test_a_lab_is_sound(root: Path) -> None:
    convert = pytest.importorskip("mkdocs_jupyter.nbconvert2", reason="it builds the pages of labs")
    html = convert.nb2html(str(root.parent / f"labs/{LAB}.ipynb"), custom_mathjax_url="")
    assert html.count(TRACEBACK) > 5
    page = read(f"<div>{html}</div>")
    assert page.problems == []
    assert [url for _, url in page.loads if "example.org" in url] == []


def test_a_site_is_built_and_passes_the_gate(tmp_path: Path) -> None:
    """Markdown and the theme leave odd text as it is. The pages of the trial lead to others, which it has not."""
    site = two_devices.build(tmp_path, lambda root: imported(root, odd_recordings.PLAIN, chapters=("mlp",)))
    docs = tmp_path / "project" / "docs"
    odd = (site / "trial/index.html").read_text(encoding="utf-8").count("/opt/a")
    assert odd > 30
    assert [problem for problem in problems(site, docs) if ": dead: " not in problem] == []
