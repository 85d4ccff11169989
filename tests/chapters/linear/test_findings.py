"""The chapter linear's figures and its page, on the book's recordings and with some of them altered."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kinetoscope.trace.events import Step
from kinetoscope.trace.queries import gpu_names
from snippets.lab import cache
from snippets.lab.finding import TraceError, ratio_of_kinds
from snippets.lab.finding.book import findings
from snippets.linear.findings import costs, layer
from tests.chapters.altered import AlteredDevice, replace
from tests.chapters.linear.altering import retime
from tests.lab.samples import BOOK, without_headings

FIGURES = findings("linear").figures
FIGURES_OF_TIMES = ("idle", "replay", "compiled_cpu", "compiled_gpu", "compiled_loop", "matrix_bias_bytes")
CAPTION = "What the page says"


def flat(shown: str) -> str:
    return "".join(without_headings(shown).splitlines())


def numbers(*cells: str) -> str:
    return "".join(f'<td class="number">{cell}</td>' for cell in cells)


def test_figures_are_the_arithmetic_of_the_timings(device: AlteredDevice) -> None:
    retime(device, "linear/eager", interleaved=4.0, enqueue=36.0, from_python=40.0)
    retime(device, "linear/compiled", interleaved=8.0, enqueue=90.0, from_python=92.0)
    assert {name: FIGURES[name](device).text for name in FIGURES_OF_TIMES} == {
        "idle": "90.0 %",
        "replay": "10.0x",
        "compiled_cpu": "2.50x",
        "compiled_gpu": "2.00x",
        "compiled_loop": "2.30x",
        "matrix_bias_bytes": "8.19 kB",
    }
    assert ratio_of_kinds(device["linear/eager"], "enqueue").text == "9.00x"


def test_each_piece_of_gpu_work_has_an_operator(device: AlteredDevice) -> None:
    assert layer.launched_by(device).text == "aten::addmm"
    device.steps("linear/eager", lambda step: replace(step, activities=2 * step.activities))
    assert layer.launched_by(device).text == "aten::addmm, aten::addmm"


def test_the_share_of_the_transpose_is_that_of_the_middle_step(device: AlteredDevice) -> None:
    for index, times_us in enumerate(((100.0, 10.0), (80.0, 20.0), (50.0, 10.0))):
        us = dict(zip(("aten::linear", "aten::t"), times_us, strict=True))

        def timed(step: Step, us: dict[str, float] = us) -> Step:
            ops = tuple(replace(op, duration_us=us.get(op.name, op.duration_us)) for op in step.ops)
            return replace(step, ops=ops)

        device.steps("linear/eager", timed, only=index)
    figure = layer.transpose_share(device)
    assert (figure.value, figure.spread) == (20.0, (10.0, 25.0))
    device.ops("linear/eager", lambda op: replace(op, name="aten::mT") if op.name == "aten::t" else op)
    with pytest.raises(TraceError, match="has no aten::t"):
        layer.transpose_share(device)


def test_tables_hold_what_they_show(device: AlteredDevice) -> None:
    eager, wide = (gpu_names(device[f"linear/{name}"].step) for name in ("eager", "eager_wide"))
    tree = layer.chains(device)
    order = ("<p>eager:", "aten::linear<", "aten::t<", "aten::addmm<", "<p>compiled:", "TorchDynamo Cache Lookup<")
    assert sorted(order, key=tree.index) == list(order)
    listed = flat(costs.biases(device))
    assert "<td>addmm with a matrix of bias</td><td>64x64</td><td><button" in listed
    assert (listed.count("Memcpy DtoD"), listed.count(f"<code>{eager}</code>")) == (2, 1)
    assert f"<td>graphs compiled after strides (1, 1024)</td>{numbers('2')}" in flat(layer.new_strides_table(device))
    factors = flat(costs.layouts(device))
    assert f"<td>1024x4096 transposed<small>strides (1, 1024)</small></td><td>{wide[-3:]}</td><td><button" in factors
    assert factors.count("as stored<small>") == 2


def test_pictures_show_the_gpu_work_of_their_steps() -> None:
    for piece, counts in ((costs.row_and_matrix, [2, 1]), (layer.eager_and_compiled, [2, 0])):
        picture = piece(BOOK, caption=CAPTION)
        assert [picture.count(f'class="slice {kind}"') for kind in ("gemm", "copy")] == counts


def test_compiling_changes_no_kernel_unless_it_does(device: AlteredDevice) -> None:
    assert layer.changed_by_compiling(device, caption=CAPTION).count("= same") == 1
    device.kernels("linear/compiled", lambda kernel: replace(kernel, name="triton_tem_fused_addmm_0"))
    assert layer.changed_by_compiling(device, caption=CAPTION).count("→ replaced") == 1


def test_charts_are_of_the_timings(device: AlteredDevice) -> None:
    retime(device, "linear/compiled_wide", interleaved=7.0, enqueue=70.0)
    bars = flat(costs.both_layers(device, caption=CAPTION))
    assert f"<td>compiled, 64x1024→4096</td><td>interleaved</td>{numbers('7.00 µs', '7.00 to 7.00 µs')}" in bars
    assert f"<td>compiled, 64x1024→4096</td><td>CPU part</td>{numbers('70.0 µs', '70.0 to 70.0 µs')}" in bars
    flops = device["linear/eager_wide"].points[0].flops
    retime(device, "linear/sweep_eager", 64, interleaved=flops / 1e6)
    roofline = flat(costs.wide_roofline(device, caption=CAPTION))
    assert f"<td>64 rows</td>{numbers('59.3', '1.00 TFLOP/s')}" in roofline
    assert [f"<td>{rows}</td>" in roofline for rows in ("1 row", "4,096 rows", "16,384 rows")] == [True, True, False]
    retime(device, "linear/sweep_eager", enqueue=30.0)
    regimes = costs.wide_regimes(device, caption=CAPTION)
    assert "eager: overhead-bound up to 1,024 rows" in regimes
    assert "compiled: overhead-bound up to 4,096 rows" in regimes


def test_the_table_of_strides_says_what_it_was_given() -> None:
    given = {"m": [[3, 2], [2, 1]], "same memory": False, "m.t().flatten()": [0, 2], "<b>": "<i>"}
    shown = flat(layer.values_table(given))
    assert "<td><code>m</code></td><td>shape (3, 2), strides (2, 1)</td>" in shown
    assert "<td><code>same memory</code></td><td>no</td>" in shown
    assert "<td>[0, 2]</td>" in shown
    assert "<td><code>&lt;b&gt;</code></td><td>&lt;i&gt;</td>" in shown


def test_the_matrix_small_enough_to_see() -> None:
    rows = flat(layer.strides_table(BOOK))
    assert "<td><code>m</code></td><td>shape (3, 2), strides (2, 1)</td>" in rows
    assert "<td><code>m.t()</code></td><td>shape (2, 3), strides (1, 2)</td>" in rows
    assert "<td><code>same memory</code></td><td>yes</td>" in rows


def test_a_matrix_that_was_seen_is_not_made_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A second build does without torch, which takes seconds to import."""
    monkeypatch.setattr(cache, "PROJECT", tmp_path)
    first = layer.strides_table(BOOK)
    monkeypatch.setitem(sys.modules, "snippets.linear.model", None)  # an import of it is an error
    assert layer.strides_table(BOOK) == first
