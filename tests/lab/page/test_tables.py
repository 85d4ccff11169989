"""Tables out of hand-made traces: exact cells, and names that stay text."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from snippets.lab.finding.figure import Figure
from snippets.lab.finding.quantities import UnknownFigure
from snippets.lab.html import Html
from snippets.lab.page.tables import (
    comparison_table,
    dispatch_tree,
    figure_cell,
    journey,
    kernel_table,
    profiler_table,
    sweep_table,
)
from snippets.lab.recording.device import recorded_devices
from snippets.lab.recording.schema import Ceiling, NotRecorded
from snippets.lab.trace.events import TraceError
from tests.lab import events, samples
from tests.lab.samples import DEVICE, EVIL, Markup, assert_only_text, put, sample


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = samples.shelf(monkeypatch, tmp_path)
    put(root, sample())
    return root


def closed(shown: str) -> str:
    """Without the raw names behind the short forms of kernels."""
    return re.sub(r"<span popover.*?</span></span>", "", shown)


def cells(shown: str) -> list[list[str]]:
    """The text of each row's cells, the head first."""
    rows = re.findall(r"<tr>(.*?)</tr>", closed(shown), re.DOTALL)
    return [[Markup(cell).text for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL)] for row in rows]


def test_kernels_of_a_step(shelf: Path) -> None:
    shown = kernel_table("mlp/eager", DEVICE)
    footprint = ["4x2x1384x1x1", "168164,308"]  # one below the other
    kernel = ["gemm", "10.0 µs", "41.7 %", "aten::mmcudaLaunchKernel", "50.0 µs", "–", *footprint]
    owner = "mlp_fwdcudaMemsetAsync"
    fill = ["fill of memory (Device)", "4.00 µs", "16.7 %", owner, "55.0 µs", "<1 % of copy", "–", "–"]
    head = ["GPU activity", "time", "share", "from operator, by call", "launch delay", "bytes/s"]
    assert cells(shown) == [[*head, "grid, block", "registers, shared bytes"], kernel, kernel, fill]
    assert "<caption>One step of mlp/eager</caption>" in shown
    assert "<caption>Another</caption>" in kernel_table("mlp/eager", DEVICE, "Another")
    assert [percent for name, percent in Markup(shown).attributes if name == "style"] == [
        "width: 41.7%",
        "width: 41.7%",
        "width: 16.7%",
    ]


def test_times_are_means_where_the_steps_agree_and_of_the_middle_step_where_not(shelf: Path) -> None:
    def steps(names: tuple[str, str, str]) -> bytes:
        events = []
        for place, (name, lasts) in enumerate(zip(names, (10, 20, 60), strict=True)):
            start = 1000.0 * place
            events += [events.step(place, start, 100), events.launch(place + 1, start + 10)]
            events += [events.kernel(name, place + 1, start + 50, lasts)]
        return events.trace_bytes(*events)

    put(shelf, sample(), trace=steps(("a", "a", "a")))
    assert cells(kernel_table("mlp/eager", DEVICE))[1][:3] == ["a", "30.0 µs", "100 %"]
    put(shelf, sample(), trace=steps(("a", "a", "b")))
    assert cells(kernel_table("mlp/eager", DEVICE))[1][:3] == ["a", "20.0 µs", "100 %"]


def product_trace() -> bytes:
    """A product of 512x256x128 in 4 us, and an addition of 512x128 numbers in 1 us."""
    dims, types = [[512, 256], [256, 128]], ["c10::BFloat16"] * 2
    added, kinds = [[512, 128], [512, 128], []], ["c10::BFloat16", "c10::BFloat16", "Scalar"]
    return events.trace_bytes(
        events.step(1, 0, 100),
        events.op("aten::mm", 10, 20, external=1, dims=dims, types=types, strides=[[256, 1], [128, 1]]),
        events.launch(1, 20, external=1),
        events.kernel("product", 1, 50, 4),
        events.op("aten::add", 40, 20, external=2, dims=added, types=kinds, strides=[[128, 1], [128, 1], []]),
        events.launch(2, 50, external=2),
        events.kernel("sum", 2, 60, 1),
        events.op("fused", 70, 20, external=3),
        events.launch(3, 80, external=3),
        events.kernel("fused", 3, 90, 2),
    )


COPY = Ceiling("copy", 1_000_000, 0, samples.timing(1.0, 2.0, 3.0))
LARGE = Ceiling("matmul 8192x8192x8192", 3 * 2 * 8192**2, 40_000_000, samples.timing(1.0, 2.0, 3.0))
BARE = Ceiling("matmul 512x256x128", 458_752, 2 * 512 * 256 * 128, samples.timing(2.0, 5.0, 8.0))


