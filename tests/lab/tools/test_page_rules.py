"""Each rule of pages against a planted fault: a rule that has never stopped anything is a hope."""

from __future__ import annotations

from pathlib import Path

import pytest

from snippets.lab.tools.page_rules import (
    claim_problems,
    fence_problems,
    figure_problems,
    guess_problems,
    quiz_problems,
    section_problems,
    stray_problems,
    text_problems,
    veil_problems,
    width_problems,
)
from snippets.lab.tools.page_text import fences
from tests.lab import samples
from tests.lab.conftest import Book

FENCE = """\
```python exec="on" html="on"
from snippets.lab.page import kernel_table, show
print(show("mlp-kernels", kernel_table, "mlp/eager"))
```
"""


def lint(text: str) -> list[str]:
    return fence_problems(fences("mlp.md", text))


def test_a_good_fence_passes() -> None:
    assert lint(FENCE) == []


def test_a_good_fence_passes_inside_an_admonition() -> None:
    indented = "".join(f"    {line}\n" for line in FENCE.splitlines())
    assert lint(f"!!! note\n\n{indented}") == []


def test_a_fence_shown_inside_a_longer_one_is_text() -> None:
    bad = FENCE.replace('html="on"', "")
    assert lint(f"````markdown\n{bad}````\n") == []


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('exec="on"', "exec=on", "the header of an executed fence must be"),
        ("python exec", '{.python exec="on"} exec', "the header of an executed fence must be"),
        ("python exec", "bash exec", "the header of an executed fence must be"),
        ('html="on"', 'html="on" html="on"', "the header of an executed fence must be"),
        (' html="on"', "", "the header of an executed fence must be"),
        ('html="on"', 'html="on" session="s"', "the header of an executed fence must be"),
        ('html="on"', 'html="on" id="mlp-kernels"', "the header of an executed fence must be"),
        ('exec="on"', 'exec="yes"', "the header of an executed fence must be"),
        ('show("mlp-kernels"', 'show("linear-kernels"', 'must begin with the name of its page: "mlp-..."'),
        ('show("mlp-kernels"', "show(name", 'end with one print(show("mlp-...", ...)): '),
        ("print(show", "print(str", 'end with one print(show("mlp-...", ...)): '),
        ("print(show", "(show", 'end with one print(show("mlp-...", ...)): '),
        ("print(show", 'show("mlp-x"); print(show', 'end with one print(show("mlp-...", ...)): '),
        ("from snippets.lab.page import", "from torch import", "imports torch; import only snippets"),
        ("from snippets.lab.page import", "from .page import", "imports page; import only snippets"),
        ("kernel_table, show\n", "kernel_table, show\nx = 1\n", "3 lines, but the limit is 2"),
        ("print(", "print((", "not Python"),
        ('eager"))\n```\n', 'eager"))\n', "not closed"),
    ],
)
def test_a_fence_that_could_fail_without_a_word(old: str, new: str, problem: str) -> None:
    assert old in FENCE
    problems = lint(FENCE.replace(old, new))
    assert any(problem in line for line in problems), problems
    assert all(line.startswith("docs/mlp.md:1: ") for line in problems)


def test_an_id_taken_on_another_page() -> None:
    twice = fences("labs/index.md", FENCE.replace("mlp-", "labs-")) + fences("labs.md", FENCE.replace("mlp-", "labs-"))
    assert fence_problems(twice) == ['docs/labs.md:1: the id "labs-kernels" is taken by docs/labs/index.md:1']


MARKED = "# --8<-- [start:geglu]\nx = 1\n# --8<-- [end:geglu]\n"


@pytest.mark.parametrize(
    ("page", "source", "problem"),
    [
        ('--8<-- "m.py:geglu"', MARKED, None),
        ('--8<-- "m.py:geglu"\n--8<-- "m.py"', MARKED, None),
        (';--8<-- "m.py:other"\n--8<-- "m.py:geglu"', MARKED, None),
        ("no section", MARKED, "section geglu is marked but no page shows it"),
        (
            '--8<-- "m.py:other"\n--8<-- "m.py:geglu"',
            MARKED,
            "p.md:1: shows m.py:other, which is not marked",
        ),
        ('--8<-- "m.py:1:2"\n--8<-- "m.py:geglu"', MARKED, "shows m.py:1:2, which is not marked there"),
        ('--8<-- "n.py:geglu"\n--8<-- "m.py:geglu"', MARKED, "shows n.py, which does not exist"),
        ('--8<-- "m.py:geglu"', MARKED + MARKED, "section geglu starts twice"),
        ('--8<-- "m.py:geglu"', MARKED.replace("# --8<-- [end:geglu]", ""), "section geglu never ends"),
        ('--8<-- "m.py:geglu"', MARKED + "# --8<-- [end:b]", "section b ends without a start"),
    ],
)
def test_sections(page: str, source: str, problem: str | None) -> None:
    problems = section_problems({"p.md": page}, {"m.py": source})
    assert (problems == []) if problem is None else any(problem in line for line in problems), problems


