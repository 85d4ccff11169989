"""The rules of the rooms: each finds nothing, and finds the fault that is planted for it."""

from __future__ import annotations

import ast
import sys

import pytest

from snippets.lab.experiment import chapters
from snippets.lab.recording.device import PROJECT
from tests.lab.rooms import (
    CHAPTERS,
    LEVELS,
    LONG_FILES,
    RULES,
    SHARED_FINDINGS,
    WORDS,
    Rule,
    experiments_import_nothing_of_the_lab_but_experiment,
    files_are_short,
    functions_are_short,
    imports,
    imports_go_downwards,
    module_name,
    no_circles,
    no_import_takes_a_good_name,
    only_the_book_imports_findings,
    page_never_imports_notebooks_or_tools,
    parsed,
    rooms_map_their_files,
    sources,
    the_lab_names_no_chapter,
    trace_imports_no_other_room,
    what_shows_never_imports_what_measures,
)

TRACE, FRAME, BOOK = "kinetoscope/trace/queries.py", "snippets/lab/page/frame.py", "snippets/lab/finding/book.py"
CANVAS, FINDINGS = "kinetoscope/timeline/canvas.py", "snippets/kernel_names/findings.py"
IN_A_FUNCTION = "\n\ndef planted():\n    {}\n"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_a_rule_holds(rule: Rule) -> None:
    assert rule(sources()) == []


@pytest.mark.parametrize(
    ("rule", "path", "planted", "problem"),
    [
        (
            trace_imports_no_other_room,
            TRACE,
            "from snippets.lab.recording.schema import Timing",
            "trace imports snippets.lab.recording.schema",
        ),
        (trace_imports_no_other_room, TRACE, "from kinetoscope.html import Html", "trace imports kinetoscope.html"),
        (
            imports_go_downwards,
            CANVAS,
            "from snippets.lab.page import show",
            "drawing imports snippets.lab.page",
        ),
        (
            imports_go_downwards,
            "snippets/lab/capture/timing.py",
            "from snippets.lab.finding.figure import Figure",
            "capture imports snippets.lab.finding.figure",
        ),
        (
            imports_go_downwards,
            "snippets/lab/cache.py",
            "from kinetoscope.trace.text import shortened",
            "cache imports kinetoscope.trace.text",
        ),
        (
            what_shows_never_imports_what_measures,
            BOOK,
            "from snippets.lab.capture.timing import time_interleaved",
            "snippets.lab.finding.book imports snippets.lab.capture",
        ),
        (
            what_shows_never_imports_what_measures,
            CANVAS,
            "import snippets.lab.notebook",
            "kinetoscope.timeline.canvas imports snippets.lab.notebook imports snippets.lab.capture",
        ),
        (
            what_shows_never_imports_what_measures,
            FINDINGS,
            "from snippets.lab import notebook",
            "snippets.kernel_names.findings imports snippets.lab.notebook imports snippets.lab.capture",
        ),
        (
            page_never_imports_notebooks_or_tools,
            FRAME,
            "from snippets.lab.tools.page_text import pages",
            "page imports snippets.lab.tools.page_text",
        ),
        (
            page_never_imports_notebooks_or_tools,
            FRAME,
            "from snippets.lab.notebooks.files import notebooks",
            "page imports snippets.lab.notebooks.files",
        ),
        (the_lab_names_no_chapter, FRAME, 'FIRST = "mlp/eager"', "the lab names the chapter mlp: 'mlp/eager'"),
        (the_lab_names_no_chapter, FRAME, 'FIRST = "fused_mlp"', "the lab names the chapter fused_mlp: 'fused_mlp'"),
        (the_lab_names_no_chapter, FRAME, "from snippets.mlp.model import GeGLU", "the lab imports snippets.mlp.model"),
        (
            the_lab_names_no_chapter,
            FRAME,
            'import_module("snippets.mlp.model")',
            "the lab names the chapter mlp: 'snippets.mlp.model'",
        ),
        (
            experiments_import_nothing_of_the_lab_but_experiment,
            "snippets/linear/experiments.py",
            "from snippets.lab.capture.timing import time_interleaved",
            "a chapter's experiments import snippets.lab.capture.timing",
        ),
        (
            only_the_book_imports_findings,
            FRAME,
            "from snippets.linear.findings import FIGURES",
            "imports snippets.linear.findings",
        ),
        (
            only_the_book_imports_findings,
            FINDINGS,
            "from snippets.linear import findings",
            "imports snippets.linear.findings",
        ),
        (
            only_the_book_imports_findings,
            FRAME,
            'import_module(f"snippets.{chapter}.findings")',
            "imports findings by name: '.findings'",
        ),
        (
            no_circles,
            TRACE,
            "from kinetoscope.trace.totals import summarize",
            "kinetoscope.trace.queries imports kinetoscope.trace.totals imports kinetoscope.trace.queries",
        ),
        (no_import_takes_a_good_name, FRAME, "from snippets.lab import recording", "an import binds 'recording'"),
        (no_import_takes_a_good_name, FINDINGS, "import snippets.lab.page as page", "an import binds 'page'"),
        (
            no_import_takes_a_good_name,
            FINDINGS,
            "from snippets.lab.capture import timing",
            "an import binds 'timing'",
        ),
    ],
)
@pytest.mark.parametrize("form", ["{}\n", IN_A_FUNCTION], ids=["at the top", "in a function"])
def test_a_rule_finds_the_fault_that_breaks_it(rule: Rule, path: str, planted: str, problem: str, form: str) -> None:
    text = sources()[path]
    problems = rule({**sources(), path: text + "\n" + form.format(planted)})
    mine = [each for each in problems if each.startswith(f"{path}:")]
    line = text.count("\n") + 2 + form.split("{}")[0].count("\n")
    chains = (no_circles, what_shows_never_imports_what_measures)
    assert len(mine) == 1
    assert mine[0].startswith(f"{path}: " if rule in chains else f"{path}:{line}: ")
    assert problem in mine[0]


