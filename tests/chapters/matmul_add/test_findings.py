"""How the chapter matmul_add reads traces, its figures, and what its page shows: exact, in the world of the post."""

from __future__ import annotations

import re
from html import unescape

import pytest

from snippets.lab.finding import Figure, TraceError
from snippets.lab.finding.book import findings
from snippets.lab.page import dispatch_tree, kernel_table, profiler_table
from snippets.matmul_add.findings import costs, overhead
from snippets.matmul_add.findings.compiled import entering, fused, product_runs
from snippets.matmul_add.findings.dispatch import busy_within_us, calls, stacks, wait_busy, waits, with_item
from snippets.matmul_add.findings.steps import (
    first_kept,
    first_steps,
    first_to_rest,
    gap_us,
    gaps_without_gpu,
    hole,
    offset_us,
    traces,
)
from tests.chapters.altered import poor_figures
from tests.chapters.matmul_add.world import CODE, GEMM, LAUNCH, QUERY, World, compiled, eager, parsed, point, recorded
from tests.lab import samples
from tests.lab.samples import cells

FIGURES = findings("matmul_add").figures
CAPTION = "What the page says"


def test_totals_are_the_profilers() -> None:
    trace = parsed(eager(wait_us=100, gemm_us=(5, 6, 7)))
    assert overhead.self_cpu_us(trace) == 3 * 400 + 100, "the steps, and the wait outside of them"
    assert overhead.self_gpu_us(trace) == 5 + 6 + 7 + 3 * 2


def test_busy_time_of_a_wait_is_cut_to_the_wait(world: World) -> None:
    # the last step starts at 20_000; its product runs from 20_015 + 500 for 40, its add 1 later for 2
    content = eager(gaps=(5, 5, 5), delay=500, gemm_us=(5, 5, 40), wait_us=30)
    trace = parsed(content)
    wait = overhead.closing_wait(trace)
    assert (wait.start_us, wait.end_us) == (20_500, 20_530)
    assert busy_within_us(trace, wait) == 15
    world.trace("eager_64", content)
    assert wait_busy(world.device["matmul_add/eager_64"]).value == 50


def test_gaps_offsets_and_holes_are_exact(world: World) -> None:
    content = eager(gaps=(228, 6, 5), delay=300, holes=(7, 1, 1))
    steps = parsed(content).steps
    assert [gap_us(step) for step in steps] == [228, 6, 5]
    assert [offset_us(step) for step in steps] == [528, 306, 305]
    assert [hole(step).duration_us for step in steps] == [7, 1, 1]
    world.trace("eager_64", content)
    ratio = first_to_rest(world.device["matmul_add/eager_64"], gap_us)
    assert (ratio.value, ratio.unit, ratio.text) == (38, "x", "228 µs, then 6.00 µs and 5.00 µs")


def test_what_a_step_has_to_move_is_what_its_operators_read_and_write() -> None:
    matrix = 2 * 64**2
    expected = {
        6 * matrix: eager(),  # mm and add read two and write one each
        6 * matrix + 4: eager(memset=True),
        (2 + 4) * matrix - 2: compiled(moved=matrix - 1),  # b copied, then read again by addmm with x and w
        3 * matrix + 2 * 64: compiled(bias="row"),
    }
    assert [costs.least_bytes(parsed(content).steps[1]) for content in expected.values()] == list(expected)
    divided = parsed(compiled(bias="kernel"))
    with pytest.raises(TraceError, match="ProfilerStep#3 lacks the work of some activities"):
        costs.least_bytes(divided.steps[1])


def test_a_copy_reads_and_writes() -> None:
    (copy,) = parsed(compiled(copy_us=10, moved=5_000_000)).steps[0].memcpys
    assert costs.copy_rate(copy) == 1e12


def test_one_step_alone_is_compared_with_nothing(world: World) -> None:
    world.trace("eager_64", eager((2,)))
    with pytest.raises(TraceError, match="only one step"):
        first_to_rest(world.device["matmul_add/eager_64"], gap_us)