FITS, WIDE = "x" * 80, "y" * 81


@pytest.mark.parametrize(
    ("page", "source", "problems"),
    [
        ('--8<-- "m.py"', f"{FITS}\n{WIDE}\n", ["m.py:2: 81 columns of shown code, at most 80 fit"]),
        ('--8<-- "m.py:a"', f"{WIDE}\n# --8<-- [start:a]\n{FITS}\n# --8<-- [end:a]\n", []),
        (
            '--8<-- "m.py:a"\n--8<-- "m.py:a"',
            f"# --8<-- [start:a]\n    {FITS}\n    {WIDE}\n# --8<-- [end:a]\n",
            ["m.py:3: 81 columns of shown code, at most 80 fit"],
        ),
        (f"    ```sh\n    {FITS}\n    {WIDE}\n    ```", "", ["docs/p.md:3: 81 columns of shown code, at most 80 fit"]),
        (f'```python exec="on" html="on"\n{WIDE}\n```\n{WIDE}', "", []),
    ],
)
def test_shown_code_fits_its_frame(page: str, source: str, problems: list[str]) -> None:
    assert width_problems({"p.md": page}, {"m.py": source}) == problems


@pytest.mark.parametrize(
    "prose",
    [
        "It takes 12.5 us.",
        "It takes 12.5 µs on average.",
        "About 3 ms, or 0.4 s.",
        "a 40-microsecond gap",
        "It reaches 617 TFLOP/s.",
        "4.8 TB/s and 80 GB of it",
        "It is 35 % faster.",
        "That is 2.5x faster.",
        "That is 3× as much.",
        "10 times slower",
        "| eager | 5 kernels |",
        "**12&nbsp;MiB**",
        "## The 50 MB question",
    ],
)
def test_a_number_with_a_unit_is_a_stray(prose: str) -> None:
    assert len(stray_problems("p.md", f"# A page\n\n{prose}\n")) >= 1
    assert stray_problems("p.md", f"# A page\n\n{prose}\n", allowed=[prose]) == []


@pytest.mark.parametrize(
    "prose",
    [
        "It takes `#!fig mlp.eager.gpu_us` of `#!src M3`.",
        "A 64x128x768 input on an H200 in bf16, torch 2.11.0+cu130, Python 3.11.",
        "Five kernels, twice, per step 2.",
        "Run `make docs # 3 s`, or\n\n```\nsleep 3 s\n```\n",
        "See [the post](https://example.org/10x-faster) and <img width='50%' src='a.svg'>.",
        "![x](a.svg){ width=50% }",
        "<!-- 12 us -->",
        "Steps 2, 3 and 4 agree; item 3 stands.",
    ],
)
def test_text_without_stray_numbers(prose: str) -> None:
    assert stray_problems("p.md", prose) == []


GUESS = """\
??? question "Guess: how many kernels?"

    ```python exec="on" html="on"
    from snippets.lab.page import guess_number, show
    print(show("mlp-guess-kernels", guess_number, "mlp.eager.kernels_per_step", "kernels"))
    ```

    One for each operator.

Then the page goes on.
"""


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("???", "???", None),
        ("???", "???+", None),
        ("??? question", "!!! question", "docs/mlp.md:3: put this guess into a block ??? question"),
        ("??? question", "??? note", "docs/mlp.md:3: put this guess into a block ??? question"),
        ("    One for each operator.\n", "", "docs/mlp.md:3: below this guess, in the same block, give the reason"),
        ("    One for", "One for", "docs/mlp.md:3: below this guess, in the same block, give the reason"),
        (
            "from snippets.lab.page import guess_number, show",
            "from snippets.mlp.findings import ask, show",
            None,
        ),
    ],
)
def test_a_guess_is_folded_and_has_its_reason(old: str, new: str, problem: str | None) -> None:
    assert old in GUESS
    problems = guess_problems("mlp.md", GUESS.replace(old, new))
    assert (problems == []) if problem is None else [line[: len(problem)] for line in problems] == [problem]


def test_a_guess_of_a_chapters_own_is_known_by_its_id() -> None:
    own = GUESS.replace("guess_number", "ask")
    assert guess_problems("mlp.md", own) == []
    assert len(guess_problems("mlp.md", own.replace("??? question", "!!! question"))) == 1


