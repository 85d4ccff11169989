"""Labs: what lies in docs/labs, how it is recorded, brought home, listed; and each runs on a CPU, so that none rots."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from snippets.lab.__main__ import main
from snippets.lab.experiment import chapters
from snippets.lab.notebooks.cells import code_cells, run_notebooks
from snippets.lab.notebooks.files import (
    LIMIT_BYTES,
    NOTEBOOK_PROTOCOL,
    SETUP,
    TIME_LIMIT_S,
    Notebook,
    NotebookError,
    RunInfo,
    dumped,
    fill,
    load_notebook,
    notebook_list,
    notebooks,
    record_command,
    record_notebook,
)
from snippets.lab.page.frame import show
from snippets.lab.recording.device import DEFAULT_DEVICE
from snippets.lab.tools.archive import ArchiveError, pack_archive, unpack_archive

# KEEP capture
# KEEP cells
# KEEP labs
# KEEP recording
from tests import page_sources
from tests.lab import samples
from tests.lab.samples import DEVICE, EVIL
from tests.test_recordings import PRIVATE

ALL = notebooks()
CPU_LIMIT_S = 20.0
COMPILERS = ("g++", "clang++")


def valid(content: dict[str, Any]) -> None:
    """Raises where Jupyter would."""
    nbformat = pytest.importorskip("nbformat", reason="it comes with mkdocs-jupyter")
    nbformat.validate(nbformat.from_dict(content))


# ---- what is committed


@pytest.mark.parametrize("lab", ALL, ids=lambda lab: lab.name)
def test_a_lab_has_the_form_of_a_lab(lab: Notebook) -> None:
    assert lab.path.read_bytes() == dumped(lab.content), "as Jupyter writes it"
    kinds = [cell["cell_type"] for cell in lab.content["cells"]]
    sources = code_cells(lab.content)
    assert 8 <= len(kinds) <= 15
    assert kinds[:2] == ["markdown", "code"]
    assert lab.name in chapters()
    guesses = [source for source in sources if source.startswith("guess = None  # ")]
    assert len(guesses) == sum(source.count("notebook.check(guess, ") for source in sources) >= 3
    prose = "\n\n".join("".join(cell["source"]) for cell in lab.content["cells"] if cell["cell_type"] == "markdown")
    assert not [line for line in prose.splitlines() if line.startswith("#") and "`" in line], "no link would find it"
    assert page_sources.stray_problems(lab.id, prose) == []
    valid(lab.content)


def test_the_first_code_cell_is_the_same_everywhere() -> None:
    first = {code_cells(lab.content)[0] for lab in ALL}
    assert len(first) == 1, "REPOSITORY, too"
    lines = [line for line in first.pop().splitlines() if not line.startswith("REPOSITORY = ")]
    assert lines == [line for line in SETUP.splitlines() if not line.startswith("REPOSITORY = ")]


@pytest.mark.parametrize("lab", ALL, ids=lambda lab: lab.name)
def test_a_recorded_lab_is_current_and_scrubbed(lab: Notebook) -> None:
    written = lab.path.read_text("utf-8")
    assert not PRIVATE.search(written)
    assert len(written.encode()) <= LIMIT_BYTES
    if lab.state == "missing":
        assert not any(cell.get("outputs") for cell in lab.content["cells"])
        pytest.skip(f"not recorded yet: {lab.id}; {record_command(lab.name)}")
    assert lab.state == "recorded", record_command(lab.name)
    assert lab.device == DEFAULT_DEVICE


# ---- each runs


@pytest.fixture(scope="module")
def ran() -> dict[str, Any]:
    """What came of all labs on the CPU, in one process: importing torch is most of the time."""
    if not any(map(shutil.which, COMPILERS)):
        pytest.skip(f"torch.compile on a CPU needs one of {', '.join(COMPILERS)}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDA_VISIBLE_DEVICES", "")
        return run_notebooks([lab.path for lab in ALL], 6 * CPU_LIMIT_S)


@pytest.mark.parametrize("lab", ALL, ids=lambda lab: lab.name)
def test_a_lab_runs_on_a_cpu(ran: dict[str, Any], lab: Notebook) -> None:
    found = ran["labs"][lab.name]
    assert found["failed"] == ""
    assert found["seconds"] < CPU_LIMIT_S
    made = RunInfo(lab.digest, found["seconds"], samples.circumstances())
    content = fill(lab, found["outputs"], made)
    assert Notebook(lab.path, content).state == "recorded"
    assert not PRIVATE.search(json.dumps(content))
    shown = [output["data"]["text/plain"] for cell in found["outputs"] for output in cell if "data" in output]
    assert shown[0].startswith("Run on a CPU: torch ")
    asked = [source for source in code_cells(lab.content) if "notebook.check(" in source]
    answered = [text for text in shown if text.startswith("No guess yet. Measured: ")]
    assert len(answered) == len(asked)
    assert not [text for text in answered if text.endswith((": nan", ": None"))]
    valid(content)


@pytest.mark.gpu
@pytest.mark.parametrize("lab", ALL, ids=lambda lab: lab.name)
def test_a_lab_runs_on_a_gpu(lab: Notebook) -> None:
    found = run_notebooks([lab.path], TIME_LIMIT_S)["labs"][lab.name]
    assert found["failed"] == ""
    shown = [output["data"]["text/plain"] for cell in found["outputs"] for output in cell if "data" in output]
    assert not shown[0].startswith("Run on a CPU")


# ---- recorded, kept, brought home


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Recordings of a sample device, and beside them one small lab."""
    root = samples.shelf(monkeypatch, tmp_path / "recordings")
    put_lab(root)
    return root