@pytest.mark.parametrize(
    ("ceilings", "of_product", "of_copy", "note"),
    [
        ((), "", "", ""),
        ((COPY,), "", "23 % of copy", "copy 500 GB/s"),
        ((COPY, LARGE), "42 % of large", "23 % of copy", "copy 500 GB/s, large matmul 8192x8192x8192 20.0 TFLOP/s"),
        (
            (BARE, COPY, LARGE),
            "125 % of bare",
            "23 % of copy",
            "copy 500 GB/s, bare matmul 512x256x128 6.71 TFLOP/s",
        ),
    ],
)
def test_rates_beside_the_ceilings_of_the_session(
    shelf: Path, ceilings: tuple[Ceiling, ...], of_product: str, of_copy: str, note: str
) -> None:
    put(shelf, sample(ceilings=ceilings), trace=product_trace())
    shown = kernel_table("mlp/eager", DEVICE)
    found = cells(shown)
    assert found[0][5:7] == ["FLOP/s", "bytes/s"]
    assert [row[5:7] for row in found[1:]] == [
        [f"8.39 TFLOP/s{of_product}", f"115 GB/s{of_copy}"],
        ["–", "393 GB/s" + ("79 % of copy" if of_copy else "")],
        ["–", "–"],
    ]
    text = Markup(shown).text
    assert text.count("Rates: the least that there was to do") == 1
    assert ("Percentages" in text) == bool(note)
    assert note in text


def test_work_that_only_the_chapter_knows(shelf: Path) -> None:
    put(shelf, sample(ceilings=(COPY, LARGE, BARE)), trace=product_trace())
    for work in ({2: (20_000_000, 500_000)}, lambda traced, step: {len(step.kernels) - 1: (20_000_000, 500_000)}):
        found = cells(kernel_table("mlp/eager", DEVICE, work=work))
        assert found[3][5:7] == ["10.0 TFLOP/s50 % of large", "250 GB/s50 % of copy"]
        assert found[2][5:7] == ["–", "393 GB/s79 % of copy"]


def test_a_table_without_any_rate(shelf: Path) -> None:
    put(shelf, sample(), trace=samples.trace_json(kernels=(1,)).replace(b'"bytes": 64', b'"other": 64'))
    shown = kernel_table("mlp/eager", DEVICE)
    assert not {"FLOP/s", "bytes/s"} & set(cells(shown)[0])
    assert "Rates" not in shown


def test_the_profilers_table(shelf: Path) -> None:
    shown = profiler_table("mlp/eager", DEVICE)
    assert "<caption>mlp/eager: sums over the whole trace, 3 steps</caption>" in shown
    assert cells(shown) == [
        ["name", "self CPU %", "self CPU", "CPU total", "self GPU", "GPU total", "calls"],
        ["aten::mm", "56.0 %", "168 µs", "180 µs", "60.0 µs", "60.0 µs", "3"],
        ["mlp_fwdannotation", "18.0 %", "54.0 µs", "240 µs", "12.0 µs", "72.0 µs", "3"],
        ["ProfilerStep*annotation", "20.0 %", "60.0 µs", "300 µs", "–", "72.0 µs", "3"],
        ["cudaLaunchKernelCUDA call", "4.00 %", "12.0 µs", "12.0 µs", "–", "–", "6"],
        ["cudaMemsetAsyncCUDA call", "2.00 %", "6.00 µs", "6.00 µs", "–", "–", "3"],
    ]
    assert "<details" not in shown


@pytest.mark.parametrize(
    ("names", "title"),
    [
        (("aten::t",), "1 operator that never reaches the GPU"),
        (("aten::t", "aten::view"), "2 operators that never reach the GPU"),
    ],
)
def test_operators_that_never_reach_the_gpu_are_folded(shelf: Path, names: tuple[str, ...], title: str) -> None:
    idle = [events.op(name, 20 + 10 * place, 5) for place, name in enumerate(names)]
    put(shelf, sample(), trace=events.trace_bytes(events.step(1, 0, 100), events.annotation("fwd", 5, 80), *idle))
    shown = profiler_table("mlp/eager", DEVICE)
    first, folded = shown.split("<details")
    assert [row[0] for row in cells(first)] == ["name", "fwdannotation", "ProfilerStep*annotation"]
    assert f"<summary>{title}</summary>" in folded
    assert cells(folded) == [
        ["name", "self CPU %", "self CPU", "CPU total", "self GPU", "GPU total", "calls"],
        *([name, "5.00 %", "5.00 µs", "5.00 µs", "–", "–", "1"] for name in names),
    ]


def test_the_dispatch_tree(shelf: Path) -> None:
    shown = dispatch_tree("mlp/eager", DEVICE)
    assert Markup(shown).text.startswith("mlp_fwd 80.0 µs")
    text = Markup(closed(shown)).text
    assert "aten::mm 60.0 µs 64x64 · 64x64GPU: gemm 10.0 µsGPU: gemm 10.0 µs" in text
    assert Markup(shown).elements[:3] == ["ul", "li", "code"]
    assert shown.count("<li") == shown.count("</li>")
    assert shown.count("<ul") == shown.count("</ul>") == 3


