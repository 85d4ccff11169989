"""The notebooks of docs/labs: their form, and that what is recorded in them is current."""

from __future__ import annotations

import pytest

from snippets.lab.experiment import chapters
from snippets.lab.notebooks.cells import code_cells
from snippets.lab.notebooks.files import SETUP, Notebook, notebooks, record_command
from snippets.lab.notebooks.outputs import LIMIT_BYTES, dumped
from snippets.lab.recording.device import DEFAULT_DEVICE, PROJECT
from snippets.lab.tools.page_rules import stray_problems
from tests.book.test_recordings import PRIVATE
from tests.lab.notebooks.test_files import valid

ALL = notebooks(PROJECT / "docs/recordings")


@pytest.mark.parametrize("notebook", ALL, ids=lambda notebook: notebook.name)
def test_a_notebook_has_the_form_of_all(notebook: Notebook) -> None:
    assert notebook.path.read_bytes() == dumped(notebook.content), "as Jupyter writes it"
    kinds = [cell["cell_type"] for cell in notebook.content["cells"]]
    sources = code_cells(notebook.content)
    assert 8 <= len(kinds) <= 15
    assert kinds[:2] == ["markdown", "code"]
    assert notebook.name in chapters()
    guesses = [source for source in sources if source.startswith("guess = None  # ")]
    assert len(guesses) == sum(source.count("notebook.check(guess, ") for source in sources) >= 3
    prose = "\n\n".join(
        "".join(cell["source"]) for cell in notebook.content["cells"] if cell["cell_type"] == "markdown"
    )
    assert not [line for line in prose.splitlines() if line.startswith("#") and "`" in line], "no link would find it"
    assert stray_problems(notebook.id, prose) == []
    valid(notebook.content)


def test_the_first_code_cell_is_the_same_everywhere() -> None:
    first = {code_cells(notebook.content)[0] for notebook in ALL}
    assert len(first) == 1, "REPOSITORY, too"
    lines = [line for line in first.pop().splitlines() if not line.startswith("REPOSITORY = ")]
    assert lines == [line for line in SETUP.splitlines() if not line.startswith("REPOSITORY = ")]


@pytest.mark.parametrize("notebook", ALL, ids=lambda notebook: notebook.name)
def test_a_recorded_notebook_is_current_and_scrubbed(notebook: Notebook) -> None:
    written = notebook.path.read_text("utf-8")
    assert not PRIVATE.search(written)
    assert len(written.encode()) <= LIMIT_BYTES
    if notebook.state == "missing":
        assert not any(cell.get("outputs") for cell in notebook.content["cells"])
        pytest.skip(f"not recorded yet: {notebook.id}; {record_command(notebook.name)}")
    assert notebook.state == "recorded", record_command(notebook.name)
    assert notebook.device == DEFAULT_DEVICE