def test_a_docstring_may_name_a_chapter() -> None:
    planted = sources()[FRAME] + '\n\nNAME = ""\n"""mlp/eager"""\n\n\ndef planted():\n    """mlp"""\n'
    assert the_lab_names_no_chapter({**sources(), FRAME: planted}) == []


def test_a_file_and_a_function_that_are_too_long() -> None:
    path = "snippets/lab/page/long.py"
    problem = f"{path}: 301 lines; at most 300: part it, or give a reason in LONG_FILES"
    assert problem in files_are_short({**sources(), path: "x = 1\n" * 301})
    assert not [each for each in files_are_short({**sources(), path: "x = 1\n" * 300}) if each.startswith(path)]
    long, (limit, _) = next(iter(LONG_FILES.items()))
    assert f"{long}: is short; take it out of LONG_FILES" in files_are_short({**sources(), long: "x = 1\n"})
    assert any(each.startswith(long) for each in files_are_short({**sources(), long: "x = 1\n" * (limit + 1)}))
    long_function = {FRAME: "def planted():\n" + "    x = 1\n" * 60}
    assert functions_are_short(long_function) == [f"{FRAME}:1: planted has 61 lines; at most 60"]
    assert functions_are_short({FRAME: "def planted():\n" + "    x = 1\n" * 59}) == []


def test_a_map_that_is_not_its_folder() -> None:
    path = "snippets/lab/recording/__init__.py"
    text = sources()[path]
    assert "scrub.py " in text
    other = {**sources(), path: text.replace("scrub.py ", "scrap.py ")}
    assert [each for each in rooms_map_their_files(other) if each.startswith(path)] == [
        f"{path}: does not list scrub.py",
        f"{path}: lists scrap.py, which is not there",
    ]


def test_exceptions_are_needed_and_have_reasons() -> None:
    needed = {path: text for path, text in sources().items() if path in {path for path, _ in WORDS}}
    strings = {
        (path, node.value)
        for path, text in needed.items()
        for node in ast.walk(parsed(text))
        if isinstance(node, ast.Constant)
    }
    assert strings >= WORDS.keys()
    assert all(WORDS.values())
    assert all(SHARED_FINDINGS.values())
    assert all(reason for _, reason in LONG_FILES.values())


def test_rooms_are_what_we_think() -> None:
    folders = {path.split("/")[2] for path in sources() if path.startswith("snippets/lab/") and path.count("/") == 3}
    assert folders == LEVELS.keys() - {"notebook", "__main__"}
    assert {"mlp", "linear", "kernel_names", "reading_a_trace"} <= set(CHAPTERS)
    assert {"snippets/lab/finding/book.py", "snippets/mlp/model.py"} <= sources().keys()