def test_crossings(world: World) -> None:
    sweep = world.device["matmul_add/sweep_eager"]
    assert overhead.crossing(sweep).value == 4096
    world.recording(recorded("sweep_eager", point(64, 5, 30, 40), has_trace=False))
    assert overhead.crossing(sweep) == Figure(
        0, display="none of the sizes", origin="NVIDIA Sample, matmul_add/sweep_eager"
    )
    assert overhead.crossings(world.device).value is False


def test_up_to_which_size_a_graph_is_worth_it(world: World) -> None:
    sweep = world.device["matmul_add/sweep_eager"]
    assert (overhead.worth_a_graph(sweep).value, overhead.worth_a_graph(sweep).text) == (512, "512")
    at_the_limit, below_it = point(64, 40, 30, 60), point(512, 40, 30, 59.9)
    world.recording(recorded("sweep_eager", at_the_limit, below_it, has_trace=False))
    assert overhead.worth_a_graph(sweep).value == 64
    world.recording(recorded("sweep_eager", below_it, has_trace=False))
    assert (overhead.worth_a_graph(sweep).value, overhead.worth_a_graph(sweep).text) == (0, "none of the sizes")


def test_every_figure_is_conclusive_and_has_a_text(world: World) -> None:
    assert list(poor_figures("matmul_add", world.device)) == []


def test_figures_are_exact(world: World) -> None:
    expected = {
        "growth_512": "1.60x",
        "product_share_4096": "83.3 %",  # 500 of 600 us
        "matrix_to_row_64": "1.50x",
        "compiled_launched_64": "2.00x",
        "copy_share_4096": "102 %",
        "kept_running": "1.29x",  # 750 us against 582
        "clock_reasons": "power cap",
        "idle_with_item": "9.41 ms",
        "idle_without_item": "556 µs",  # 616 in the warmed process, 496 in the cold one
        "later_requests": "2 in 20,000 steps",
        "gap_without_shapes": "0.52x",
        "gap_without_gpu": "3.10x",
        "chain": "ProfilerStep#N > matmul_add > aten::matmul > aten::mm",
        "wait_busy_4096": "73.9 %",  # 515 and 2 of 700 us
        "compiled_bytes_4096": "201 MB → 201 MB",
        "row_bytes_4096": "201 MB → 101 MB",
    }
    assert {name: FIGURES[name](world.device).text for name in expected} == expected


def test_the_tables_have_what_was_measured(world: World) -> None:
    device = world.device
    assert cells(costs.graph_gain(device))[1] == ["64", "12.0x", "18.0x", "60.0 µs", "90.0 µs", "5.00 µs", "5.00 µs"]
    assert cells(waits(device))[1][:3] == ["64x64", "1.78 ms", "0 µs"]
    rows = cells(first_steps(device))[1:]
    assert rows[0] == ["ProfilerStep#0", "400 µs", "1.00 µs", "1", "1", "3"]
    assert [row[2] for row in rows] == ["1.00 µs", "60.0 µs", "1.00 µs", "1.00 µs", "1.00 µs"], "as the claims have it"
    assert ["stacked", "aten::bmm", QUERY * 4 + LAUNCH] in cells(calls(device))
    runs = cells(product_runs(device))
    assert runs[4][0] == "product, trace eager_4096, ProfilerStep#2"
    assert runs[8] == ["product, interleaved with eager_4096", "500 µs", "275 TFLOP/s", "–", "–"]
    assert runs[-1] == ["product and add, steady", "750 µs", "183 TFLOP/s", "1300 MHz", "700 W"]
    assert cells(gaps_without_gpu(device))[2] == ["1", "no", "16.0 µs15.5 to 16.5 µs", "10.0 µs"]


def slices(drawing: str) -> list[str]:
    """What a timeline's slices are called in full."""
    return [
        unescape(said).split("\n")[0] for said in re.findall(r'<rect class="slice[^>]* data-said="([^"]*)"', drawing)
    ]


def headings(drawing: str) -> list[str]:
    """The steps of a timeline, from above."""
    return re.findall(r'<text class="heading"[^>]*>([^<]*)<', drawing)