def test_a_step_without_a_kernel_has_no_journey(shelf: Path) -> None:
    put(shelf, sample(), trace=samples.trace_json(kernels=(1, 0, 1)))
    with pytest.raises(TraceError, match=r"mlp/eager: ProfilerStep#3 has no kernel"):
        journey("mlp/eager", DEVICE)


def test_the_journey_of_a_kernel(shelf: Path) -> None:
    found = cells(journey("mlp/eager", DEVICE))
    assert [row[0] for row in found[1:]] == ["ProfilerStep#3", "mlp_fwd", "aten::mm", "cudaLaunchKernel", "gemm"]
    assert found[3] == ["aten::mm", "operator, CPU", "External id 20", "10.0 µs", "60.0 µs"]
    assert found[5][1] == "kernel, stream 7"
    assert found[5][3:] == ["70.0 µs", "10.0 µs"]


def test_variants_side_by_side(shelf: Path) -> None:
    points = tuple(samples.point({"batch": n}, samples.timings(1.0 * n, 2.0 * n, 3.0 * n)) for n in (1, 4))
    put(shelf, sample("mlp/sweep_eager", points=points, has_trace=False))
    shown = comparison_table(
        {"eager": "mlp/eager", "one": "mlp/sweep_eager[batch=1]", "four": "mlp/sweep_eager[batch=4]"},
        {"GPU": "warm_us", "memory": "peak_memory_bytes"},
        DEVICE,
        "c",
    )
    assert cells(shown) == [
        ["", "eager", "one", "four"],
        ["GPU", "20.0 µs15.0 to 25.0 µs", "2.00 µs1.50 to 2.50 µs", "8.00 µs6.00 to 10.0 µs"],
        ["memory", "16.4 kB", "16.4 kB", "16.4 kB"],
    ]
    with pytest.raises(UnknownFigure):
        comparison_table({"x": "mlp/eagr"}, {"GPU": "warm_us"}, DEVICE, "c")
    with pytest.raises(NotRecorded):
        comparison_table({"x": "mlp/compiled"}, {"GPU": "warm_us"}, DEVICE, "c")


def test_a_sweep(shelf: Path) -> None:
    for name in ("eager", "compiled"):
        points = tuple(samples.point({"batch": n}, flops=n * len(name)) for n in (1, 4))
        put(shelf, sample(f"mlp/sweep_{name}", points=points, has_trace=False))
    shown = sweep_table(
        {"e": "mlp/sweep_eager", "c": "mlp/sweep_compiled"},
        {"flops": lambda found, place: found.points[place].flops, "name": lambda found, place: found.experiment},
        DEVICE,
        "c",
        lambda parameters: f"batch {parameters['batch']}",
    )
    assert cells(shown) == [
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


SHOWN: dict[str, Callable[[str, str], Html]] = {
    "kernel_table": kernel_table,
    "profiler_table": profiler_table,
    "dispatch_tree": dispatch_tree,
    "journey": journey,
}


@pytest.mark.parametrize("name", EVIL)
@pytest.mark.parametrize("show", SHOWN.values(), ids=SHOWN)
def test_untrusted_names_of_a_trace(shelf: Path, show: Callable[[str, str], Html], name: str) -> None:
    put(shelf, sample(label=name), trace=samples.trace_json(name=name, op=name, label=name))
    assert_only_text(show("mlp/eager", DEVICE), name)


@pytest.mark.parametrize("name", EVIL)
def test_untrusted_captions_heads_and_cells(shelf: Path, name: str) -> None:
    assert_only_text(kernel_table("mlp/eager", DEVICE, name), name)
    assert_only_text(profiler_table("mlp/eager", DEVICE, name), name)
    assert_only_text(comparison_table({name: "mlp/eager"}, {name: "warm_us"}, DEVICE, name), name)
    assert_only_text(figure_cell(Figure(name, said=name)), name)
    heads = {name: lambda found, place: name}
    assert_only_text(sweep_table({name: "mlp/eager"}, heads, DEVICE, name, lambda parameters: name), name)


@pytest.mark.parametrize("show", SHOWN.values(), ids=SHOWN)
def test_a_trace_without_steps_or_kernels_says_what_to_check(shelf: Path, show: Callable[[str, str], Html]) -> None:
    put(shelf, sample(), trace=events.trace_bytes(events.launch(1, 0), events.kernel("k", 1, 5, 5)))
    with pytest.raises(TraceError, match="no active steps"):
        show("mlp/eager", DEVICE)
    put(shelf, sample(), trace=events.trace_bytes(events.step(2, 0, 100)))
    if show in (kernel_table, journey):
        with pytest.raises(TraceError, match="no GPU kernels in the trace"):
            show("mlp/eager", DEVICE)
    else:
        show("mlp/eager", DEVICE)


@pytest.mark.parametrize("show", SHOWN.values(), ids=SHOWN)
def test_a_missing_recording(shelf: Path, show: Callable[[str, str], Html]) -> None:
    with pytest.raises(NotRecorded, match="make record CHAPTER=mlp"):
        show("mlp/compiled", DEVICE)
    assert recorded_devices(shelf) == (DEVICE,)