def test_only_pages_of_chapters_ask(tmp_path: Path) -> None:
    assert quiz_problems("devices.md", GUESS) == [
        "docs/devices.md:3: asks for a guess, but this is no page of a chapter; say it in prose"
    ]
    (tmp_path / "docs").mkdir()
    (tmp_path / "mkdocs.yml").write_text("nav:\n  - Chapters:\n      - MLP: mlp.md\n", encoding="utf-8")
    for page in ("mlp", "devices"):
        (tmp_path / "docs" / f"{page}.md").write_text(GUESS.replace("mlp-", f"{page}-"), encoding="utf-8")
    assert [line for line in text_problems(tmp_path) if "no page of a chapter" in line] == quiz_problems(
        "devices.md", GUESS
    )


VEIL = GUESS.replace('"kernels"))', '"kernels", veils=("mlp-kernels",)))') + FENCE
CHECK = FENCE.replace("mlp-kernels", "mlp-check").replace("kernel_table", "verdicts").replace("mlp/eager", "M1")
TWO = VEIL.replace('("mlp-kernels",)', '("mlp-kernels", "mlp-other")')


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (VEIL, None),
        (VEIL + FENCE.replace("mlp-kernels", "mlp-other"), None),
        (TWO + FENCE.replace("mlp-kernels", "mlp-other").replace("kernel_table", "verdicts"), None),
        (
            TWO + FENCE.replace("mlp-kernels", "mlp-other"),
            "docs/mlp.md:3: veils 2 figures (mlp-kernels, mlp-other); one answers the guess",
        ),
        (GUESS, None),
        (
            VEIL.replace(FENCE, ""),
            'docs/mlp.md:3: veils "mlp-kernels", which is no fence of this page; name the id of a fence',
        ),
        (
            VEIL.replace('"mlp-kernels",)', '"M1",)') + CHECK,
            'docs/mlp.md:3: veils "M1", which is no fence of this page; name the fence "mlp-check", which shows it',
        ),
        (FENCE + VEIL.replace(FENCE, ""), 'docs/mlp.md:7: veils "mlp-kernels", which the reader sees before the guess'),
        (
            VEIL.replace("mlp-kernels", "mlp-guess-again"),
            'docs/mlp.md:3: veils "mlp-guess-again", which is a guess itself',
        ),
        (
            VEIL.replace("mlp-guess-kernels", "mlp-guess-first").replace(FENCE, "") + VEIL,
            'docs/mlp.md:13: veils "mlp-kernels", which docs/mlp.md:3 veils already',
        ),
    ],
)
def test_a_veil_falls_on_what_is_below_the_guess(text: str, problem: str | None) -> None:
    assert veil_problems("mlp.md", text) == ([] if problem is None else [problem])


def test_names_in_prose_exist_recorded_or_not(book: Book) -> None:
    book(mlp=samples.findings(samples.claim(id="M1"), kernels=lambda device: device["mlp/eager"].time()))
    text = (
        "# MLP\n\n`#!fig mlp.kernels` and `#!fig mlp.eager.busy_us`, `#!fig mlp.kernles`\n"
        "`#!fig mlp.eager.buzy_us`, `#!fig mlp.eagre.busy_us`, `#!src M11`\n"
    )
    assert [problem.partition(" or ")[0].rstrip("?") for problem in figure_problems("mlp.md", text)] == [
        "docs/mlp.md:3: #!fig mlp.kernles: no figure 'mlp.kernles'; did you mean mlp.kernels",
        "docs/mlp.md:4: #!fig mlp.eager.buzy_us: no quantity 'buzy_us'; did you mean busy_us",
        "docs/mlp.md:4: #!fig mlp.eagre.busy_us: no experiment 'mlp/eagre'; did you mean mlp/eager",
        "docs/mlp.md:4: #!src M11: no claim 'M11'; did you mean M1",
    ]


def test_a_claim_without_a_verdict_on_its_page(book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    book(mlp=samples.findings(samples.claim(id="M1"), samples.claim(id="M2")))
    monkeypatch.setattr("snippets.lab.tools.page_rules.chapters_with_findings", lambda: ("mlp",))
    shown = {"mlp.md": 'print(show("mlp-check", verdicts, "M1"))'}
    assert claim_problems(shown) == ['docs/mlp.md: the claim M2 has no verdict here; add verdicts with "M2" to a fence']


def test_a_verdict_may_be_on_another_page_of_the_chapter(book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    book(mlp=samples.findings(samples.claim(id="M1")))
    monkeypatch.setattr("snippets.lab.tools.page_rules.chapters_with_findings", lambda: ("mlp",))
    monkeypatch.setattr("snippets.lab.tools.page_rules.chapter_pages", lambda chapter: ("mlp", "mlp_race"))
    shown = {"mlp_race.md": 'print(show("mlp-race-check", verdicts, "M1"))'}
    assert claim_problems(shown) == []