def test_pictures_show_the_steps_they_are_about(world: World) -> None:
    device = world.device
    assert headings(overhead.one_step(device, caption=CAPTION)) == ["Eager, 64x64"]
    assert slices(overhead.one_step(device, caption=CAPTION))[:4] == [
        "matmul_add",
        "aten::matmul",
        "aten::mm",
        "aten::add",
    ]
    assert headings(with_item(device, caption=CAPTION)) == ["Without", "With .item()"]
    assert "cudaStreamSynchronize" in slices(with_item(device, caption=CAPTION))
    assert headings(overhead.two_sizes(device, caption=CAPTION)) == ["64x64", "4096x4096"]
    assert "Torch-Compiled Region: 0/0" in slices(entering(device, caption=CAPTION))
    assert headings(entering(device, caption=CAPTION)) == ["Eager", "Compiled"]
    assert headings(first_kept(device)) == [
        f"{process}, ProfilerStep#{number}" for process in ("Cold", "Warmed") for number in (2, 3)
    ]


def test_charts_have_a_step_for_each_recording(world: World) -> None:
    device = world.device
    assert [row[:3] for row in cells(overhead.by_size(device, caption=CAPTION))[1:]] == [
        [way, f"{size:,}", us]
        for way in ("Eager", "Compiled")
        for size, us in ((64, "5.00 µs"), (512, "8.00 µs"), (4096, "600 µs"))
    ]
    bars = re.findall(r'aria-label="([^"]*)"', costs.opening(device))
    assert [text.split(",")[:2] for text in (bars[0], bars[1])] == [
        ["eager: the CPU submits 40.0 µs", " the GPU computes 10.0 µs"],
        ["compiled: the CPU submits 80.0 µs", " the GPU computes 10.0 µs"],
    ]
    timed = [row[1:4] for row in cells(costs.race(device, caption=CAPTION, over="Eager"))[1:]]
    assert timed[0] == ["600 µs", "750 µs", "610 µs"]
    assert [text.endswith("1.01x of Eager") for text in timed[1]] == [True, True, True]
    parts = [(row[0], row[2]) for row in cells(costs.by_kernel(device, caption=CAPTION))[1:]]
    assert [part for variant, part in parts if variant == "addmm with a row b"] == [
        "cuBLAS GEMM bf16 · 128x256x64 · nn"
    ]
    assert [variant for variant, part in parts if part == "copy device to device"] == [
        "Compiled",
        "addmm with a matrix b",
    ]


def test_the_diff_shows_what_became_of_the_addition(world: World) -> None:
    rows = cells(fused(world.device, caption=CAPTION))
    changes = {row[0].split()[1]: row[1] for row in rows[1:4]}
    names = ("copy device to device", "cuBLAS GEMM", "elementwise add")
    listed = {change: [name for name in names if name in text] for change, text in changes.items()}
    assert listed == {"new": ["copy device to device"], "same": ["cuBLAS GEMM"], "vanished": ["elementwise add"]}
    assert ["bytes moved", "201 MB", "201 MB", "0"] in rows


def test_lists_of_one_step_name_what_is_in_it(world: World) -> None:
    device = world.device
    assert GEMM in samples.Markup(kernel_table(device, "matmul_add/eager_64")).text
    assert "aten::bmm" in samples.Markup(stacks(device)).text
    assert "aten::mm" in samples.Markup(dispatch_tree(device, "matmul_add/eager_64")).text
    assert "aten::mm" in samples.Markup(profiler_table(device, "matmul_add/eager_64")).text
    assert "extern_kernels.addmm(arg0_1, out=buf0)" in samples.Markup(costs.generated(device)).text


def test_further_traces_are_those_that_are_recorded(world: World) -> None:
    world.remove("stacked", "row_bias_4096", "unscheduled_20")
    assert re.findall(r'href="([^"]*)"', traces(world.device)) == [
        f"../recordings/nvidia-sample/matmul_add/{name}.trace.json.gz"
        for name in ("unscheduled", "stacked_input", "compiled_4096")
    ]


def test_names_are_text(world: World) -> None:
    world.trace("eager_64", eager(gemm=samples.EVIL[0], call=samples.EVIL[1]))
    world.recording(recorded("generated_code", data={**CODE, "calls": [samples.EVIL[0]]}, has_trace=False))
    samples.assert_only_text(kernel_table(world.device, "matmul_add/eager_64"), *samples.EVIL[:2])
    samples.assert_only_text(calls(world.device), samples.EVIL[1])
    samples.assert_only_text(costs.generated(world.device), samples.EVIL[0])