def put_lab(root: Path, *sources: str, name: str = "mlp") -> Notebook:
    code = [
        {"cell_type": "code", "execution_count": None, "id": f"c{n}", "metadata": {}, "outputs": []} for n in range(2)
    ]
    for cell, source in zip(code, sources or (SETUP, "1 + 1  # two"), strict=True):
        cell["source"] = source.splitlines(keepends=True)
    heading = {"cell_type": "markdown", "id": "m", "metadata": {}, "source": ["# A lab & more"]}
    path = root.parent / "labs" / f"{name}.ipynb"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(dumped({"cells": [heading, *code], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    return load_notebook(path)


def shows(html: str = "<p>2</p>", **more: Any) -> list[list[dict[str, Any]]]:
    data = {"text/plain": "2", "text/html": html, **more}
    return [[], [{"output_type": "execute_result", "execution_count": 2, "metadata": {}, "data": data}]]


def told(outputs: list[list[dict[str, Any]]], failed: str = "", device: str = "NVIDIA Sample") -> dict[str, Any]:
    where = msgspec.to_builtins(samples.circumstances(device=device))
    return {"labs": {"mlp": {"outputs": outputs, "seconds": 2.5, "failed": failed}}, "circumstances": where}


def recorded(root: Path, monkeypatch: pytest.MonkeyPatch, result: dict[str, Any] | None = None) -> str:
    monkeypatch.setattr(labs, "run", lambda paths, time_limit_s: result or told(shows()))
    return record_notebook(load_notebook(root.parent / "labs/mlp.ipynb"), DEVICE)


def test_a_recorded_lab_holds_outputs_and_circumstances(shelf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (before,) = notebooks()
    assert (before.state, before.device) == ("missing", "")
    assert recorded(shelf, monkeypatch) == ""
    (after,) = notebooks()
    assert (after.state, after.device, after.title, after.id) == ("recorded", DEVICE, "A lab & more", "labs/mlp")
    assert after.made == RunInfo(before.digest, 2.5, samples.circumstances())
    assert [cell.get("execution_count") for cell in after.content["cells"]] == [None, 1, 2]
    assert after.content["cells"][2]["outputs"] == shows()[1]
    assert [path.name for path in after.path.parent.iterdir()] == ["mlp.ipynb"]


@pytest.mark.parametrize(
    ("change", "state"),
    [
        (("1 + 1", "1 + 2"), "stale"),
        (("  # two", "  # to read"), "recorded"),
        (('REPOSITORY = \\"\\"', 'REPOSITORY = \\"https://example.org/a/b\\"'), "recorded"),
        (("1 + 1", "1 +"), "unreadable: "),
        (("<p>", "<p onclick='x'>"), "unreadable: not the simple HTML of a lab: <p onclick"),
        (('"seconds": 2.5', '"seconds": "2"'), "unreadable: labs/mlp: Expected `float`, got `str` - at `$.seconds`"),
    ],
)
def test_the_state_of_a_lab(shelf: Path, monkeypatch: pytest.MonkeyPatch, change: tuple[str, str], state: str) -> None:
    recorded(shelf, monkeypatch)
    path = shelf.parent / "labs/mlp.ipynb"
    assert change[0] in path.read_text()
    path.write_text(path.read_text().replace(*change))
    assert load_notebook(path).state.startswith(state)


def test_a_change_of_the_chapter_or_the_protocol_makes_a_lab_stale(
    shelf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded(shelf, monkeypatch)
    (lab,) = notebooks()
    with monkeypatch.context() as changed:
        changed.setattr(recording, "source_digest", lambda chapter: "0" * 16)
        assert lab.state == "stale"
    assert lab.state == "recorded"
    monkeypatch.setattr(labs, "PROTOCOL", NOTEBOOK_PROTOCOL + 1)
    assert lab.state == "stale"


@pytest.mark.parametrize(
    ("result", "cause"),
    [
        (told([], failed="mlp, code cell 2: ValueError: no\nTraceback"), "mlp, code cell 2: ValueError: no"),
        (told(shows(), device="NVIDIA Other"), "it ran on NVIDIA Other, not on nvidia-sample"),
        (told(shows()[:1]), "labs/mlp: 1 outputs for 2 code cells"),
        (told(shows(**{"image/png": "aaaa"})), "labs/mlp: an output that is neither text nor HTML: execute_result"),
        (told([[], [{"output_type": "stream", "name": "stderr", "text": "x"}]]), "labs/mlp: an output that is neither"),
        (told(shows("<p>" + "a" * 200_000)), "labs/mlp: 20"),
        (told(shows('<p aria-label="a"><p aria-label="a">')), "labs/mlp: two tables of one name, which cannot be told"),
        *((told(shows(evil)), "labs/mlp: not the simple HTML of a lab: <") for evil in EVIL),
        (
            told(shows("<p><img src=x onerror=alert(1)")),
            "labs/mlp: not the simple HTML of a lab: a < that begins no tag",
        ),
        (told(shows("<!-- --><p>")), "labs/mlp: not the simple HTML of a lab: a < that begins no tag"),
    ],
)
def test_what_cannot_be_shown_is_not_kept(
    shelf: Path, monkeypatch: pytest.MonkeyPatch, result: dict[str, Any], cause: str
) -> None:
    before = samples.files(shelf.parent)
    assert recorded(shelf, monkeypatch, result).startswith(cause)
    assert samples.files(shelf.parent) == before


@pytest.mark.parametrize("content", [b"", b"{}", b'{"cells": [], "metadata": {}, "nbformat": 4}', b"\xff", b"[1]"])
def test_what_is_no_notebook_is_told(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "mlp.ipynb").write_bytes(content)
    with pytest.raises(NotebookError, match=r"^mlp\.ipynb is no notebook"):
        load_notebook(tmp_path / "mlp.ipynb")


def test_a_lab_comes_home(shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded(shelf, monkeypatch)
    home = tmp_path / "home" / "recordings"
    put_lab_in(home)
    assert pack_archive(tmp_path / "a.tar.gz", DEVICE, shelf) == 1
    assert unpack_archive(tmp_path / "a.tar.gz", home) == ([f"{DEVICE} labs/mlp"], [])
    assert samples.files(home.parent / "labs") == samples.files(shelf.parent / "labs")


def put_lab_in(root: Path, *sources: str) -> Notebook:
    root.mkdir(parents=True)
    return put_lab(root, *sources)


def test_a_lab_of_another_checkout_stays_out(shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded(shelf, monkeypatch)
    home = tmp_path / "home" / "recordings"
    lab = put_lab_in(home, SETUP, "1 + 3")
    before = lab.path.read_bytes()
    pack_archive(tmp_path / "a.tar.gz", DEVICE, shelf)
    with pytest.raises(ArchiveError, match=r"labs/mlp has other cells than the one here.*; nothing was unpacked"):
        unpack_archive(tmp_path / "a.tar.gz", home)
    assert lab.path.read_bytes() == before
    monkeypatch.setattr(recording, "BUILDER", "nvidia-other")
    with pytest.raises(ArchiveError, match=r"mlp\.ipynb is no place for a lab; nothing was unpacked"):
        unpack_archive(tmp_path / "a.tar.gz", shelf)


# ---- told


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A machine with a GPU on which nothing is measured; the labs that were run."""
    asked: list[str] = []

    def run(paths: list[Path], time_limit_s: float) -> dict[str, Any]:
        asked.extend(path.stem for path in paths)
        return told(shows())

    monkeypatch.setattr(labs, "run", run)
    monkeypatch.setattr(capture, "require_gpu", lambda: DEVICE)
    monkeypatch.setattr(capture, "record", lambda chosen, device: iter(()))
    return asked


@pytest.mark.parametrize("names", [["labs"], ["labs/mlp"], ["mlp"], []])
def test_record_runs_labs_that_are_not_current(
    shelf: Path, gpu: list[str], capsys: pytest.CaptureFixture[str], names: list[str]
) -> None:
    assert main(["record", *names]) == 0
    assert gpu == ["mlp"]
    assert "labs/mlp: recorded\n" in capsys.readouterr().out
    assert main(["record", *names]) == 0
    assert gpu == ["mlp"], "it is current now"
    assert main(["record", "--fresh", *names]) == 0
    assert gpu == ["mlp", "mlp"]


def test_record_leaves_other_labs_alone(shelf: Path, gpu: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["record", "linear", "mlp/eager"]) == 0
    monkeypatch.setattr(capture, "require_gpu", lambda: "nvidia-other")
    assert main(["record"]) == 0
    assert gpu == []


def test_a_lab_that_fails_is_named_with_its_cause(
    shelf: Path, gpu: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(labs, "run", lambda paths, time_limit_s: told([], failed="mlp, code cell 2: no\nTraceback"))
    assert main(["record", "labs/mlp"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[1:] == ["labs/mlp: mlp, code cell 2: no", f"{DEVICE}: 0 recorded, 0 failed", *lines[3:]]
    assert lines[3:] == ["  labs/mlp: mlp, code cell 2: no", "Traceback"]


def test_no_such_lab(shelf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["record", "labs/mpl"]) == 2
    assert capsys.readouterr().err == "error: no lab 'labs/mpl'; there are labs/mlp\n"


def test_the_list_and_its_page_tell_the_state(
    shelf: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def told_states() -> tuple[str, str]:
        main(["list", "--device", DEVICE])
        line = next(line for line in capsys.readouterr().out.splitlines() if "labs/mlp" in line)
        return line.split()[1], show("labs-list", notebook_list)

    state, html = told_states()
    assert state == "missing"
    assert "not recorded yet: on the SAMPLE run <code>make record CHAPTER=labs/mlp</code>" in html
    assert '<a href="mlp/">A lab &amp; more</a>' in html
    recorded(shelf, monkeypatch)
    state, html = told_states()
    assert state == "recorded"
    assert '<td>NVIDIA Sample, <time datetime="2026-10-01T12:00:00Z">2026-10-01</time></td>' in html
    monkeypatch.setattr(labs, "PROTOCOL", NOTEBOOK_PROTOCOL + 1)
    state, html = told_states()
    assert state == "stale"
    assert "<strong>stale</strong>, its code has changed since; run <code>make record CHAPTER=labs/mlp</code>" in html
