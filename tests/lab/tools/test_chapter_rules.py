"""Each rule of a chapter's shape against a planted fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from snippets.lab.recording.device import PROJECT
from snippets.lab.tools.chapter_rules import (
    ending_problems,
    guess_number_problems,
    guesses,
    opening_problems,
    sections,
    shape_problems,
    spoiler_problems,
    subject_of,
    veiled_problems,
)
from snippets.lab.tools.page_rules import text_problems


def guess(name: str, subject: str, veils: str = "") -> str:
    return f'''\
??? question "Guess: {name}?"

    ```python exec="on" html="on"
    from snippets.lab.page import guess_number, show
    print(show("mlp-guess-{name}", guess_number, "{subject}"{f", veils=({veils},)" if veils else ""}))
    ```

    A reason.

'''


def fence(name: str, piece: str, *subjects: str) -> str:
    listed = ", ".join(f'"{subject}"' for subject in subjects)
    return f"""\
```python exec="on" html="on"
from snippets.lab.page import {piece}, show
print(show("mlp-{name}", {piece}, {listed}))
```

"""


PAGE = (
    "# MLP\n\nA lead.\n\n## First? { #one }\n\n"
    + guess("kernels", "mlp.kernels", '"mlp-table"')
    + "Prose.\n\n"
    + fence("table", "kernel_table", "mlp/eager")
    + "**In your trace:** look.\nIf so, do.\n\n## Second?\n\n"
    + guess("claim", "claim:M1", '"mlp-check"')
    + fence("check", "verdicts", "M1")
    + "It launches `#!fig mlp.kernels`.\n\n**In your trace:** look.\n\n## Exercises\n\n"
    + guess("more", "mlp.more")
)


def test_a_good_page() -> None:
    assert shape_problems("mlp.md", PAGE) == []
    assert [section.title for section in sections("mlp.md", PAGE)] == ["First?", "Second?", "Exercises"]
    assert [subject_of(fence) for fence in guesses("mlp.md", PAGE)] == ["mlp.kernels", "claim:M1"]


def test_a_finding_begins_with_a_whole_sentence() -> None:
    listed = (
        '<div class="findings" markdown>\n\n1. **One.** Two.\n2. **Two**, as\n   **three**.\n\n</div>\n\n1. **Four**\n'
    )
    assert opening_problems("mlp.md", listed) == [
        'docs/mlp.md: "Two" stands on a line of its own; make it a whole sentence'
    ]
    assert opening_problems("mlp.md", "1. **Two**, as\n") == []


@pytest.mark.parametrize("text", ["", "# MLP\n\nA lead.\n"])
def test_a_page_without_sections(text: str) -> None:
    assert sections("mlp.md", text) == []


def test_a_chapter_whose_page_is_missing_is_left_to_the_build(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "mkdocs.yml").write_text((PROJECT / "mkdocs.yml").read_text(encoding="utf-8"), encoding="utf-8")
    assert text_problems(tmp_path) == []


def test_a_heading_inside_a_fence_does_not_count() -> None:
    assert sections("p.md", "## One\n\n```md\n## Two\n```\n\n### Three\n")[0].last == 7
    assert len(sections("p.md", "## One\n\n```md\n## Two\n```\n")) == 1


TOO_MANY = "docs/mlp.md: 4 guesses; a page has at most 3, those that it lets readers compute"


@pytest.mark.parametrize(("more", "problem"), [(1, None), (2, TOO_MANY)])
def test_too_many_guesses_without_those_of_exercises(more: int, problem: str | None) -> None:
    added = "".join(guess(f"n{number}", "mlp.x") for number in range(more))
    page = PAGE.replace("## Second?", f"{added}**In your trace:** look.\n\n## Second?")
    assert guess_number_problems("mlp.md", page) == ([problem] if problem else [])


def test_all_rules_apply_and_skip_invalid_python() -> None:
    page = guess("kernels", "mlp.kernels").replace("print(", "print((")
    assert shape_problems("mlp.md", f"## One?\n\n{page}") == [
        "docs/mlp.md:5: name what answers this guess: veils=(...)",
        'docs/mlp.md:1: end "One?" with a paragraph **In your trace:** ...',
    ]
    assert shape_problems("mlp.md", PAGE.replace("A lead.", "`#!fig mlp.kernels`"))[0].startswith(
        "docs/mlp.md:3: tells"
    )


def test_a_guess_whose_answer_is_in_sight() -> None:
    page = PAGE.replace(', veils=("mlp-table",)', "")
    assert veiled_problems("mlp.md", page) == ["docs/mlp.md:9: name what answers this guess: veils=(...)"]


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("A lead.", "A lead of `#!fig mlp.kernels`.", "docs/mlp.md:3: tells mlp.kernels, which line 9 asks for"),
        ("A lead.", "A lead of `#!fig mlp.kernels_of_all`.", None),
        ("Prose.", "Prose: `#!fig mlp.kernels`.", "docs/mlp.md:16: tells mlp.kernels, which line 9 asks for"),
        ("A reason.", "A reason: `#!fig mlp.kernels`.", None),
        ("Prose.", '`verdicts, "M1"`', "docs/mlp.md:16: tells claim:M1, which line 30 asks for"),
    ],
)
def test_what_gives_an_answer_away(old: str, new: str, problem: str | None) -> None:
    assert old in PAGE
    assert spoiler_problems("mlp.md", PAGE.replace(old, new, 1)) == ([problem] if problem else [])


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("**In your trace:** look.\nIf so", "**In your trace**: look.\nIf so", 'docs/mlp.md:5: end "First?" with'),
        ("If so, do.\n", "If so, do.\n\nMore.\n", 'docs/mlp.md:5: end "First?" with'),
        ("## Exercises", "## What else?", 'docs/mlp.md:46: end "What else?" with'),
        ("## Exercises", "## On your machine", None),
        ("## Exercises", "## What is different from the series { #differences }", None),
    ],
)
def test_a_section_that_ends_without_what_to_look_for(old: str, new: str, problem: str | None) -> None:
    assert old in PAGE
    problems = ending_problems("mlp.md", PAGE.replace(old, new))
    assert [line.partition(" a paragraph")[0] for line in problems] == ([problem] if problem else [])
