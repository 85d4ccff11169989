"""A figure: three significant digits in the unit that suits them, its spread, and whether the steps agree."""

from __future__ import annotations

import pytest

from kinetoscope.trace.events import Step
from kinetoscope.trace.kineto import read_trace
from kinetoscope.trace.units import format_value
from snippets.lab.finding.figure import Figure, per_step
from snippets.lab.recording.schema import Timing
from tests.lab import samples


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [
        (1455.2, "us", "1.46 ms"),
        (21.5, "us", "21.5 µs"),
        (5.0, "us", "5.00 µs"),
        (123.4, "us", "123 µs"),
        (999.4, "us", "999 µs"),
        (999.7, "us", "1.00 ms"),
        (9.996, "us", "10.0 µs"),
        (99.96, "us", "100 µs"),
        (0.4321, "us", "432 ns"),
        (0.0001, "us", "0.10 ns"),
        (2_500_000.0, "us", "2.50 s"),
        (0, "us", "0 µs"),
        (0.0, "us", "0 µs"),
        (-21.5, "us", "-21.5 µs"),
        (-1455.2, "us", "-1.46 ms"),
        (50_331_648, "bytes", "50.3 MB"),
        (999_999, "bytes", "1.00 MB"),
        (16_384, "bytes", "16.4 kB"),
        (512, "bytes", "512 bytes"),
        (1, "bytes", "1 bytes"),
        (0, "bytes", "0 bytes"),
        (150_109_880_320, "bytes", "150 GB"),
        (38_654_705_664, "flop", "38.7 GFLOP"),
        (524_288, "flop", "524,288 FLOP"),
        (2e12, "flop", "2.00 TFLOP"),
        (617.3e12, "flop/s", "617 TFLOP/s"),
        (4.237e12, "bytes/s", "4.24 TB/s"),
        (80e9, "bytes/s", "80.0 GB/s"),
        (2.5, "J", "2.50 J"),
        (0.0125, "J", "12.5 mJ"),
        (3.2e-5, "J", "32.0 µJ"),
        (652.5, "W", "652 W"),
        (1980.0, "MHz", "1,980 MHz"),
        (12.34, "%", "12.3 %"),
        (0.5, "%", "0.50 %"),
        (100.0, "%", "100 %"),
        (1.234, "x", "1.23x"),
        (1234.0, "x", "1,230x"),
        (0.5, "x", "0.50x"),
        (0.58536, "x", "0.59x"),
        (9.994, "x", "9.99x"),
        (9.9951, "x", "10.0x"),
        (99.951, "us", "100 µs"),
        (1_444.6, "us", "1.44 ms"),
        (5, "", "5"),
        (1024, "", "1,024"),
        (1234567, "", "1,234,567"),
        (0.00234, "", "2.3e-03"),
        (2.5, "", "2.50"),
        (1.5e7, "", "1.5e+07"),
        ("nvjet_sm90", "", "nvjet_sm90"),
        ("text", "us", "text"),
    ],
)
def test_values_as_a_reader_sees_them(value: float | int | str, unit: str, expected: str) -> None:
    assert format_value(value, unit) == expected


def test_an_unknown_unit_is_an_error() -> None:
    with pytest.raises(KeyError):
        format_value(1.0, "parsec")


@pytest.mark.parametrize(
    ("figure", "text", "spread"),
    [
        (Figure(21.5, "us", (21.3, 21.9)), "21.5 µs", "21.3 to 21.9 µs"),
        (Figure(990.0, "us", (900.0, 1100.0)), "990 µs", "900 µs to 1.10 ms"),
        (Figure(1.2, "x", (1.1, 1.3)), "1.20x", "1.10x to 1.30x"),
        (Figure(5, spread=(4, 6)), "5", "4 to 6"),
        (Figure(5), "5", ""),
        (Figure(True), "yes", ""),
        (Figure(False), "no", ""),
        (Figure("name"), "name", ""),
        (Figure(False, display="no graph compiled"), "no graph compiled", ""),
    ],
)
def test_figures_as_a_reader_sees_them(figure: Figure, text: str, spread: str) -> None:
    assert (figure.text, figure.spread_text) == (text, spread)


def test_a_timing_of_several_processes_has_the_spread_of_their_medians() -> None:
    timing = Timing.from_samples((10.0, 12.0, 20.0, 22.0, 30.0, 32.0), (2, 2, 2))
    assert Figure.from_timing(timing) == Figure(21.0, "us", (11.0, 31.0))


def test_a_timing_of_one_process_is_its_median_with_its_quartiles() -> None:
    assert Figure.from_timing(samples.timing(10.0, 30.0, 20.0), "o") == Figure(20.0, "us", (15.0, 25.0), "o")


def test_numbers_and_bounds() -> None:
    assert (Figure(5).number, Figure(5).bounds) == (5.0, (5.0, 5.0))
    assert Figure(2.0, "us", (1.0, 4.0)).bounds == (1.0, 4.0)
    assert Figure(True).number == 1.0
    with pytest.raises(ValueError, match="could not convert string to float: 'gemm'"):
        _ = Figure("gemm").number


def count(step: Step) -> int:
    return len(step.kernels)


def test_what_steps_show() -> None:
    agree, differ = (read_trace(samples.trace_json(kernels=counts)).steps for counts in ((2, 2, 2), (1, 2, 4)))
    assert per_step(agree, count, origin="o") == Figure(2, "", None, "o", True)
    assert per_step(differ, count) == Figure(2, "", (1, 4), "", False)
    assert per_step(differ, lambda step: 1.5 * count(step), "us") == Figure(3.0, "us", (1.5, 6.0), "", True)
    assert per_step(agree, lambda step: step.kernels[0].name, origin="o") == Figure("gemm", origin="o")
    assert per_step(differ, lambda step: "gemm" * count(step)) == Figure("gemmgemm", conclusive=False)
    assert per_step(agree, lambda step: count(step) == 2) == Figure(True)
    assert per_step(differ, lambda step: count(step) == 2) == Figure(True, conclusive=False)


def test_a_count_is_one_of_those_seen() -> None:
    assert per_step(read_trace(samples.trace_json(kernels=(1, 2))).steps, count).value == 1
