"""Tables out of hand-made traces: exact cells, and names that stay text."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from snippets.lab import recording, tables
from snippets.lab.figures import Figure, UnknownFigure
from snippets.lab.html import Html
from snippets.lab.recording import RecordingMissing
from snippets.lab.trace import TraceError
from tests.lab import kineto, samples
from tests.lab.samples import DEVICE, EVIL, Markup, assert_only_text, put, sample


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = samples.shelf(monkeypatch, tmp_path)
    put(root, sample())
    return root


def cells(shown: str) -> list[list[str]]:
    """The text of each row's cells, the head first."""
    rows = re.findall(r"<tr>(.*?)</tr>", shown, re.DOTALL)
    return [[Markup(cell).text for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL)] for row in rows]


def test_kernels_of_a_step(shelf: Path) -> None:
    shown = tables.kernel_table("mlp/eager", DEVICE)
    kernel = ["gemm", "aten::mmcudaLaunchKernel", "10.0 µs", "50.0 µs", "4x2x1", "384x1x1", "168", "164,308"]
    fill = ["Memset (Device)", "cudaMemsetAsync", "4.00 µs", "55.0 µs", "–", "–", "–", "–"]
    found = cells(shown)
    assert found[1:3] == [kernel, kernel]
    assert [found[3][0], *found[3][2:]] == [fill[0], *fill[2:]]
    assert found[3][1].endswith("cudaMemsetAsync")
    assert len(found) == 4
    assert "<caption>One step of mlp/eager</caption>" in shown
    assert "<caption>Another</caption>" in tables.kernel_table("mlp/eager", DEVICE, "Another")


def test_times_are_means_where_the_steps_agree_and_of_the_middle_step_where_not(shelf: Path) -> None:
    def steps(names: tuple[str, str, str]) -> bytes:
        events = []
        for place, (name, lasts) in enumerate(zip(names, (10, 20, 60), strict=True)):
            start = 1000.0 * place
            events += [kineto.step(place, start, 100), kineto.launch(place + 1, start + 10)]
            events += [kineto.kernel(name, place + 1, start + 50, lasts)]
        return kineto.trace_bytes(*events)

    put(shelf, sample(), trace=steps(("a", "a", "a")))
    assert cells(tables.kernel_table("mlp/eager", DEVICE))[1][2] == "30.0 µs"
    put(shelf, sample(), trace=steps(("a", "a", "b")))
    assert cells(tables.kernel_table("mlp/eager", DEVICE))[1][2] == "20.0 µs"


def test_the_profilers_table(shelf: Path) -> None:
    shown = tables.profiler_table("mlp/eager", DEVICE)
    assert "<caption>mlp/eager: sums over 3 steps</caption>" in shown
    found = {row[0]: row[1:] for row in cells(shown)[1:]}
    assert found["aten::mm"] == ["180 µs", "180 µs", "60.0 µs", "3"]
    assert found["mlp_fwd"][:2] == ["60.0 µs", "240 µs"]
    assert found["mlp_fwd"][3] == "3"
    assert set(found) == {"aten::mm", "mlp_fwd"}


def test_the_dispatch_tree(shelf: Path) -> None:
    shown = tables.dispatch_tree("mlp/eager", DEVICE)
    assert Markup(shown).text.startswith("mlp_fwd 80.0 µs")
    assert "aten::mm 60.0 µs 64x64 · 64x64GPU: gemm 10.0 µsGPU: gemm 10.0 µs" in Markup(shown).text
    assert Markup(shown).elements[:3] == ["ul", "li", "code"]
    assert shown.count("<li") == shown.count("</li>")
    assert shown.count("<ul") == shown.count("</ul>") == 3


def test_the_journey_of_a_kernel(shelf: Path) -> None:
    found = cells(tables.journey("mlp/eager", DEVICE))
    assert [row[0] for row in found[1:]] == ["ProfilerStep#3", "mlp_fwd", "aten::mm", "cudaLaunchKernel", "gemm"]
    assert found[3] == ["aten::mm", "operator, CPU", "External id 20", "10.0 µs", "60.0 µs"]
    assert found[5][1] == "kernel, stream 7"
    assert found[5][3:] == ["70.0 µs", "10.0 µs"]


