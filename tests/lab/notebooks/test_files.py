"""Notebook files: recorded, unpacked and listed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from snippets.lab.notebooks.cells import CellFailed, NotebookRun, NotebookRuns
from snippets.lab.notebooks.files import (
    SETUP,
    Notebook,
    NotebookError,
    RunInfo,
    load_notebook,
    move_unshowable,
    notebook_list,
    notebooks,
    record_notebook,
)
from snippets.lab.notebooks.outputs import dumped
from snippets.lab.page.frame import show
from snippets.lab.recording import fingerprint
from snippets.lab.recording.device import DEFAULT_DEVICE
from snippets.lab.tools.archive import ArchiveError, Imported, pack_archive, unpack_archive
from tests.lab.notebooks.hostile import NESTED, NOT_OUTPUTS, VECTORS
from tests.lab.samples import EVIL, environment, files, recordings, without_headings
from tests.lab.tools.machine import OUTPUTS

DEVICE_NAME = "NVIDIA H200"


def valid(content: dict[str, Any]) -> None:
    """Raises where Jupyter would."""
    nbformat = pytest.importorskip("nbformat", reason="it comes with mkdocs-jupyter")
    nbformat.validate(nbformat.from_dict(content))


# ---- recorded


@pytest.fixture(scope="module", autouse=True)
def _own_code() -> Iterator[None]:
    """The parsed chapters keep what the first notebook imports; the book's notebooks must not meet these imports."""
    fingerprint._measured_code.cache_clear()
    yield
    fingerprint._measured_code.cache_clear()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder for recordings, and next to it one small notebook."""
    write_notebook(tmp_path / "recordings")
    return tmp_path / "recordings"


def write_notebook(root: Path, *sources: str, name: str = "mlp") -> Notebook:
    """A notebook with two code cells, beside the recordings in `root`."""
    cells: list[dict[str, Any]] = [
        {
            "cell_type": "code",
            "execution_count": None,
            "id": f"c{number}",
            "metadata": {},
            "outputs": [],
            "source": text,
        }
        for number, text in enumerate(source.splitlines(keepends=True) for source in sources or (SETUP, "1 + 1  # two"))
    ]
    heading = {"cell_type": "markdown", "id": "m", "metadata": {}, "source": ["# A lab & more"]}
    path = root.parent / "labs" / f"{name}.ipynb"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(dumped({"cells": [heading, *cells], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    return load_notebook(path)


def html_outputs(html: str, **more: Any) -> list[list[dict[str, Any]]]:
    """The outputs of the small notebook's two code cells, the second of them HTML."""
    return [[], [{**OUTPUTS[1][0], "data": {"text/plain": "2", "text/html": html, **more}}]]


def runs(outputs: list[list[dict[str, Any]]] = OUTPUTS, failed: str = "", device: str = DEVICE_NAME) -> NotebookRuns:
    return NotebookRuns({"mlp": NotebookRun(outputs, 2.5, failed)}, environment(device=device))


def recordings_beside(notebook: Notebook) -> Path:
    return notebook.path.parents[1] / "recordings"


def record(root: Path, result: NotebookRuns | None = None) -> str:
    """Record the small notebook from what a process would have returned; the cause if that fails."""
    notebook = load_notebook(root.parent / "labs/mlp.ipynb")
    return record_notebook(
        recordings_beside(notebook), notebook, DEFAULT_DEVICE, lambda paths, time_limit_s: result or runs()
    )


def test_a_recorded_notebook_holds_outputs_and_environment(root: Path) -> None:
    (before,) = notebooks(root)
    assert (before.state, before.device) == ("missing", "")
    assert record(root) == ""
    (after,) = notebooks(root)
    assert (after.state, after.device, after.title, after.id) == (
        "recorded",
        DEFAULT_DEVICE,
        "A lab & more",
        "labs/mlp",
    )
    assert after.run_info == RunInfo(before.fingerprint(DEVICE_NAME), 2.5, environment(device=DEVICE_NAME))
    assert [cell.get("execution_count") for cell in after.content["cells"]] == [None, 1, 2]
    assert after.content["cells"][2]["outputs"] == OUTPUTS[1]
    assert [path.name for path in after.path.parent.iterdir()] == ["mlp.ipynb"]
    assert "circumstances" in after.content["metadata"]["recording"], "the key that recorded notebooks have"
    valid(after.content)