def test_only_what_measures_imports_torch() -> None:
    """`experiment` for the helpers of makers; `run`, `doctor` and notebooks where asked for, inside functions."""
    users = {
        path
        for path in sources()
        if path.startswith("snippets/lab/") and not path.startswith("snippets/lab/capture/")
        for each in imports(path, sources())
        if each.module.split(".")[0] in ("torch", "triton")
    }
    assert users == {
        "snippets/lab/experiment.py",
        "snippets/lab/notebook.py",
        "snippets/lab/tools/run.py",
        "kinetoscope/doctor/torch_probe.py",
    }


SHOWN_ONLY = {
    "attention": {"online_softmax.py": "explains an idea on the CPU: no recording may depend on it"},
    "matmul_add": {"record.py": "the profiler around the model, as a reader types it; a test runs it"},
}
"""Chapter -> a file that is shown and run, but not measured -> why it is not in model.py."""
SUBJECTS = [
    f"snippets/{chapter}/{name}"
    for chapter, name in ((path.split("/")[1], path.split("/", 2)[-1]) for path in sources())
    if name in ("model.py", "kernels.py", *SHOWN_ONLY["attention"]) or name.startswith("geglu/")
]


@pytest.mark.parametrize("path", SUBJECTS)
def test_what_readers_copy_imports_nothing_of_ours(path: str) -> None:
    chapter = path.rpartition("/")[0]
    own = {module_name(other) for other in SUBJECTS if other.startswith(f"{chapter}/")}
    others = {
        each.module
        for each in imports(path, sources())
        if each.module.split(".")[0] not in {"torch", "triton", *sys.stdlib_module_names}
    }
    assert others <= own


FILES_OF_A_CHAPTER = {"model.py", "kernels.py", "experiments.py", "findings.py", "findings"}
MORE_FILES = {
    "fused_mlp": {
        "geglu": "the subject: a package that others can load, hashed like model.py",
        "halves.py": "a part of experiments.py",
        "forwards.py": "a part of experiments.py",
        "launching.py": "a part of experiments.py",
        "peers.py": "a part of experiments.py",
        "portability.py": "a part of experiments.py",
        "probes.py": "a part of experiments.py",
        "subjects.py": "what they share",
        "architectures.py": "what portability.py asks of the compiler",
        "compiling.py": "how it reads machine code",
        "activations.py": "the sweep of portability.py",
    },
    "regimes": {
        "growth.py": "a part of experiments.py",
        "launches.py": "a part of experiments.py",
        "subjects.py": "the steps that they measure",
        "compiling.py": "a part of experiments.py",
        "compiled.py": "what compiling.py asks of the compiler",
        "fusing.py": "a part of experiments.py",
        "layer.py": "the subject of fusing.py and spilling.py",
        "spilling.py": "a part of experiments.py",
    },
    "training_step": {
        "compiling.py": "a part of experiments.py",
        "data.py": "the batches in which a fault shows",
        "faults.py": "what is planted in model.py, and the mends: hashed like it",
        "probes.py": "a part of experiments.py",
        "record.py": "the lines of the page that profile a reader's own loop",
    },
    "training_memory": {
        "precision.py": "a part of experiments.py",
        "memory.py": "a part of experiments.py",
        "timeline.py": "a part of memory.py",
        "phases.py": "what the page shows of memory.py: hashed like it",
        "allocator.py": "a part of experiments.py",
        "fragments.py": "what the page shows of allocator.py: hashed like it",
        "shapes.py": "what a forward keeps, derived; shown beside what was measured",
    },
}
"""Chapter -> further files, and why."""


@pytest.mark.parametrize("chapter", chapters())
def test_a_chapter_is_at_most_four_files(chapter: str) -> None:
    """And packages in the form that `kernels` loads, and what is in `SHOWN_ONLY` or `MORE_FILES`."""
    folder = PROJECT / "snippets" / chapter
    entries = {path.name for path in folder.iterdir()} - {"__pycache__", "__init__.py"}
    others = {path.name for path in folder.glob("*_kernels")} | set(SHOWN_ONLY.get(chapter, ()))
    assert entries - FILES_OF_A_CHAPTER == others | set(MORE_FILES.get(chapter, ()))
    assert "experiments.py" in entries
