"""Charts out of hand-made data: what is drawn where, what they say of themselves, and that both schemes can be read."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from html import unescape
from pathlib import Path
from types import SimpleNamespace

import pytest

from kinetoscope.html import Html
from kinetoscope.trace.events import TraceError
from snippets.lab.charts.bar_charts import (
    bytes_moved,
    cpu_gpu_bars,
    kernel_bars,
    stacked_bars,
    timing_bars,
    with_rest,
)
from snippets.lab.charts.bars import BEHIND, EDGE, joined
from snippets.lab.charts.curve_charts import roofline_of
from snippets.lab.charts.curves import RooflinePoint
from snippets.lab.charts.numbers import chart_id
from snippets.lab.charts.svg import WIDTH, label
from snippets.lab.finding.device import Device
from snippets.lab.recording.device import PROJECT
from snippets.lab.recording.schema import Ceiling, NotRecorded, NotTimed, Timing
from tests.lab import samples
from tests.lab.charts.drawings import boxes, description, drawing, texts
from tests.lab.samples import BOOK, EVIL, Markup, cells, point, sample, save_all, timing, timings
from tests.tool import events

ANY = Device(Path("nowhere"), "nvidia-sample")
"""For charts of data that no recording has."""
STACKS = {"eager": [("mm", 60.0), ("gelu", 30.0), ("mm", 10.0)], "fused": [("mm", 60.0), ("triton", 20.0)]}


@pytest.fixture
def device(tmp_path: Path) -> Device:
    return save_all(tmp_path, sample())


CHARTS: dict[str, Callable[[str], Html]] = {
    "stacks": lambda name: stacked_bars(ANY, {name: [(name, 5.0), ("b", 1.0)]}, name),
    "bytes": lambda name: bytes_moved(ANY, {name: [(name, 5_000_000), ("b", 8)]}, name),
    "pairs": lambda name: timing_bars(ANY, {name: {name: timing(5.0, 6.0, 7.0)}}, name),
}


@pytest.mark.parametrize("chart", CHARTS.values(), ids=CHARTS)
def test_a_drawing_fits_into_a_page(chart: Callable[[str], Html]) -> None:
    content = chart("a < b")
    ident = chart_id("chart", ANY, "a < b")
    assert content.startswith('<figure class="chart" data-search-exclude><figcaption>a &lt; b</figcaption><svg ')
    assert content.endswith("</details></figure>")
    root = drawing(content)
    assert (root.get("role"), root.get("aria-labelledby")) == ("img", f"{ident}-title {ident}-desc")
    assert [(one.text, one.get("id")) for one in root.iter("title")] == [("a < b", f"{ident}-title")]
    assert len(description(content)) > 20
    ids = re.findall(r' id="([^"]*)"', content)
    assert len(ids) == len(set(ids))
    assert all(name.startswith(f"{ident}-") for name in ids)
    used = re.findall(r'url\(#([^)]*)\)|href="#([^"]*)"', content)
    assert {first or second for first, second in used} <= set(ids)
    assert {*Markup(content).elements} <= {
        *("figure", "figcaption", "svg", "title", "desc", "defs", "pattern", "rect", "g", "path", "use", "text"),
        *(
            "circle",
            "ul",
            "li",
            "span",
            "details",
            "summary",
            "div",
            "table",
            "caption",
            "thead",
            "tbody",
            "tr",
            "th",
            "td",
            "p",
        ),
    }
    assert not re.search(r"#[0-9a-f]{3,6}\b|font-family|clip|<style|xmlns|\d\.\d\d\d", content.split("</svg>")[0])


def test_two_builds_draw_the_same_and_matplotlib_waits_for_the_first_chart(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom pathlib import Path\nfrom snippets.lab import cache\n"
        "from snippets.lab.charts.bar_charts import stacked_bars\nfrom snippets.lab.finding.device import Device\n"
        f"assert 'matplotlib' not in sys.modules\ncache.PROJECT = Path({str(tmp_path)!r})\n"
        f"print(stacked_bars(Device(Path('nowhere'), 'nvidia-sample'), {STACKS!r}, 'c'))\n"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    command = [sys.executable, "-W", "error", "-c", code]
    variables = {**os.environ, "PYTHONHASHSEED": "1"}
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False, env=variables)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.rstrip("\n") == stacked_bars(ANY, STACKS, "c")


def test_a_drawing_is_cached_and_made_again_for_other_data(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    real = stacked_bars.__globals__["draw_stacks"]

    def counting(*arguments: object) -> None:
        made.append("drawn")
        real(*arguments)

    monkeypatch.setattr("snippets.lab.charts.bar_charts.draw_stacks", counting)
    first = stacked_bars(ANY, STACKS, "c")
    assert stacked_bars(ANY, STACKS, "c") == first
    assert len(made) == 1
    others = [
        stacked_bars(ANY, {**STACKS, "fused": [("mm", 60.0), ("triton", 20.5)]}, "c"),
        stacked_bars(ANY, STACKS, "c", axis="GPU time"),
        stacked_bars(ANY, STACKS, "c", unit="bytes"),
        stacked_bars(ANY, STACKS, "c", kinds={"mm": "gemm"}),
        stacked_bars(ANY, STACKS, "d"),
        stacked_bars(Device(Path("nowhere"), "nvidia-other"), STACKS, "c"),
    ]
    assert len({first, *others}) == 1 + len(others) == len(made)


def test_settings_of_matplotlib_stay_as_they_were() -> None:
    import matplotlib

    with matplotlib.rc_context({"font.size": 77, "svg.fonttype": "path"}):
        content = stacked_bars(ANY, STACKS, "c")
        assert (matplotlib.rcParams["font.size"], matplotlib.rcParams["svg.fonttype"]) == (77, "path")
    assert content == stacked_bars(ANY, STACKS, "c")


ODD = [*EVIL, "$x_1$ two\nlines \x00\x1b\ud800 \u202etfel 日本語 \U0001f600 %s {0} &amp;"]


@pytest.mark.parametrize("name", ODD, ids=range(len(ODD)))
@pytest.mark.parametrize("chart", CHARTS.values(), ids=CHARTS)
def test_untrusted_names(chart: Callable[[str], Html], name: str) -> None:
    content = chart(name)
    plain = "".join(sign if sign.isprintable() else " " for sign in name)
    seen = Markup(re.sub(r"<(title|desc) ", r"<g ", content.replace("</title>", "</g>").replace("</desc>", "</g>")))
    assert not {"script", "img", "b", "title"} & set(seen.elements)
    assert [key for key, _ in seen.attributes if key.startswith("on") or key == "src"] == []
    assert [one.text for one in drawing(content).iter("title")] == [plain]
    assert any(label(plain, 24).split("…")[0] in text for text in texts(content))


@pytest.mark.parametrize("name", ODD, ids=range(len(ODD)))
def test_untrusted_names_of_a_roofline(name: str) -> None:
    once = timing(1.0, 1.0, 1.0)
    ceilings = [Ceiling(name, 4_000_000, 0, once), Ceiling(name, 1000, 800_000_000, once)]
    points = {name: RooflinePoint(40_000_000, 1_000_000, timing(8.0, 10.0, 12.0))}
    content = roofline_of(ANY, points, name, ceilings=ceilings)
    seen = Markup(content)
    assert not {"script", "img", "b"} & set(seen.elements)
    assert [key for key, _ in seen.attributes if key.startswith("on") or key == "src"] == []
    assert (seen.elements.count("svg"), seen.elements.count("title")) == (3, 2)


def test_long_names_are_shortened_in_the_drawing_only() -> None:
    name = "void at::native::" + "x" * 500
    content = stacked_bars(ANY, {"a": [(name, 1.0)]}, "c")
    ((letter, short),) = letters(content)
    assert (letter, len(short)) == ("A", 60)
    assert re.fullmatch(r"void at::native::x+…x+", short)
    assert name in description(content)
    assert cells(content)[1][2] == name


def test_parts_of_a_bar() -> None:
    content = stacked_bars(ANY, STACKS, "c", axis="GPU time")
    across = WIDTH - 2 * EDGE
    stacked = boxes(content)
    shares = [(0, 0.6), (0.6, 0.3), (0.9, 0.1), (0, 0.6), (0.6, 0.2)]
    assert [left for left, _, _, _ in stacked] == pytest.approx([3 + across * start for start, _ in shares], abs=0.11)
    assert [width for _, _, width, _ in stacked] == pytest.approx([across * share for _, share in shares], abs=0.11)
    assert [top for _, top, _, _ in stacked] == [20] * 3 + [80] * 2
    assert [text for text in texts(content) if "µs" not in text] == ["GPU time", "A", "C"]
    assert letters(content) == [("A", "mm"), ("B", "gelu"), ("C", "triton")]
    written = [text for text in texts(content) if "µs" in text]
    assert written == [
        *("0 µs", "25 µs", "50 µs", "75 µs", "100 µs"),
        *("eager: 100 µs", "A 60.0 µs", "B 30.0 µs", "fused: 80.0 µs", "A 60.0 µs"),
    ]
    assert description(content) == (
        "eager: 100 µs, most of it mm 70.0 µs, gelu 30.0 µs. fused: 80.0 µs, most of it mm 60.0 µs, triton 20.0 µs."
    )
    assert cells(content) == [
        ["variant", "key", "part", "GPU time", "share"],
        ["eager", "A", "mm", "60.0 µs", "60.0 %"],
        ["eager", "B", "gelu", "30.0 µs", "30.0 %"],
        ["eager", "A", "mm", "10.0 µs", "10.0 %"],
        ["fused", "A", "mm", "60.0 µs", "75.0 %"],
        ["fused", "C", "triton", "20.0 µs", "25.0 %"],
    ]


def test_what_is_written_into_a_part_fits() -> None:
    content = stacked_bars(ANY, {"a": [("x", 100.0), ("y", 8.0), ("z", 1.0)]}, "c")
    assert [text for text in texts(content) if re.match(r"[ABC]( |$)", text)] == ["A 100 µs", "B"]


def letters(content: str) -> list[tuple[str, str]]:
    """The meaning of the letters in the bars."""
    return [(letter, unescape(name)) for letter, name in re.findall(r"<span>(.)</span> (.*?)</li>", content, re.DOTALL)]


def test_kinds_differ_by_more_than_color() -> None:
    of_kernels = ("gemm", "pointwise", "copy", "other")
    parts = [(kind, 1.0) for kind in of_kernels]
    content = stacked_bars(ANY, {"a": parts}, "c", kinds={kind: kind for kind in of_kernels})
    patterns = [one.get("class") for one in drawing(content).iter("pattern")]
    assert patterns == ["pointwise", "other", "copy"], "a GEMM is plain, as in a timeline"
    assert re.findall(r'<li class="(\w+)">', content) == list(of_kernels)


def test_a_color_says_what_it_is() -> None:
    def colors(content: str) -> set[str]:
        patterns = {*re.findall(r'<pattern id="[^"]*" class="(\w+)"', content)}
        return patterns | {*re.findall(r"var\(--(\w+)-kind\)", content)} | {*re.findall(r"var\(--(gpu)\)", content)}

    kinds = {"mm": "gemm", "gelu": "pointwise"}
    assert colors(stacked_bars(ANY, STACKS, "c", kinds=kinds)) == {"gemm", "pointwise", "other"}
    assert colors(bytes_moved(ANY, {"a": [("x", 5), ("y", 8)]}, "c")) == {"copy"}
    one = timing(5.0, 6.0, 7.0)
    assert colors(timing_bars(ANY, {"a": {"interleaved": one, "GPU": one}}, "c")) == {"gpu"}
    assert colors(timing_bars(ANY, {"a": {"CPU": one, "from Python": one, "enqueue": one}}, "c")) == {"call"}


def test_kinds_share_a_look_and_keep_their_letters() -> None:
    content = stacked_bars(ANY, {"a": [("x", 1.0), ("y", 1.0)]}, "c", kinds={"x": "gemm", "y": "gemm"})
    assert "pattern" not in content
    assert [row[1] for row in cells(content)[1:]] == ["A", "B"]


def test_of_many_names_the_smallest_are_joined() -> None:
    parts = [(f"k{place}", float(place + 1)) for place in range(15)]
    assert joined({"a": parts}, 15) == {"a": parts}
    assert joined({"a": parts, "b": [("k0", 1.0), ("k14", 2.0)]}, 12) == {
        "a": [*parts[4:], ("4 others", 10.0)],
        "b": [("k14", 2.0), ("4 others", 1.0)],
    }
    content = stacked_bars(ANY, {"a": parts}, "c")
    assert letters(content)[-1] == ("L", "4 others")
    assert [row[:3] for row in cells(content)[1:6]] == [["a", "–", f"k{n}"] for n in range(4)] + [["a", "A", "k4"]]
    assert len(cells(content)) == 16


@pytest.mark.parametrize(
    ("groups", "why"),
    [
        ({}, "c: nothing to draw$"),
        ({"a": [("x", 1.0)], "b": []}, r"c: nothing to draw for \['b'\]"),
        ({"a": [("x", 0.0)]}, "not all of them zero"),
        ({"a": [("x", 1.0), ("y", -1.0)]}, "none of the amounts may be below zero"),
        ({"a": [("x", math.nan)]}, "nan"),
        ({"a": [("x", math.inf)]}, "inf"),
    ],
)
def test_bars_that_cannot_be_drawn(groups: Mapping[str, list[tuple[str, float]]], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        stacked_bars(ANY, groups, "c")


@pytest.mark.parametrize(
    ("whole", "expected"),
    [(10.0, [("x", 3.0), ("y", 4.0), ("rest", 3.0)]), (5.0, [("x", 3.0), ("y", 2.0), ("rest", 0.0)])],
)
def test_computed_parts_never_make_a_bar_longer_than_what_was_measured(
    whole: float, expected: list[tuple[str, float]]
) -> None:
    assert with_rest(whole, [("x", 3.0), ("y", 4.0)], "rest") == expected


def test_kernels_of_variants(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"gemm": ("GEMM", "gemm"), "other gemm": ("GEMM", "gemv"), "Memset (Device)": ("fill", "memset")}

    def decode(name: str) -> SimpleNamespace:
        short, operation = known.get(name, (name, "new kind"))
        return SimpleNamespace(short=short, operation=operation)

    monkeypatch.setattr("snippets.lab.charts.bar_charts.decode_kernel_name", decode)
    save_all(device.root, sample("mlp/compiled"), trace=samples.trace_json(name="other gemm", kernels=(1, 1, 1)))
    save_all(device.root, sample("mlp/liger"), trace=samples.trace_json(name="unheard of", kernels=(1, 2, 1)))
    variants = {"eager": "mlp/eager", "compiled": "mlp/compiled", "Liger": "mlp/liger"}
    content = kernel_bars(device, variants, "c")
    assert [row[:4] for row in cells(content)[1:]] == [
        *(["eager", *rest] for rest in (["A", "GEMM", "10.0 µs"], ["A", "GEMM", "10.0 µs"], ["B", "fill", "4.00 µs"])),
        *(["compiled", *rest] for rest in (["C", "GEMM (2)", "10.0 µs"], ["B", "fill", "4.00 µs"])),
        *(["Liger", *rest] for rest in (["D", "unheard of", "10.0 µs"],) * 2),
        ["Liger", "B", "fill", "4.00 µs"],
    ]
    assert {*re.findall(r'<li class="(\w+)">', content)} == {"gemm", "copy", "other"}
    again = kernel_bars(device, variants, "another")
    assert not {*re.findall(r' id="([^"]*)"', content)} & {*re.findall(r' id="([^"]*)"', again)}


def test_times_of_kernels_are_means_where_the_steps_agree(device: Device) -> None:
    def steps(names: tuple[str, str, str]) -> bytes:
        listed = []
        for place, (name, lasts) in enumerate(zip(names, (10, 20, 60), strict=True)):
            start = 1000.0 * place
            listed += [events.step(place, start, 100), events.launch(place + 1, start + 10)]
            listed += [events.kernel(name, place + 1, start + 50, lasts)]
        return events.trace_bytes(*listed)

    save_all(device.root, sample(), trace=steps(("a", "a", "a")))
    assert cells(kernel_bars(device, {"e": "mlp/eager"}, "c"))[1][3] == "30.0 µs"
    save_all(device.root, sample(), trace=steps(("a", "a", "b")))
    assert cells(kernel_bars(device, {"e": "mlp/eager"}, "c"))[1][3] == "20.0 µs"
    save_all(device.root, sample(), trace=events.trace_bytes(events.step(2, 0, 100)))
    with pytest.raises(TraceError, match="no GPU kernels"):
        kernel_bars(device, {"e": "mlp/eager"}, "c")


def test_a_bar_of_kernels_is_as_long_as_the_gpu_was_busy(device: Device) -> None:
    overlapping = events.trace_bytes(
        *(events.step(2, 0, 100), events.launch(1, 10), events.launch(2, 12)),
        *(events.kernel("first", 1, 50, 20), events.kernel("second", 2, 65, 15)),
    )
    save_all(device.root, sample(), trace=overlapping)
    content = kernel_bars(device, {"eager": "mlp/eager"}, "c")
    assert [row[3] for row in cells(content)[1:]] == ["20.0 µs", "10.0 µs"]
    assert description(content).startswith("eager: 30.0 µs")
    assert "counts once, with the previous kernel: eager 5.00 µs." in Markup(content).text
    save_all(device.root, sample())
    assert "overlap" not in kernel_bars(device, {"eager": "mlp/eager"}, "c")


def test_whiskers_reach_from_the_lowest_to_the_highest_process() -> None:
    samples_us = [99.0, 101.0, 79.0, 81.0, 119.0, 121.0]
    three = Timing.from_samples(samples_us, (2, 2, 2))
    assert timing_bars(ANY, {"a": {"b": three}}, "c") != timing_bars(ANY, {"a": {"b": timing(*samples_us)}}, "c")
    unit = (WIDTH - 2 * EDGE - BEHIND) / 120
    reached = re.findall(
        r"M([\d.]+) [\d.]+L([\d.]+) [\d.]+", timing_bars(ANY, {"a": {"b": three}}, "c").split("</svg>")[0]
    )
    ends = {(round(float(left) - EDGE, 1), round(float(right) - EDGE, 1)) for left, right in reached}
    assert (round(80 * unit, 1), round(120 * unit, 1)) in ends


def test_cpu_beside_gpu(device: Device) -> None:
    points = tuple(point({"batch": n}, timings(1.0 * n, 2.0 * n, 3.0 * n)) for n in (1, 50))
    save_all(device.root, sample("mlp/sweep_eager", points=points, has_trace=False))
    variants = {"one": "mlp/eager", "fifty": "mlp/sweep_eager[batch=50]"}
    content = cpu_gpu_bars(device, variants, "c")
    assert cells(content) == [
        ["variant", "timing", "median", "quartiles of one process"],
        ["one", "GPU", "20.0 µs", "15.0 to 25.0 µs"],
        ["one", "CPU", "6.00 µs", "5.50 to 6.50 µs"],
        ["fifty", "GPU", "100 µs", "75.0 to 125 µs"],
        ["fifty", "CPU", "6.00 µs", "5.50 to 6.50 µs"],
    ]
    assert description(content) == "one, GPU 20.0 µs; one, CPU 6.00 µs; fifty, GPU 100 µs; fifty, CPU 6.00 µs."
    unit = (WIDTH - 2 * EDGE - BEHIND) / 125
    assert [width for _, _, width, _ in boxes(content)] == pytest.approx(
        [20 * unit, 6 * unit, 100 * unit, 6 * unit], abs=0.11
    )
    spread = f"M{3 + 75 * unit:.1f} "
    assert spread in "".join(path.get("d", "") for path in drawing(content).iter("path"))
    assert [text for text in texts(content) if text.startswith(("GPU", "CPU"))] == [
        *("GPU 20.0 µs", "CPU 6.00 µs", "GPU 100 µs", "CPU 6.00 µs")
    ]


def test_timings_that_cannot_be_drawn(device: Device) -> None:
    save_all(device.root, sample("mlp/compiled", points=(point(),)))
    with pytest.raises(NotTimed, match=r"^mlp/compiled was recorded without timings; make record CHAPTER=mlp$"):
        cpu_gpu_bars(device, {"c": "mlp/compiled"}, "c")
    with pytest.raises(NotRecorded, match="no recording 'mlp/liger'"):
        cpu_gpu_bars(device, {"c": "mlp/liger"}, "c")
    with pytest.raises(ValueError, match="nothing to draw"):
        cpu_gpu_bars(device, {}, "c")
    with pytest.raises(ValueError, match=r"must be above zero: {'a, b': 0.0}"):
        timing_bars(ANY, {"a": {"b": timing(0.0, 0.0, 1.0)}}, "c")


def test_real_kernels_look_alike_where_they_do_alike() -> None:
    content = kernel_bars(BOOK, {"eager": "mlp/eager", "compiled": "mlp/compiled"}, "c")
    gemms = [row[1] for row in cells(content)[1:] if "GEMM" in row[2]]
    assert gemms == [gemms[0], gemms[0], gemms[2]] * 2
    assert gemms[0] != gemms[2]