@pytest.mark.parametrize(
    ("change", "state"),
    [
        (("1 + 1", "1 + 2"), "stale"),
        (("  # two", "  # to read"), "recorded"),
        (('REPOSITORY = \\"\\"', 'REPOSITORY = \\"https://example.org/a/b\\"'), "recorded"),
        (("1 + 1", "1 +"), "unreadable: "),
        (("<p>", "<p onclick='x'>"), """unreadable: an output has disallowed HTML: "<p onclick='x'>2</p>\""""),
        (("<p>", "<p >"), "unreadable: an output has disallowed HTML: '<p >2</p>'"),
        (("<p>2", "<p>&#50;"), "unreadable: an output has HTML that is not written as the sanitizer writes it"),
        (('"execution_count": 1', '"execution_count": null'), "unreadable: its outputs are missing; run make record"),
        (
            ('"id": "c1",\n   "metadata": {', '"id": "c1",\n   "metadata": {"tags": []'),
            "unreadable: it has more than cells and outputs: ",
        ),
        (('"id": "c1"', '"id": "><b>"'), "unreadable: it has more than cells and outputs: Expected `str` matching"),
        (('"seconds": 2.5', '"seconds": "2"'), "unreadable: labs/mlp: Expected `float`, got `str` - at `$.seconds`"),
        (('"digest": "', '"digest": "0'), "stale"),
    ],
)
def test_the_state_of_a_notebook(root: Path, change: tuple[str, str], state: str) -> None:
    record(root)
    path = root.parent / "labs/mlp.ipynb"
    assert change[0] in path.read_text()
    path.write_text(path.read_text().replace(*change))
    assert load_notebook(path).state.startswith(state)


def test_the_fingerprint_is_of_the_cells_and_of_what_they_reach(root: Path) -> None:
    notebook = write_notebook(root)
    cells = (
        "1 + 2",
        "from snippets.mlp.model import GeGLU\nGeGLU(1, 2)",
        "from snippets.linear.model import linear\nlinear(1, 2)",
    )
    found = {notebook.fingerprint(""), *(write_notebook(root, SETUP, cell).fingerprint("") for cell in cells)}
    assert len(found) == 4
    assert write_notebook(root, "import sys", "1 + 1").fingerprint("") == notebook.fingerprint(""), (
        "less the set-up cell"
    )


@pytest.mark.parametrize(
    ("result", "cause"),
    [
        (runs([], failed="mlp, code cell 2: ValueError: no\nTraceback"), "mlp, code cell 2: ValueError: no\nTraceback"),
        (runs(device="NVIDIA Other"), "the notebook ran on NVIDIA Other, not on nvidia-h200"),
        (runs(OUTPUTS[:1]), "labs/mlp: 1 outputs for 2 code cells"),
        (runs(html_outputs("", **{"image/png": "aaaa"})), "labs/mlp: an output is not text or HTML: Object contains"),
        (
            runs([[], [{"output_type": "stream", "name": "stderr", "text": "x"}]]),
            "labs/mlp: an output is not text or HTML: Invalid enum value 'stderr' - at `$[0].name`",
        ),
        (runs(html_outputs("<p>" + "a" * 200_000 + "</p>")), "labs/mlp: 20"),
        (
            runs(html_outputs('<p aria-label="a"></p><p aria-label="a"></p>')),
            "labs/mlp: two tables have the same name, so a screen reader cannot distinguish them: ",
        ),
        *((runs(html_outputs(evil)), "labs/mlp: an output has disallowed HTML: ") for evil in EVIL),
    ],
)
def test_outputs_that_a_page_cannot_show_are_not_kept(root: Path, result: NotebookRuns, cause: str) -> None:
    before = files(root.parent)
    assert record(root, result).startswith(cause)
    assert files(root.parent) == before


