"""The chapter fused_mlp's findings on the book's recordings: every verdict, every figure, every piece of the page."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from kinetoscope.html import Html
from snippets.fused_mlp.findings import (
    first_kernels,
    forward,
    halves,
    ideas,
    in_use,
    new_shapes,
    residency,
    shapes,
    traffic,
)
from snippets.lab.experiment import find
from snippets.lab.finding import Device, NotRecorded, NotTimed
from snippets.lab.finding.book import judge
from snippets.lab.recording.fingerprint import is_stale
from tests.chapters.fused_mlp.verdicts import CLAIMS, FINDINGS, statuses, text_of
from tests.lab.samples import BOOK

EXPLAINED = ["F16", "F43", "F110"]
IS_STALE = is_stale(BOOK["fused_mlp/fused"].recording, *find("fused_mlp/fused"))


@pytest.mark.skipif(IS_STALE, reason="its recordings are of older kernels")
def test_every_verdict_is_the_one_the_prose_was_written_for() -> None:
    judged = [judge(claim, "fused_mlp", BOOK) for claim in FINDINGS.claims]
    differing = [verdict.claim.id for verdict in judged if verdict.status == "differs"]
    measured = {verdict.claim.id for verdict in judged if verdict.measured is not None}
    assert differing == [claim_id for claim_id in EXPLAINED if claim_id in measured]


def test_every_difference_is_explained_without_numbers() -> None:
    assert [claim.id for claim in FINDINGS.claims if claim.why] == EXPLAINED
    for claim in FINDINGS.claims:
        assert not re.search(r"\d\s?(?:[mµn]s|us|[MGT]B|%|T?FLOP)", claim.why), claim.id


def test_no_claim_of_the_first_questions_is_missing() -> None:
    first = sorted(list(CLAIMS)[:20], key=lambda name: int(name[1:]))
    assert first == [*(f"F{number}" for number in range(1, 20) if number != 6), "F78", "F115"]


@pytest.mark.parametrize("name", FINDINGS.figures)
def test_every_figure_has_a_text(name: str) -> None:
    try:
        figure = FINDINGS.figures[name](BOOK)
    except (NotRecorded, NotTimed) as error:
        pytest.skip(f"not recorded yet: {error}")
    assert figure.text
    assert figure.conclusive


def test_without_recordings_nothing_is_measured(tmp_path: Path) -> None:
    assert set(statuses(Device(tmp_path, "nvidia-sample"), *CLAIMS)) == {"not measured"}


PIECES: Mapping[str, tuple[Callable[[Device], Html], tuple[str, ...]]] = {
    "traffic": (traffic.forward_traffic, ("What one forward has to move", "GELU's result, out and back")),
    "floors": (traffic.floors, ("as a copy", "two fused kernels")),
    "linear": (
        lambda device: first_kernels.linear_compared(device, 64),
        ("A Linear with GELU, 64 rows", "cuBLAS's epilogue"),
    ),
    "tuned": (ideas.tuned_table, ("first half ping-pong", "of the fastest", "cuBLAS")),
    "three forwards": (forward.three_forwards, ("One forward: eager, compiled and ours", "pingpong_kernel")),
    "shapes": (
        lambda device: shapes.shape_table(device, "interleaved"),
        ("One forward in bfloat16", "The same in float16", "65536x256x1024"),
    ),
    "from Python": (
        lambda device: shapes.shape_table(device, "from_python"),
        ("from Python, until the GPU is done", "ours, CPU", "8192x768x3080"),
    ),
    "roofline": (shapes.shape_roofline, ("1 token", "1,024 tokens", "copy")),
    "first calls": (new_shapes.first_calls, ("dynamic=False, first call", "8184", "3996")),
    "errors": (in_use.errors_table, ("Relative error against float64, float16", "8192x768x3072")),
    "training": (
        in_use.training_table,
        ("ours, recomputing", "peak memory of a step", "from Python, the CPU's", "GPU, interleaved"),
    ),
    "activations": (in_use.activations, ("GELU by erf", "SiLU")),
}


@pytest.mark.parametrize("name", PIECES)
def test_a_piece_shows_what_it_promises(name: str) -> None:
    piece, expected = PIECES[name]
    text = text_of(piece(BOOK))
    assert [words for words in expected if words not in text] == []


@pytest.mark.parametrize(
    ("piece", "rows"),
    [
        (lambda device: halves.halves(device, "eager", "bare product", "stacked", "ping-pong"), 4),
        (residency.residency, 12),
        (forward.our_kernels, 2),
    ],
)
def test_tables_have_a_row_for_each(piece: Callable[[Device], Html], rows: int) -> None:
    bodies = piece(BOOK).split("<tbody>")[1:]
    assert sum(body.partition("</tbody>")[0].count("<tr>") for body in bodies) == rows
