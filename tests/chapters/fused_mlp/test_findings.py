"""The chapter fused_mlp's findings on the book's recordings: every piece of the page."""

from __future__ import annotations

from collections.abc import Callable, Mapping

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
from snippets.lab.finding import Device
from tests.chapters.fused_mlp.verdicts import text_of
from tests.lab.samples import BOOK

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


def test_a_piece_shows_what_it_promises() -> None:
    texts = {name: text_of(piece(BOOK)) for name, (piece, _) in PIECES.items()}
    assert [(name, words) for name, (_, each) in PIECES.items() for words in each if words not in texts[name]] == []


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