def test_a_process_that_died_is_the_cause(root: Path) -> None:
    def die(paths: list[Path], time_limit_s: float) -> NotebookRuns:
        raise CellFailed("the process ended with code 7; last output: none")

    (notebook,) = notebooks(root)
    assert (
        record_notebook(recordings_beside(notebook), notebook, DEFAULT_DEVICE, die)
        == "the process ended with code 7; last output: none"
    )


@pytest.mark.parametrize("content", [b"", b"{}", b'{"cells": [], "metadata": {}, "nbformat": 4}', b"\xff", b"[1]"])
def test_a_file_that_is_not_a_notebook(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "mlp.ipynb").write_bytes(content)
    with pytest.raises(NotebookError, match=r"^mlp\.ipynb is not a notebook"):
        load_notebook(tmp_path / "mlp.ipynb")


# ---- unpacked from an archive


def test_a_notebook_is_unpacked(root: Path, tmp_path: Path) -> None:
    record(root)
    home = tmp_path / "home" / "recordings"
    write_notebook(home)
    assert pack_archive(root, DEFAULT_DEVICE, tmp_path / "a.tar.gz") == 1
    assert unpack_archive(home, tmp_path / "a.tar.gz") == Imported([f"{DEFAULT_DEVICE} labs/mlp"])
    assert files(home.parent / "labs") == files(root.parent / "labs")


def test_a_notebook_of_another_checkout_stays_out(root: Path, tmp_path: Path) -> None:
    record(root)
    home = tmp_path / "home" / "recordings"
    notebook = write_notebook(home, SETUP, "1 + 3")
    before = notebook.path.read_bytes()
    pack_archive(root, DEFAULT_DEVICE, tmp_path / "a.tar.gz")
    with pytest.raises(ArchiveError, match=r"labs/mlp has different cells than this checkout.*; nothing was unpacked"):
        unpack_archive(home, tmp_path / "a.tar.gz")
    assert notebook.path.read_bytes() == before


def test_a_notebook_of_another_device_stays_out(root: Path, tmp_path: Path) -> None:
    (notebook,) = notebooks(root)
    assert (
        record_notebook(
            recordings_beside(notebook),
            notebook,
            "nvidia-other",
            lambda paths, limit_s: runs(device="NVIDIA Other"),
        )
        == ""
    )
    pack_archive(root, "nvidia-other", tmp_path / "a.tar.gz")
    before = files(root.parent / "labs")
    with pytest.raises(ArchiveError, match=r"notebooks are recorded for nvidia-h200 only; nothing was unpacked"):
        unpack_archive(root, tmp_path / "a.tar.gz")
    assert files(root.parent / "labs") == before


def hostile_notebook(root: Path, outputs: object) -> Notebook:
    """The small notebook, recorded, with its second cell's outputs replaced by these."""
    write_notebook(root)
    record(root)
    path = root.parent / "labs/mlp.ipynb"
    content = json.loads(path.read_text())
    content["cells"][2]["outputs"] = outputs
    path.write_bytes(dumped(content))
    return load_notebook(path)


HOSTILE = [*NOT_OUTPUTS.values(), *(html_outputs(vector)[1] for vector in VECTORS)]


@pytest.mark.parametrize("outputs", HOSTILE[::15], ids=range(0, len(HOSTILE), 15))
def test_a_hostile_notebook_stays_out_and_stops_no_build(tmp_path: Path, outputs: object) -> None:
    assert_stays_out(tmp_path, outputs)


@pytest.mark.slow
def test_every_hostile_notebook_stays_out_and_stops_no_build(tmp_path: Path) -> None:
    for number, outputs in enumerate(HOSTILE):
        assert_stays_out(tmp_path / str(number), outputs)


