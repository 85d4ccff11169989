"""The chapter mlp: what its figures and pieces show."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from html import unescape
from pathlib import Path

import pytest

from kinetoscope.html import Html
from snippets.lab.finding.device import Device
from snippets.lab.page import kernel_table, profiler_table, show, timeline
from snippets.lab.page.verdict import measured_html
from snippets.mlp.findings import choices, costs, eager, fused_kernels, fusion
from tests.chapters.altered import measured, poor_figures, verdict
from tests.chapters.mlp.changes import CLAIMS, renamed
from tests.chapters.mlp.probes import probed


def test_every_figure_has_a_text() -> None:
    assert poor_figures("mlp", probed()) == []


def text_of(content: str) -> str:
    """Its text, and the names that only a screen reader reads."""
    named = re.sub(r'<svg[^>]* aria-label="([^"]*)"[^>]*>', r" \1 ", content)
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", named)))


def captioned(piece: Callable[..., Html]) -> Callable[[Device], Html]:
    """A piece to which its page gives the caption."""
    return partial(piece, caption="What the page says")


PIECES: Mapping[str, tuple[Callable[[Device], Html], tuple[str, ...]]] = {
    "forward": (
        lambda device: timeline(device, {"eager": "mlp/eager"}, "One eager forward"),
        ("5 kernels, 2 fills", "aten::gelu", "Open the whole trace in Perfetto"),
    ),
    "kernels": (
        lambda device: kernel_table(device, "mlp/eager"),
        ("fill of memory", "aten::gelu", "cuLaunchKernelEx", "2x66x1"),
    ),
    "operators": (
        lambda device: profiler_table(device, "mlp/eager"),
        ("aten::matmul", "6 operators without GPU work", "aten::as_strided"),
    ),
    "gemms": (costs.gemm_times, ("gate, 8192x768x3072", "down, 8192x3072x768", "interleaved")),
    "after idle": (eager.after_idle, ("up after a fill of memory", "500 51.0 µs 50.5 to 51.5 µs gap 50.0 µs")),
    "compiled": (captioned(fusion.compiled_step), ("eager, CPU", "compiled, CPU", "TorchDynamo Cache Lookup")),
    "compiled diff": (
        captioned(fusion.compiled_diff),
        ("replaced", "operators and regions 29 8 −21", "bytes moved 455 MB 354 MB −101 MB"),
    ),
    "Liger diff": (fusion.liger_diff, ("The layer came from", "replaced", "operators and regions 29 33 +4")),
    "traffic": (fusion.traffic, ("eager: 252 MB", "compiled: 151 MB", "GELU's result, read again")),
    "footprints": (fusion.footprints, ("49,152", "8,192", "Inductor's")),
    "choices": (
        choices.choices,
        (
            "1024 elements for 128 threads: 1 of 4, room 2 of 2",
            "default 2 1024 elements for 128 threads 40.0 µs 1024 elements, 4 warps",
        ),
    ),
    "conditions": (choices.conditions, ("as in a new process 3 of 4 60.5 µs", "coordinate_descent_tuning 2 of 2")),
    "forwards": (fused_kernels.forwards, ("compiled, slower kernel", "222 µs", "Liger")),
    "side by side": (captioned(costs.side_by_side), ("AOTDispatcher Runtime Wrapper Prologue", "LigerGELUMulFunction")),
    "opening": (costs.opening, ("1 token", "8,192 tokens", "eager", "compiled")),
    "new shapes": (fusion.new_shapes, ("dynamic=False, compilations", "64", "48")),
    "bought": (costs.bought, ("GPU, interleaved", "GPU, steady", "of eager", "from Python", "relative error")),
    "kernel times": (captioned(costs.kernel_times), ("eager: ", "compiled: ", "Liger: ")),
    "regimes": (captioned(costs.regimes_by_tokens), ("16,384", "compiled: overhead-bound up to")),
    "roofline": (costs.roofline_by_tokens, ("1 token:", "16,384 tokens:", "copy")),
    "widths": (fused_kernels.widths, ("3072 columns, Inductor", "4096 columns, Liger")),
    "replayed": (costs.replayed, ("Liger, CUDA graph", "eager, Python")),
}


def test_a_piece_shows_what_it_promises() -> None:
    device = probed()
    texts = {name: text_of(piece(device)) for name, (piece, _) in PIECES.items()}
    assert [(name, words) for name, (_, each) in PIECES.items() for words in each if words not in texts[name]] == []


def test_a_hostile_name_stays_text() -> None:
    device = probed()
    for variant in ("eager", "compiled", "liger"):
        device.kernels(f"mlp/{variant}", renamed("_", "<script>"))
    device.data("mlp/liger", liger="<script>")
    for piece, _ in PIECES.values():
        assert "<script" not in piece(device)
    assert "<script" in str(measured(device, "M10").value)
    for name in CLAIMS:
        assert "<script" not in measured_html(verdict(device, name))


def test_a_missing_recording_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECORDINGS", str(tmp_path))
    assert "Not recorded on the H200." in show("mlp-traffic", fusion.traffic)
