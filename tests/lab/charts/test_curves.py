"""Rooflines and sweeps out of hand-made data: what is drawn where, and what cannot be drawn."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from kinetoscope.html import Html
from snippets.lab.charts.bar_charts import cpu_gpu_bars, kernel_bars
from snippets.lab.charts.curve_charts import regimes, roofline, roofline_of
from snippets.lab.charts.curves import SIDE, Roof, RooflinePoint, Scale, Sweep
from snippets.lab.charts.roofline import APART, WIDTHS, Roofline, numbers_apart
from snippets.lab.charts.svg import TEXT, WIDTH, plain
from snippets.lab.finding.device import Device
from snippets.lab.recording.schema import Ceiling, Timings
from tests.lab.charts.drawings import description, drawing, texts, words
from tests.lab.samples import BOOK, EVIL, Markup, cells, point, sample, save_all, timing, timings

ANY = Device(Path("nowhere"), "nvidia-sample")
"""For charts of data that no recording has."""
COPY = Ceiling("copy", 4_000_000, 0, timing(1.0, 1.0, 1.0))
MATMUL = Ceiling("matmul 8x8x8", 1000, 800_000_000, timing(1.0, 1.0, 1.0))
POINTS = {
    "low": RooflinePoint(40_000_000, 1_000_000, timing(8.0, 10.0, 12.0)),
    "high": RooflinePoint(40_000_000, 100_000, timing(20.0, 40.0, 60.0)),
}


@pytest.fixture
def device(tmp_path: Path) -> Device:
    return save_all(tmp_path, sample())


def test_a_roof() -> None:
    roof = Roof(800e12, "matmul", 4e12, "copy")
    assert roof.ridge == 200
    assert [roof(intensity) for intensity in (1, 100, 200, 5000)] == [4e12, 400e12, 800e12, 800e12]
    assert str(roof) == "4.00 TB/s (copy) up to 200 FLOP per byte, then 800 TFLOP/s (matmul)"


def test_steps_below_their_roof() -> None:
    slower = [Ceiling("slow copy", 1_000_000, 0, timing(1.0, 1.0, 1.0)), Ceiling("small", 1, 5, timing(1.0, 1.0, 1.0))]
    content = roofline_of(ANY, POINTS, "c", ceilings=[*slower, COPY, MATMUL])
    assert cells(content) == [
        ["step", "FLOP per byte", "rate", "share of the roof", "time", "quartiles of one process"],
        ["low", "40.0", "4.00 TFLOP/s", "2.3 to 2.8 %", "10.0 µs", "9.00 to 11.0 µs"],
        ["high", "400", "1.00 TFLOP/s", "0.1 to 0.2 %", "40.0 µs", "30.0 to 50.0 µs"],
    ]
    roof = "4.00 TB/s (copy) up to 200 FLOP per byte, then 800 TFLOP/s (matmul 8x8x8, x @ weight.t())"
    assert content.count(">low: 4.00 TFLOP/s at 40.0 FLOP per byte, 2.3 to 2.8 % of the roof. high: ") == len(WIDTHS)
    assert content.count(f"The roof is {roof}.</desc>") == len(WIDTHS)
    ids = re.findall(r' id="([^"]*)"', content)
    assert len(ids) == len(set(ids)) == 2 * len(WIDTHS)
    for width in WIDTHS:
        written = texts(drawn(content, width))
        assert {"TFLOP/s", "FLOP per byte", "copy: 4.00 TB/s", "matmul 8x8x8: 800 TFLOP/s"} <= set(written)
        assert written[-2:] == ["1", "2"]
    assert re.findall(r"<li>(.*?)</li>", content) == [
        "<span>low</span> <span>4.00 TFLOP/s<small>10.0 µs</small></span> <span>2.3 to 2.8 %"
        '<svg class="copy" aria-hidden="true"><rect width="2.5%" height="100%"/></svg></span>',
        "<span>high</span> <span>1.00 TFLOP/s<small>40.0 µs</small></span> <span>0.1 to 0.2 %"
        '<svg class="gemm" aria-hidden="true"><rect width="0.1%" height="100%"/></svg></span>',
    ]


def test_no_percentage_of_the_roof_for_a_short_time_or_above_it() -> None:
    points = {
        "short": RooflinePoint(40_000_000, 1_000_000, timing(9.9, 9.9, 9.9)),
        "above": RooflinePoint(9_000_000_000, 1_000_000, timing(11.0, 11.0, 11.0)),
        "around": RooflinePoint(9_000_000_000, 1_000_000, timing(11.0, 12.0, 13.0)),
    }
    content = roofline_of(ANY, points, "c", ceilings=[COPY, MATMUL])
    assert [row[3] for row in cells(content)[1:]] == ["–", "–", "90 to 98 %"]
    assert "A step below 10 µs has no percentage" in Markup(content).text
    assert "short: 4.04 TFLOP/s at 40.0 FLOP per byte. above:" in content
    assert content.count('aria-hidden="true"') == 1, "no bar without a percentage"
    assert "no percentage" not in roofline_of(ANY, POINTS, "c", ceilings=[COPY, MATMUL])


def drawn(content: str, width: int) -> str:
    """The drawing of a roofline for one of `WIDTHS`."""
    (found,) = re.findall(rf'<svg class="w{width}" .*?</svg>', content)
    return str(found)


ROOF = Roof(800e12, "matmul 8192x8192x8192", 4e12, "copy")
CROWDED: dict[str, list[RooflinePoint]] = {
    "eight of all rates, two pairs at one place": [
        RooflinePoint(flops, moved, timing(*[us] * 3))
        for flops, moved, us in (
            *((40_000_000, 20_000_000, 10.0), (40_000_000, 20_000_000, 100.0), (80_000_000, 20_000_000, 12.0)),
            *((10**12, 10**9, 1500.0), (10**12, 10**9, 2500.0), (10**12, 2 * 10**9, 2000.0)),
            *((10**9, 10**8, 30.0), (10**10, 10**8, 40.0)),
        )
    ],
    "twelve at one place": [RooflinePoint(40_000_000, 20_000, timing(*[9.9 + place / 10] * 3)) for place in range(12)],
    "both ends": [
        RooflinePoint(40_000, 400_000, timing(9, 10, 11)),
        RooflinePoint(4 * 10**8, 2_000, timing(9, 10, 11)),
    ],
    "far above the roof": [RooflinePoint(40_000_000, 1_000_000, timing(0.1, 0.1, 0.1))],
}


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("points", CROWDED.values(), ids=CROWDED)
def test_no_label_of_a_roofline_covers_another(points: list[RooflinePoint], width: int) -> None:
    picture = Roofline(points, ROOF, width)
    picture.svg("x", "t", "d")
    assert len(picture.labels) > len(points) + 6
    assert overlapping(picture) == []
    for each in picture.labels:
        assert each.left >= -1, each
        assert each.right <= width + 1, each
        assert 0 <= each.top < each.bottom <= picture.height, each


def overlapping(picture: Roofline) -> list[tuple[str, str]]:
    return [
        (one.text, other.text)
        for one, other in combinations(picture.labels, 2)
        if one.left < other.right - 1
        and other.left < one.right - 1
        and one.top < other.bottom
        and other.top < one.bottom
    ]


def test_labels_that_cover_each_other_are_seen() -> None:
    picture = Roofline(CROWDED["both ends"], ROOF, WIDTHS[0])
    picture.svg("x", "t", "d")
    picture.labels.append(picture.labels[0])
    assert overlapping(picture) == [("TFLOP/s", "TFLOP/s")]


def test_numbers_are_near_their_marks_and_apart() -> None:
    assert numbers_apart([(100.0, 5.0), (300.0, 5.0)], 10, 500) == [100, 300]
    assert numbers_apart([(300.0, 5.0), (100.0, 5.0)], 10, 500) == [300, 100]
    assert numbers_apart([(100.0, 5.0), (110.0, 5.0)], 10, 500) == [105 - APART / 2, 105 + APART / 2]
    assert numbers_apart([(0.0, 5.0), (505.0, 5.0)], 10, 500) == [10, 500]


def test_of_marks_above_each_other_the_lowest_is_in_the_middle() -> None:
    low, middle, high = (200.0, 90.0), (201.0, 60.0), (199.0, 30.0)
    assert numbers_apart([high, low, middle], 10, 500) == [200 + APART, 200, 200 - APART]


def test_more_numbers_than_the_line_has_room_for_move_together() -> None:
    places = [(50.0 + 9 * index, 5.0) for index in range(12)]
    assert numbers_apart(places, 0, 110) == pytest.approx([10.0 * index for index in range(12)])


def test_rooflines_that_cannot_be_drawn() -> None:
    for ceilings in ([], [COPY], [MATMUL]):
        with pytest.raises(ValueError, match="needs the ceilings of a copy and of a matmul"):
            roofline_of(ANY, POINTS, "c", ceilings=ceilings)
    for spot, quantity in (
        (RooflinePoint(0, 1, timing(1, 1, 1)), "FLOP"),
        (RooflinePoint(1, 0, timing(1, 1, 1)), "bytes"),
    ):
        with pytest.raises(ValueError, match=f"must be above zero: {{'a, {quantity}': 0}}"):
            roofline_of(ANY, {"a": spot}, "c", ceilings=[COPY, MATMUL])
    with pytest.raises(ValueError, match="'a, time': 0"):
        roofline_of(ANY, {"a": RooflinePoint(1, 1, timing(0, 0, 0))}, "c", ceilings=[COPY, MATMUL])


def test_a_roofline_of_experiments(device: Device) -> None:
    work = point(timed=timings(10.0, 10.0, 10.0), flops=40_000_000, bytes=1_000_000)
    save_all(device.root, sample("mlp/eager", points=(work,), ceilings=(COPY,)))
    save_all(device.root, sample("mlp/liger", points=(work,), ceilings=(MATMUL,)))
    content = roofline(device, {"eager": "mlp/eager", "Liger": "mlp/liger"}, "c")
    assert cells(content)[1:] == [
        [name, "40.0", "4.00 TFLOP/s", "2.5 %", "10.0 µs", "10.0 to 10.0 µs"] for name in ("eager", "Liger")
    ]


def test_round_values_of_a_scale() -> None:
    assert Scale(1, 100, 0, 200)(10) == pytest.approx(100)
    assert Scale(1, 100, 200, 0)(100) == 0
    assert Scale(3, 300, 0, 1).ticks(6) == [5, 10, 20, 50, 100, 200]
    assert Scale(3, 300, 0, 1).ticks(5) == [3, 10, 30, 100, 300]
    assert Scale(3, 300, 0, 1).ticks(3) == [10, 100]
    assert Scale(1, 1e6, 0, 1).ticks(4) == [1, 100, 10_000, 1_000_000]
    assert [plain(us, "us") for us in (0, 10, 2500, 100_000, 0.5)] == [
        "0 µs",
        "10 µs",
        "2.5 ms",
        "100 ms",
        "500 ns",
    ]


def sweep(cpu: tuple[float, ...], gpu: tuple[float, ...]) -> Sweep:
    one = tuple(timing(us, us, us) for us in gpu)
    other = tuple(timing(us, us, us) for us in cpu)
    return Sweep(tuple(10.0**place for place in range(len(gpu))), one, other, other)


@pytest.mark.parametrize(
    ("cpu", "gpu", "count", "crossing", "words"),
    [
        ((20, 20, 20), (2, 2, 200), 2, 10**1.5, "overhead-bound up to 10 tokens"),
        ((20, 20, 20), (10, 20, 200), 1, 10, "overhead-bound up to 1 tokens"),
        ((20, 20, 20), (30, 30, 30), 0, 1, "never overhead-bound"),
        ((20, 20, 20), (3, 3, 3), 3, 100, "overhead-bound throughout"),
        ((20, 20, 20), (30, 10, 40), 2, 10**1.5, "overhead-bound up to 10 tokens"),
    ],
)
def test_where_the_gpu_takes_over(
    cpu: tuple[float, ...], gpu: tuple[float, ...], count: int, crossing: float, words: str
) -> None:
    growing = sweep(cpu, gpu)
    assert (growing.overhead_bound, growing.regime("tokens")) == (count, words)
    assert growing.crossing == pytest.approx(crossing)


def swept(cpu: tuple[float, ...], gpu: tuple[float, ...]) -> tuple[Any, ...]:
    """Points of a sweep, the largest first."""
    points = []
    for power, (enqueue, busy) in enumerate(zip(cpu, gpu, strict=True)):
        given = timings()
        timed = Timings(
            timing(busy, busy, 2 * busy), given.cold, given.from_python, timing(enqueue, enqueue, 2 * enqueue), 1, 1
        )
        points.append(point({"batch": 2, "seq": 10**power}, timed))
    return tuple(reversed(points))


def tokens(parameters: Mapping[str, int | str]) -> float:
    return int(parameters["batch"]) * int(parameters["seq"])


def test_regimes_of_sweeps(device: Device) -> None:
    save_all(device.root, sample("mlp/sweep_eager", points=swept((20, 20, 20), (2, 2, 200)), has_trace=False))
    save_all(device.root, sample("mlp/sweep_liger", points=swept((1, 1, 1), (2, 2, 2)), has_trace=False))
    experiments = {"eager": "mlp/sweep_eager", "Liger": "mlp/sweep_liger"}
    content = regimes(device, experiments, "c", size=tokens, unit="tokens")
    assert cells(content)[:3] == [
        ["variant", "tokens", "on the GPU", "on the CPU", "from Python"],
        ["eager", "2", "2.00 µs2.00 to 3.00 µs", "20.0 µs20.0 to 30.0 µs", "80.0 µs75.0 to 85.0 µs"],
        ["eager", "20", "2.00 µs2.00 to 3.00 µs", "20.0 µs20.0 to 30.0 µs", "80.0 µs75.0 to 85.0 µs"],
    ]
    assert [row[:2] for row in cells(content)[3:]] == [
        ["eager", "200"],
        *(["Liger", size] for size in ("2", "20", "200")),
    ]
    assert description(content) == (
        "eager: overhead-bound up to 20 tokens; on the GPU 2.00 µs at 2 and 200 µs at 200. "
        "Liger: never overhead-bound; on the GPU 2.00 µs at 2 and 2.00 µs at 200."
    )
    assert texts(content).count("200") == 1
    assert {"eager", "overhead-bound up to 20 tokens", "Liger", "never overhead-bound", "tokens"} <= set(texts(content))
    shaded = [path for path in drawing(content).iter("path") if "--chart-band" in path.get("style", "")]
    width = WIDTH - SIDE - 20
    edge = SIDE + Scale(2, 200, 8, width - 8)(2 * 10**1.5)
    assert len(shaded) == 2
    assert f"L{edge:.1f}".removesuffix(".0") + " " in shaded[1].get("d", "")
    assert len(re.findall("<use ", content)) == 3 + 2 * 3 * 3


def test_a_line_where_the_limit_of_the_gpu_turns(device: Device) -> None:
    save_all(device.root, sample("mlp/sweep_eager", points=swept((20, 20, 20), (2, 2, 200)), has_trace=False))
    words = "the GPU's limit: memory before, arithmetic after"
    for at, is_drawn in ((lambda run: 20.0, True), (lambda run: None, False)):
        content = regimes(device, {"eager": "mlp/sweep_eager"}, "c", size=tokens, unit="tokens", turn=at)
        assert (words in texts(content)) is is_drawn
        dashed = [path.get("d", "") for path in drawing(content).iter("path") if "dasharray" in path.get("style", "")]
        edge = SIDE + Scale(2, 200, 8, WIDTH - SIDE - 28)(20)
        assert any(line.startswith(f"M{edge:.1f}".removesuffix(".0") + " ") for line in dashed) is is_drawn


def test_untrusted_headings(device: Device) -> None:
    save_all(device.root, sample("mlp/sweep_eager", points=swept((20, 20), (2, 200)), has_trace=False))
    for name in EVIL:
        content = regimes(device, {name: "mlp/sweep_eager"}, name, size=tokens, unit=name)
        seen = Markup(content)
        assert not {"script", "img", "b"} & set(seen.elements)
        assert [key for key, _ in seen.attributes if key.startswith("on") or key == "src"] == []
        assert name in texts(content)
        assert cells(content)[1][0] == cells(content)[0][1] == name


@pytest.mark.parametrize(
    ("points", "size", "why"),
    [
        (swept((1, 1), (1, 1)), lambda at: 0, "must be above zero"),
        (swept((1, 1), (1, 1)), lambda at: 7, r"has the sizes \(7, 7\), not two or more"),
        (swept((1,), (1,)), tokens, r"has the sizes \(2,\), not two or more"),
        ((), tokens, "must be above zero"),
    ],
    ids=["no size", "one size", "one point", "no point"],
)
def test_sweeps_that_cannot_be_drawn(device: Device, points: tuple[Any, ...], size: Any, why: str) -> None:
    save_all(device.root, sample("mlp/sweep_eager", points=points, has_trace=False))
    with pytest.raises(ValueError, match=why):
        regimes(device, {"eager": "mlp/sweep_eager"}, "c", size=size, unit="tokens")


def real() -> dict[str, Html]:
    forward = {"eager": "mlp/eager", "compiled": "mlp/compiled", "Liger": "mlp/liger"}
    sweeps = {name: f"mlp/sweep_{name.lower()}" for name in forward}
    return {
        "kernels": kernel_bars(BOOK, forward, "GPU time of one forward, by kernel"),
        "both": cpu_gpu_bars(BOOK, forward, "CPU and GPU"),
        "roofline": roofline(BOOK, forward | {"linear": "linear/eager"}, "Roofline"),
        "regimes": regimes(BOOK, sweeps, "Regimes", size=tokens, unit="tokens"),
    }


def test_charts_of_the_book() -> None:
    """Small, and every word inside the drawing, set in letters as wide as fonts come."""
    for name, content in real().items():
        if name == "roofline":
            assert all(len(drawn(content, width)) <= 6_000 for width in WIDTHS)
            continue
        root = drawing(content)
        assert len(ElementTree.tostring(root)) <= 12_000, name
        height = float(root.get("viewBox", "").split()[3])
        for text, left, right, baseline in words(content):
            assert left >= 0, (name, text)
            assert right <= WIDTH, (name, text)
            assert TEXT / 2 < baseline < height, (name, text)