def assert_stays_out(tmp_path: Path, outputs: object) -> None:
    root = tmp_path / "recordings"
    lies_here = hostile_notebook(root, outputs)
    pack_archive(root, DEFAULT_DEVICE, tmp_path / "a.tar.gz")
    home = tmp_path / "home" / "recordings"
    write_notebook(home)
    before = files(home.parent)
    with pytest.raises(ArchiveError, match=r"labs/mlp: an output .*; nothing was unpacked\Z") as refused:
        unpack_archive(home, tmp_path / "a.tar.gz")
    assert str(refused.value).isprintable()
    assert files(home.parent) == before
    assert lies_here.state.startswith("unreadable: an output ")
    written = lies_here.path.read_bytes()
    assert move_unshowable(lies_here, tmp_path / "aside").startswith("labs/mlp: an output ")
    assert (tmp_path / "aside/mlp.ipynb").read_bytes() == written
    (shown,) = notebooks(root)
    assert [cell.get("outputs") for cell in shown.content["cells"]] == [None, [], []]
    assert shown.state == "unreadable: its outputs are missing; run make record CHAPTER=labs/mlp"
    assert move_unshowable(shown, tmp_path / "again") == ""


def test_a_moved_notebook_is_built(root: Path, tmp_path: Path) -> None:
    convert = pytest.importorskip("mkdocs_jupyter.nbconvert2", reason="it builds the pages of labs")
    notebook = hostile_notebook(root, NOT_OUTPUTS["stream without text"])
    with pytest.raises(Exception, match="'text' is a required property"):
        convert.nb2html(str(notebook.path), custom_mathjax_url="")
    move_unshowable(notebook, tmp_path)
    assert "A lab &amp; more" in convert.nb2html(str(notebook.path), custom_mathjax_url="")


def test_html_is_stored_as_the_sanitizer_writes_it(root: Path) -> None:
    assert record(root, runs(html_outputs('<p title="a" data-search-exclude>&#50; &quot;<br></p>'))) == ""
    (notebook,) = notebooks(root)
    html = notebook.content["cells"][2]["outputs"][0]["data"]["text/html"]
    assert (html, notebook.state) == ('<p title="a" data-search-exclude="">2 "<br></p>', "recorded")


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("metadata", {"widgets": {"a": "b"}}),
        ("metadata", {"kernelspec": {"language": "<img src=x: onerror=ran()>"}}),
        ("metadata", {"kernelspec": NESTED}),
        ("metadata", {"recording": {"digest": NESTED}}),
        ("nbformat_minor", [5]),
    ],
)
def test_a_notebook_with_more_than_cells_stops_no_build(root: Path, place: str, value: object, tmp_path: Path) -> None:
    record(root)
    path = root.parent / "labs/mlp.ipynb"
    path.write_bytes(dumped(json.loads(path.read_text()) | {place: value}))
    (notebook,) = notebooks(root)
    assert notebook.state != "recorded"
    if "recording" not in str(value):
        assert "mlp: it has more than cells and outputs" in move_unshowable(notebook, tmp_path)
    valid(load_notebook(path).content)


# ---- listed


def leave(notebook: Notebook) -> None:
    """Nothing changes."""


def fill_in(notebook: Notebook) -> None:
    assert record_notebook(recordings_beside(notebook), notebook, DEFAULT_DEVICE, lambda paths, limit_s: runs()) == ""


def make_stale(notebook: Notebook) -> None:
    fill_in(notebook)
    text = notebook.path.read_text()
    notebook.path.write_text(text.replace("1 + 1", "1 + 2"))


@pytest.mark.parametrize(
    ("change", "html"),
    [
        (leave, "<td>not recorded yet: on the H200 run <code>make record CHAPTER=labs/mlp</code></td>"),
        (fill_in, '<td>NVIDIA H200, <time datetime="2026-10-01T12:00:00Z">2026-10-01</time></td>'),
        (
            make_stale,
            "<strong>stale</strong>, its code has changed since; run <code>make record CHAPTER=labs/mlp</code></td>",
        ),
    ],
)
def test_the_list_shows_the_state(
    root: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Notebook], None], html: str
) -> None:
    recordings(monkeypatch, root)
    change(notebooks(root)[0])
    listed = show("labs-list", notebook_list)
    assert html in without_headings(listed)
    assert '<a href="mlp/">A lab &amp; more</a>' in listed
    assert '<a href="mlp/mlp.ipynb" download>mlp.ipynb</a>' in listed