def test_variants_side_by_side(shelf: Path) -> None:
    points = tuple(samples.point({"batch": n}, samples.timings(1.0 * n, 2.0 * n, 3.0 * n)) for n in (1, 4))
    put(shelf, sample("mlp/sweep_eager", points=points, has_trace=False))
    shown = tables.compared(
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
        tables.compared({"x": "mlp/eagr"}, {"GPU": "warm_us"}, DEVICE, "c")
    with pytest.raises(RecordingMissing):
        tables.compared({"x": "mlp/compiled"}, {"GPU": "warm_us"}, DEVICE, "c")


def test_a_sweep(shelf: Path) -> None:
    for name in ("eager", "compiled"):
        points = tuple(samples.point({"batch": n}, flops=n * len(name)) for n in (1, 4))
        put(shelf, sample(f"mlp/sweep_{name}", points=points, has_trace=False))
    shown = tables.sweep_table(
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
    assert tables.figure_cell(Figure(5)) == "5"
    assert Markup(tables.figure_cell(Figure(5, spread=(4, 6), conclusive=False))).text == "5 ?4 to 6"
    assert isinstance(tables.figure_cell(Figure(5)), Html)


SHOWN: dict[str, Callable[[str, str], Html]] = {
    "kernel_table": tables.kernel_table,
    "profiler_table": tables.profiler_table,
    "dispatch_tree": tables.dispatch_tree,
    "journey": tables.journey,
}


@pytest.mark.parametrize("name", EVIL)
@pytest.mark.parametrize("show", SHOWN.values(), ids=SHOWN)
def test_untrusted_names_of_a_trace(shelf: Path, show: Callable[[str, str], Html], name: str) -> None:
    put(shelf, sample(label=name), trace=samples.trace_json(name=name, op=name, label=name))
    assert_only_text(show("mlp/eager", DEVICE), name)


@pytest.mark.parametrize("name", EVIL)
def test_untrusted_captions_heads_and_cells(shelf: Path, name: str) -> None:
    assert_only_text(tables.kernel_table("mlp/eager", DEVICE, name), name)
    assert_only_text(tables.profiler_table("mlp/eager", DEVICE, name), name)
    assert_only_text(tables.compared({name: "mlp/eager"}, {name: "warm_us"}, DEVICE, name), name)
    assert_only_text(tables.figure_cell(Figure(name, said=name)), name)
    heads = {name: lambda found, place: name}
    assert_only_text(tables.sweep_table({name: "mlp/eager"}, heads, DEVICE, name, lambda parameters: name), name)


@pytest.mark.parametrize("show", SHOWN.values(), ids=SHOWN)
def test_a_trace_without_steps_or_kernels_says_what_to_check(shelf: Path, show: Callable[[str, str], Html]) -> None:
    put(shelf, sample(), trace=kineto.trace_bytes(kineto.launch(1, 0), kineto.kernel("k", 1, 5, 5)))
    with pytest.raises(TraceError, match="no active steps"):
        show("mlp/eager", DEVICE)
    put(shelf, sample(), trace=kineto.trace_bytes(kineto.step(2, 0, 100)))
    if show in (tables.kernel_table, tables.journey):
        with pytest.raises(TraceError, match="no GPU kernels in the trace"):
            show("mlp/eager", DEVICE)
    else:
        show("mlp/eager", DEVICE)


@pytest.mark.parametrize("show", SHOWN.values(), ids=SHOWN)
def test_a_missing_recording(shelf: Path, show: Callable[[str, str], Html]) -> None:
    with pytest.raises(RecordingMissing, match="make record CHAPTER=mlp"):
        show("mlp/compiled", DEVICE)
    assert recording.devices(shelf) == (DEVICE,)
