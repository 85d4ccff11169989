"""Tables out of hand-made traces: exact cells, and names that stay text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kinetoscope.html import Html
from kinetoscope.trace.events import TraceError
from snippets.lab.charts.numbers import figure_cell
from snippets.lab.experiment import UnknownName
from snippets.lab.finding.device import Device
from snippets.lab.finding.figure import Figure
from snippets.lab.page.tables import (
    Columns,
    comparison_table,
    dispatch_tree,
    kernel_table,
    profiler_table,
    sweep_table,
    variants_table,
)
from snippets.lab.recording.schema import Ceiling, NotRecorded
from tests.lab import samples
from tests.lab.samples import EVIL, Markup, assert_only_text, cells, closed, folds, sample, save_all
from tests.tool import events


@pytest.fixture
def device(tmp_path: Path) -> Device:
    return save_all(tmp_path, sample())


def test_kernels_of_a_step(device: Device) -> None:
    content = kernel_table(device, "mlp/eager")
    kernel = ["gemm", "10.0 µs41.7 %", "–", "4x2x1384x1x1"]  # one below the other
    fill = ["fill of memory (Device)", "4.00 µs16.7 %", "16.0 MB/stoo short", "–"]
    assert cells(content) == [["GPU activity", "time, share", "bytes/s", "grid, block"], kernel, kernel, fill]
    owners = "operatoraten::mmcallcudaLaunchKernellaunch delay50.0 µs"
    footprint = "registers168shared memory164,308 bytes"
    of_fill = "operatormlp_fwdcallcudaMemsetAsynclaunch delay55.0 µs"
    assert folds(content) == [owners + footprint, owners + footprint, of_fill]
    assert "<caption>One step of mlp/eager</caption>" in content
    assert "<caption>Another</caption>" in kernel_table(device, "mlp/eager", "Another")
    assert [percent for name, percent in Markup(content).attributes if name == "style"] == [
        "width: 41.7%",
        "width: 41.7%",
        "width: 16.7%",
    ]


def test_times_are_means_where_the_steps_agree_and_of_the_middle_step_where_not(device: Device) -> None:
    def steps(names: tuple[str, str, str]) -> bytes:
        listed = []
        for place, (name, lasts) in enumerate(zip(names, (10, 20, 60), strict=True)):
            start = 1000.0 * place
            listed += [events.step(place, start, 100), events.launch(place + 1, start + 10)]
            listed += [events.kernel(name, place + 1, start + 50, lasts)]
        return events.trace_bytes(*listed)

    save_all(device.root, sample(), trace=steps(("a", "a", "a")))
    assert cells(kernel_table(device, "mlp/eager"))[1][:2] == ["a", "30.0 µs100 %"]
    save_all(device.root, sample(), trace=steps(("a", "a", "b")))
    assert cells(kernel_table(device, "mlp/eager"))[1][:2] == ["a", "20.0 µs100 %"]


def matmul_trace() -> bytes:
    """A matmul of 512x256x128 in 40 us, and an addition of 512x128 numbers in 10 us."""
    dims, types = [[512, 256], [256, 128]], ["c10::BFloat16"] * 2
    added, kinds = [[512, 128], [512, 128], []], ["c10::BFloat16", "c10::BFloat16", "Scalar"]
    return events.trace_bytes(
        events.step(1, 0, 100),
        events.op("aten::mm", 10, 20, external=1, dims=dims, types=types, strides=[[256, 1], [128, 1]]),
        events.launch(1, 20, external=1),
        events.kernel("product", 1, 50, 40),
        events.op("aten::add", 40, 20, external=2, dims=added, types=kinds, strides=[[128, 1], [128, 1], []]),
        events.launch(2, 50, external=2),
        events.kernel("sum", 2, 100, 10),
        events.op("fused", 70, 20, external=3),
        events.launch(3, 80, external=3),
        events.kernel("fused", 3, 120, 20),
    )


COPY = Ceiling("copy", 100_000, 0, samples.timing(1.0, 2.0, 3.0))
LARGE = Ceiling("matmul 8192x8192x8192", 3 * 2 * 8192**2, 4_000_000, samples.timing(1.0, 2.0, 3.0))
BARE = Ceiling("matmul 512x256x128", 458_752, 2 * 512 * 256 * 128, samples.timing(20.0, 35.0, 50.0))
OWN = Ceiling("matmul 512x256x128, x @ w", 458_752, 2 * 512 * 256 * 128, samples.timing(36.0, 36.0, 36.0))
FAST = Ceiling("matmul 512x256x128, x @ w", 458_752, 2 * 512 * 256 * 128, samples.timing(40.8, 40.8, 40.8))
WIDE = Ceiling("matmul 512x256x128, x @ w", 458_752, 2 * 512 * 256 * 128, samples.timing(36.0, 38.0, 46.0))
SMALL_L2 = samples.environment(l2_bytes=400_000)
SHORT_TEXT, L2_TEXT, ABOVE_TEXT = (
    "Too short: a kernel below",
    "In L2: the kernel's bytes fit",
    "Above a ceiling: kernels in a short",
)


@pytest.mark.parametrize(
    ("ceilings", "of_matmul", "of_copy", "notes"),
    [
        ((), "", "", []),
        ((COPY,), "", "17 to 29 % of copy", ["copy 50.0 GB/s"]),
        (
            (COPY, LARGE),
            "31 to 52 % of large x @ weight.t()",
            "17 to 29 % of copy",
            ["large matmul 8192x8192x8192, x @ weight.t() 2.00 TFLOP/s, copy 50.0 GB/s"],
        ),
        (
            (BARE, COPY, LARGE),
            "69 to 106 % of bare x @ weight.t()",
            "17 to 29 % of copy",
            ["bare matmul 512x256x128, x @ weight.t() 959 GFLOP/s, copy 50.0 GB/s", ABOVE_TEXT],
        ),
        (
            (BARE, OWN, LARGE),
            "90 % of bare x @ w",
            "",
            ["bare matmul 512x256x128, x @ w 932 GFLOP/s)"],
        ),
        ((FAST,), "above bare x @ w", "", ["bare matmul 512x256x128, x @ w 822 GFLOP/s", ABOVE_TEXT]),
        ((WIDE,), "92 to 105 % of bare x @ w", "", ["bare matmul 512x256x128, x @ w 883 GFLOP/s", ABOVE_TEXT]),
    ],
)
def test_rates_beside_the_ceilings_of_the_session(
    device: Device, ceilings: tuple[Ceiling, ...], of_matmul: str, of_copy: str, notes: list[str]
) -> None:
    save_all(device.root, sample(ceilings=ceilings, environment=SMALL_L2), trace=matmul_trace())
    content = kernel_table(device, "mlp/eager")
    table = cells(content)
    assert table[0][2:4] == ["FLOP/s", "bytes/s"]
    in_l2 = "in L2" if of_copy else ""
    assert [row[2:4] for row in table[1:]] == [
        [f"839 GFLOP/s{of_matmul}", f"11.5 GB/s{of_copy}"],
        ["–", f"39.3 GB/s{in_l2}"],
        ["–", "–"],
    ]
    text = Markup(content).text
    assert text.count("Rates: the least work for the shapes") == 1
    assert ("Percentages" in text) == bool(ceilings)
    assert all(note in text for note in notes)
    assert (ABOVE_TEXT in text) == (ABOVE_TEXT in notes)
    assert (L2_TEXT in text) == bool(in_l2)
    assert SHORT_TEXT not in text


def test_no_percentage_of_what_takes_less_than_ten_microseconds(device: Device) -> None:
    short = matmul_trace().replace(b'"dur": 40', b'"dur": 9.99').replace(b'"dur": 10,', b'"dur": 9.99,')
    save_all(device.root, sample(ceilings=(COPY, LARGE, OWN), environment=SMALL_L2), trace=short)
    content = kernel_table(device, "mlp/eager")
    assert [row[2:4] for row in cells(content)[1:3]] == [
        ["3.36 TFLOP/stoo short", "45.9 GB/stoo short"],
        ["–", "39.4 GB/stoo short"],
    ]
    assert SHORT_TEXT in Markup(content).text
    assert "Percentages" not in content


def test_a_ceiling_of_another_type_does_not_count(device: Device) -> None:
    half = matmul_trace().replace(b"c10::BFloat16", b"c10::Half")
    save_all(device.root, sample(ceilings=(LARGE, OWN)), trace=half)
    assert cells(kernel_table(device, "mlp/eager"))[1][2] == "839 GFLOP/s"
    own = Ceiling("matmul 512x256x128, x @ w, float16", OWN.bytes, OWN.flops, OWN.timing)
    save_all(device.root, sample(ceilings=(LARGE, own)), trace=half)
    content = kernel_table(device, "mlp/eager")
    assert cells(content)[1][2] == "839 GFLOP/s90 % of bare x @ w"
    assert "bare matmul 512x256x128, x @ w, float16 932 GFLOP/s" in Markup(content).text


def test_work_that_only_the_chapter_knows(device: Device) -> None:
    save_all(device.root, sample(ceilings=(COPY, LARGE, BARE), environment=SMALL_L2), trace=matmul_trace())
    for work in ({2: (20_000_000, 500_000)}, lambda step: {len(step.kernels) - 1: (20_000_000, 500_000)}):
        table = cells(kernel_table(device, "mlp/eager", work=work))
        assert table[3][2:4] == ["1.00 TFLOP/s38 to 62 % of large x @ weight.t()", "25.0 GB/s38 to 62 % of copy"]
        assert table[2][2:4] == ["–", "39.3 GB/sin L2"]


def overlapping_trace() -> bytes:
    """Three steps of two kernels; the second starts 4, 5 and 6 us before the first has ended."""
    listed = []
    for place, lasts in enumerate((24, 25, 26)):
        start, number = 1000.0 * place, 10 * place
        listed += [events.step(place, start, 100), events.op("aten::mm", start + 5, 30, external=number)]
        listed += [events.launch(number + 1, start + 10, external=number)]
        listed += [events.launch(number + 2, start + 12, external=number)]
        listed += [events.kernel("first", number + 1, start + 50, lasts)]
        listed += [events.kernel("second", number + 2, start + 70, 15)]
    return events.trace_bytes(*listed)


def test_kernels_that_overlap_share_the_busy_time_and_say_so(device: Device) -> None:
    save_all(device.root, sample(), trace=overlapping_trace())
    overlap = "of it 5.00 µs overlapping the kernel before"
    content = kernel_table(device, "mlp/eager")
    assert [row[1] for row in cells(content)[1:]] == ["25.0 µs71.4 %", f"15.0 µs{overlap}28.6 %"]
    assert "Shares count the overlapping time once" in Markup(content).text
    assert f" 15.0 µs, {overlap}" in Markup(dispatch_tree(device, "mlp/eager")).text
    assert "GPU times are sums: they count 15.0 µs twice" in Markup(profiler_table(device, "mlp/eager")).text
    save_all(device.root, sample())
    assert "overlap" not in kernel_table(device, "mlp/eager") + profiler_table(device, "mlp/eager")


def test_a_table_without_any_rate(device: Device) -> None:
    save_all(device.root, sample(), trace=samples.trace_json(kernels=(1,)).replace(b'"bytes": 64', b'"other": 64'))
    content = kernel_table(device, "mlp/eager")
    assert not {"FLOP/s", "bytes/s"} & set(cells(content)[0])
    assert "Rates" not in content


def test_the_profilers_table(device: Device) -> None:
    content = profiler_table(device, "mlp/eager")
    assert "<caption>mlp/eager: sums of the profiler over the 3 steps of the trace</caption>" in content
    assert cells(content) == [
        ["name", "self CPU %", "self CPU", "CPU total", "self GPU", "GPU total", "calls"],
        ["aten::mm", "56.0 %", "168 µs", "180 µs", "60.0 µs", "60.0 µs", "3"],
        ["mlp_fwdannotation", "18.0 %", "54.0 µs", "240 µs", "12.0 µs", "72.0 µs", "3"],
        ["ProfilerStep*annotation", "20.0 %", "60.0 µs", "300 µs", "–", "72.0 µs", "3"],
        ["cudaLaunchKernelCUDA call", "4.00 %", "12.0 µs", "12.0 µs", "–", "–", "6"],
        ["cudaMemsetAsyncCUDA call", "2.00 %", "6.00 µs", "6.00 µs", "–", "–", "3"],
    ]
    assert "<details" not in content


@pytest.mark.parametrize(
    ("names", "title"),
    [
        (("aten::t",), "1 operator without GPU work"),
        (("aten::t", "aten::view"), "2 operators without GPU work"),
    ],
)
def test_operators_that_never_reach_the_gpu_are_folded(device: Device, names: tuple[str, ...], title: str) -> None:
    idle = [events.op(name, 20 + 10 * place, 5) for place, name in enumerate(names)]
    save_all(
        device.root, sample(), trace=events.trace_bytes(events.step(1, 0, 100), events.annotation("fwd", 5, 80), *idle)
    )
    content = profiler_table(device, "mlp/eager")
    first, folded = content.split("<details")
    assert [row[0] for row in cells(first)] == ["name", "fwdannotation", "ProfilerStep*annotation"]
    assert f"<summary>{title}</summary>" in folded
    assert cells(folded) == [
        ["name", "self CPU %", "self CPU", "CPU total", "self GPU", "GPU total", "calls"],
        *([name, "5.00 %", "5.00 µs", "5.00 µs", "–", "–", "1"] for name in names),
    ]


def test_the_dispatch_tree(device: Device) -> None:
    content = dispatch_tree(device, "mlp/eager")
    assert Markup(content).text.startswith("mlp_fwd 80.0 µs")
    text = Markup(closed(content)).text
    assert "aten::mm 60.0 µs 64x64 · 64x64GPU: gemm 10.0 µsGPU: gemm 10.0 µs" in text
    assert Markup(content).elements[:3] == ["ul", "li", "code"]
    assert content.count("<li") == content.count("</li>")
    assert content.count("<ul") == content.count("</ul>") == 3


def test_variants_side_by_side(device: Device) -> None:
    points = tuple(samples.point({"batch": n}, samples.timings(1.0 * n, 2.0 * n, 3.0 * n)) for n in (1, 4))
    save_all(device.root, sample("mlp/sweep_eager", points=points, has_trace=False))
    content = comparison_table(
        device,
        {"eager": "mlp/eager", "one": "mlp/sweep_eager[batch=1]", "four": "mlp/sweep_eager[batch=4]"},
        "c",
        quantities={"GPU": "interleaved_us", "memory": "peak_memory_bytes"},
    )
    assert cells(content) == [
        ["", "eager", "one", "four"],
        ["GPU", "20.0 µs15.0 to 25.0 µs", "2.00 µs1.50 to 2.50 µs", "8.00 µs6.00 to 10.0 µs"],
        ["memory", "16.4 kB", "16.4 kB", "16.4 kB"],
    ]
    assert content.endswith('<p class="lab-note" data-search-exclude>Spread of times: quartiles of one process.</p>')
    counts = comparison_table(device, {"eager": "mlp/eager"}, "c", quantities={"kernels": "kernels_per_step"})
    assert "lab-note" not in counts
    with pytest.raises(UnknownName):
        comparison_table(device, {"x": "mlp/eagr"}, "c", quantities={"GPU": "interleaved_us"})
    with pytest.raises(NotRecorded):
        comparison_table(device, {"x": "mlp/compiled"}, "c", quantities={"GPU": "interleaved_us"})


def test_a_row_for_each_variant(device: Device) -> None:
    save_all(device.root, sample("mlp/compiled"))
    columns: Columns = {"on": lambda run: run.environment.device, "GPU": "interleaved_us", "none": lambda run: None}
    variants = {"eager": "mlp/eager", "compiled": "mlp/compiled"}
    content = variants_table(device, variants, "c", columns=columns, text_columns=2)
    assert cells(content) == [
        ["", "on", "GPU", "none"],
        ["eager", "NVIDIA Sample", "20.0 µs", "–"],
        ["compiled", "NVIDIA Sample", "20.0 µs", "–"],
    ]
    assert content.count('class="number"') == 2 * 3, "the heading and two rows, of two columns"
    with pytest.raises(UnknownName):
        variants_table(device, variants, "c", columns={"GPU": "interleaved"})


def test_a_sweep(device: Device) -> None:
    for name in ("eager", "compiled"):
        points = tuple(samples.point({"batch": n}, flops=n * len(name)) for n in (1, 4))
        save_all(device.root, sample(f"mlp/sweep_{name}", points=points, has_trace=False))
    content = sweep_table(
        device,
        {"e": "mlp/sweep_eager", "c": "mlp/sweep_compiled"},
        "c",
        cells={"flops": lambda run: run.point.flops, "name": lambda run: run.recording.experiment},
        label=lambda parameters: f"batch {parameters['batch']}",
    )
    assert cells(content) == [
        ["", "e flops", "c flops", "e name", "c name"],
        ["batch 1", "5", "8", "sweep_eager", "sweep_compiled"],
        ["batch 4", "20", "32", "sweep_eager", "sweep_compiled"],
    ]


def test_a_figure_in_a_cell() -> None:
    assert figure_cell(Figure(5)) == "5"
    assert Markup(figure_cell(Figure(5, spread=(4, 6), conclusive=False))).text == "5 ?4 to 6"
    assert Markup(figure_cell(Figure(20.0, "us", (19.0, 21.0)))).text == "20.0 µs19.0 to 21.0 µs"
    assert figure_cell(Figure(231.1, "us", (231.01, 231.2))) == "231 µs"
    assert isinstance(figure_cell(Figure(5)), Html)


PIECES: dict[str, Callable[[Device, str], Html]] = {
    "kernel_table": kernel_table,
    "profiler_table": profiler_table,
    "dispatch_tree": dispatch_tree,
}


@pytest.mark.parametrize("name", EVIL)
@pytest.mark.parametrize("piece", PIECES.values(), ids=PIECES)
def test_untrusted_names_of_a_trace(device: Device, piece: Callable[[Device, str], Html], name: str) -> None:
    save_all(device.root, sample(label=name), trace=samples.trace_json(name=name, op=name, label=name))
    assert_only_text(piece(device, "mlp/eager"), name)


@pytest.mark.parametrize("name", EVIL)
def test_untrusted_captions_heads_and_cells(device: Device, name: str) -> None:
    assert_only_text(kernel_table(device, "mlp/eager", name), name)
    assert_only_text(profiler_table(device, "mlp/eager", name), name)
    variants = {name: "mlp/eager"}
    assert_only_text(comparison_table(device, variants, name, quantities={name: "interleaved_us"}), name)
    assert_only_text(variants_table(device, variants, name, columns={name: lambda run: name}), name)
    assert_only_text(figure_cell(Figure(name, display=name)), name)
    heads = {name: lambda run: name}
    assert_only_text(sweep_table(device, variants, name, cells=heads, label=lambda parameters: name), name)


@pytest.mark.parametrize("piece", PIECES.values(), ids=PIECES)
def test_a_trace_without_steps_or_kernels_says_what_to_check(
    device: Device, piece: Callable[[Device, str], Html]
) -> None:
    save_all(device.root, sample(), trace=events.trace_bytes(events.launch(1, 0), events.kernel("k", 1, 5, 5)))
    with pytest.raises(TraceError, match="no active steps"):
        piece(device, "mlp/eager")
    save_all(device.root, sample(), trace=events.trace_bytes(events.step(2, 0, 100)))
    if piece is kernel_table:
        with pytest.raises(TraceError, match="no GPU kernels"):
            piece(device, "mlp/eager")
    else:
        content = piece(device, "mlp/eager")
        assert ("ProfilerStep*" if piece is profiler_table else '<ul class="dispatch"></ul>') in content


@pytest.mark.parametrize("piece", PIECES.values(), ids=PIECES)
def test_a_missing_recording(device: Device, piece: Callable[[Device, str], Html]) -> None:
    with pytest.raises(NotRecorded, match="make record CHAPTER=mlp"):
        piece(device, "mlp/compiled")
