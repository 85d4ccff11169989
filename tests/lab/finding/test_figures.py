"""One number by its name: said in three digits, with its spread, and never one that nothing computes."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pymdownx.inlinehilite import InlineHiliteException

from snippets.lab.finding.figure import Figure, figure_of_timing, format_value
from snippets.lab.finding.measure import of_steps, paired_samples_ratio, per_step
from snippets.lab.finding.quantities import QUANTITIES, UnknownFigure, figure
from snippets.lab.page.inline import as_html, fig_formatter
from snippets.lab.recording.device import PROJECT
from snippets.lab.recording.loading import trace_path
from snippets.lab.trace.kineto import read_trace

# KEEP recording
from tests.lab import samples
from tests.lab.samples import DEVICE, EVIL, Markup, assert_only_text, put, sample


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
        (12.34, "%", "12.3 %"),
        (0.5, "%", "0.50 %"),
        (100.0, "%", "100 %"),
        (1.234, "x", "1.23x"),
        (1234.0, "x", "1,230x"),
        (0.5, "x", "0.50x"),
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
def test_in_words(value: float | int | str, unit: str, expected: str) -> None:
    assert format_value(value, unit) == expected


def test_an_unknown_unit_is_an_error() -> None:
    with pytest.raises(KeyError):
        format_value(1.0, "parsec")


@pytest.mark.parametrize(
    ("shown", "text", "spread"),
    [
        (Figure(21.5, "us", (21.3, 21.9)), "21.5 µs", "21.3 to 21.9 µs"),
        (Figure(990.0, "us", (900.0, 1100.0)), "990 µs", "900 µs to 1.10 ms"),
        (Figure(1.2, "x", (1.1, 1.3)), "1.20x", "1.10x to 1.30x"),
        (Figure(5, spread=(4, 6)), "5", "4 to 6"),
        (Figure(5), "5", ""),
        (Figure(True), "yes", ""),
        (Figure(False), "no", ""),
        (Figure("name"), "name", ""),
        (Figure(False, said="no graph compiled"), "no graph compiled", ""),
    ],
)
def test_a_figure_in_words(shown: Figure, text: str, spread: str) -> None:
    assert (shown.text, shown.spread_text) == (text, spread)


def test_a_timing_is_its_median_with_its_quartiles() -> None:
    assert figure_of_timing(samples.timing(10.0, 30.0, 20.0), "o") == Figure(20.0, "us", (15.0, 25.0), "o")


def test_a_ratio_is_that_of_pairs() -> None:
    """Not 40 / 20, the ratio of the medians: drift that hits both of a pair cancels."""
    upper, lower = samples.timing(10.0, 90.0, 40.0, 80.0, 30.0), samples.timing(10.0, 30.0, 20.0, 20.0, 20.0)
    assert paired_samples_ratio(upper, lower, "o") == Figure(2.0, "x", (1.5, 3.0), "o")
    with pytest.raises(ValueError, match="longer than argument 1"):
        paired_samples_ratio(samples.timing(1.0, 2.0), samples.timing(1.0, 2.0, 3.0))


def test_counts_of_steps_that_agree_and_of_steps_that_do_not() -> None:
    same, other = (read_trace(samples.trace_json(kernels=counts)) for counts in ((2, 2, 2), (1, 2, 4)))
    assert per_step(same, lambda step: len(step.kernels), origin="o") == Figure(2, "", None, "o", True)
    assert per_step(other, lambda step: len(step.kernels)) == Figure(2, "", (1, 4), "", False)
    assert per_step(other, lambda step: 1.5 * len(step.kernels), "us") == Figure(3.0, "us", (1.5, 6.0), "", True)
    assert of_steps(same, lambda step: step.kernels[0].name, "o") == Figure("gemm", origin="o")
    assert of_steps(other, lambda step: len(step.kernels)) == Figure(2, conclusive=False)


def test_a_count_lies_among_those_seen() -> None:
    even = read_trace(samples.trace_json(kernels=(1, 2)))
    assert per_step(even, lambda step: len(step.kernels)).value == 1


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """mlp/eager with a trace, a sweep of two points, one that was not timed."""
    root = samples.shelf(monkeypatch, tmp_path)
    small = samples.point({"batch": 1, "seq": 1}, samples.timings(1.0, 2.0, 3.0))
    points = (small, samples.point({"batch": 64, "seq": 128}, samples.timings()))
    put(root, sample(), sample("mlp/sweep_eager", points=points, has_trace=False))
    put(root, sample("linear/eager", points=(samples.point(),)))
    return root


@pytest.mark.parametrize(
    ("name", "text", "spread"),
    [
        ("mlp.eager.kernels_per_step", "2", ""),
        ("mlp.eager.memsets_per_step", "1", ""),
        ("mlp.eager.memcpys_per_step", "0", ""),
        ("mlp.eager.activities_per_step", "3", ""),
        ("mlp.eager.gpu_calls_per_step", "3", ""),
        ("mlp.eager.cuda_calls_per_step", "3", ""),
        ("mlp.eager.ops_per_step", "1", ""),
        ("mlp.eager.kernel_time_us", "20.0 µs", ""),
        ("mlp.eager.busy_us", "24.0 µs", ""),
        ("mlp.eager.cpu_us", "80.0 µs", ""),
        ("mlp.eager.warm_us", "20.0 µs", "15.0 to 25.0 µs"),
        ("mlp.eager.cold_us", "50.0 µs", "45.0 to 55.0 µs"),
        ("mlp.eager.launched_us", "80.0 µs", "75.0 to 85.0 µs"),
        ("mlp.eager.enqueue_us", "6.00 µs", "5.50 to 6.50 µs"),
        ("mlp.eager.flops", "2.00 MFLOP", ""),
        ("mlp.eager.bytes", "4.00 MB", ""),
        ("mlp.eager.flops_per_s", "100 GFLOP/s", "80.0 to 133 GFLOP/s"),
        ("mlp.eager.bytes_per_s", "200 GB/s", "160 to 267 GB/s"),
        ("mlp.eager.peak_memory_bytes", "16.4 kB", ""),
        ("mlp.eager.relative_error", "2.3e-03", ""),
        ("mlp.sweep_eager.warm_us[batch=1,seq=1]", "2.00 µs", "1.50 to 2.50 µs"),
        ("mlp.sweep_eager.warm_us[batch=64]", "20.0 µs", "15.0 to 25.0 µs"),
    ],
)
def test_figures_by_name(shelf: Path, name: str, text: str, spread: str) -> None:
    found = figure(name)
    assert (found.text, found.spread_text, found.conclusive) == (text, spread, True)
    assert found.origin.startswith("NVIDIA Sample, mlp/")


def test_every_quantity_has_a_test() -> None:
    tested = {mark.args[1][place][0].split(".")[2].split("[")[0] for mark in _cases() for place in range(22)}
    assert tested == set(QUANTITIES)


def _cases() -> list[Any]:
    marks: list[Any] = getattr(test_figures_by_name, "pytestmark", [])
    return [mark for mark in marks if mark.name == "parametrize"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mlp.eager.kernels", "no quantity 'kernels' in 'mlp.eager.kernels'; there are kernels_per_step, "),
        ("mlp.eagr.warm_us", "no experiment 'mlp/eagr'; did you mean mlp/eager"),
        ("mpl.eager.warm_us", "no chapter 'mpl'; did you mean mlp?"),
        ("mlp.sweep_eager.warm_us", "mlp/sweep_eager[] is 2 of its 2 points, not one"),
        ("mlp.sweep_eager.warm_us[batch=2]", "mlp/sweep_eager[batch=2] is 0 of its 2 points, not one"),
        ("mlp.sweep_eager.warm_us[size=1]", "mlp/sweep_eager[size=1] is 0 of its 2 points, not one"),
        ("mlp.sweep_eager.warm_us[batch]", "no figure"),
        ("mlp.sweep_eager.warm_us[]", "no figure"),
        ("mlp.sweep_eager.kernels_per_step", "kernels_per_step comes out of a trace"),
        ("mlp.eager.kernels_per_step[batch=1]", "kernels_per_step comes out of a trace"),
        ("linear.eager.warm_us", "linear/eager was not timed"),
        ("linear.eager.flops_per_s", "linear/eager was not timed"),
        ("linear.eager.cpu_us", "ProfilerStep#2 has no annotation 'other'"),
        ("mlp.no_such_figure", "no figure 'mlp.no_such_figure'"),
        ("nowhere.kernels", "no figure 'nowhere.kernels'"),
        ("kernels", "no figure 'kernels'"),
        ("../x.y", "no figure '../x.y'"),
        ("", "no figure ''"),
        (EVIL[0], "no figure"),
    ],
)
def test_a_figure_that_nothing_computes(shelf: Path, name: str, message: str) -> None:
    if name == "linear.eager.cpu_us":
        put(shelf, sample("linear/eager", label="other"))
    with pytest.raises(UnknownFigure) as raised:
        figure(name)
    assert message in str(raised.value)
    with pytest.raises(InlineHiliteException, match=r"^#!fig "):
        fig_formatter(name, "fig", "fig", None)


def test_figures_of_a_chapter(monkeypatch: pytest.MonkeyPatch, shelf: Path) -> None:
    own = {"answer": lambda device: Figure(f"of {device}")}
    monkeypatch.setattr(importlib, "import_module", lambda name: SimpleNamespace(FIGURES=own))
    assert figure("mlp.answer").text == f"of {DEVICE}"
    assert figure("mlp.answer", "nvidia-x").text == "of nvidia-x"
    with pytest.raises(UnknownFigure, match=r"no figure 'mlp\.question'"):
        figure("mlp.question")


def test_a_missing_recording_is_shown_as_missing(shelf: Path) -> None:
    shown = fig_formatter(" mlp.compiled.warm_us ", "fig", "fig", None)
    seen = Markup(shown)
    assert (seen.elements, seen.text) == (["data"], "not recorded")
    assert dict(seen.attributes)["class"] == "fig missing"
    assert dict(seen.attributes)["data-figure"] == "mlp.compiled.warm_us"
    assert "make record CHAPTER=mlp" in str(dict(seen.attributes)["title"])


def test_a_damaged_recording_ends_the_build(shelf: Path) -> None:
    (shelf / DEVICE / "mlp" / "eager.json").write_text("{")
    with pytest.raises(
        InlineHiliteException, match=r"mlp\.eager\.warm_us: RecordingError: eager\.json is no recording"
    ):
        fig_formatter("mlp.eager.warm_us", "fig", "fig", None)


def test_a_damaged_trace_ends_the_build(shelf: Path) -> None:
    trace_path(sample(), DEVICE, shelf).write_bytes(b"\x1f\x8b\x08")
    with pytest.raises(InlineHiliteException, match="the gzip stream is cut off"):
        fig_formatter("mlp.eager.busy_us", "fig", "fig", None)


def test_a_mistake_in_a_figure_ends_the_build(monkeypatch: pytest.MonkeyPatch, shelf: Path) -> None:
    """inlinehilite would catch anything but its own exception and show the source instead."""
    own = {"answer": lambda device: Figure(1 / 0)}
    monkeypatch.setattr(importlib, "import_module", lambda name: SimpleNamespace(FIGURES=own))
    with pytest.raises(InlineHiliteException, match=r"^#!fig mlp\.answer: ZeroDivisionError: division by zero$"):
        fig_formatter("mlp.answer", "fig", "fig", None)


def test_a_figure_in_a_sentence(shelf: Path) -> None:
    assert fig_formatter("mlp.eager.warm_us", "fig", "fig", None) == (
        '<data class="fig" value="20.0" data-figure="mlp.eager.warm_us" '
        'title="NVIDIA Sample, mlp/eager; 15.0 to 25.0 µs">20.0 µs</data>'
    )


def test_an_inconclusive_figure_says_so(shelf: Path) -> None:
    put(shelf, sample(), trace=samples.trace_json(kernels=(1, 2, 2)))
    shown = fig_formatter("mlp.eager.kernels_per_step", "fig", "fig", None)
    assert 'class="fig inconclusive"' in shown
    assert "1 to 2" in shown


@pytest.mark.parametrize("name", EVIL)
def test_untrusted_text(name: str) -> None:
    shown = as_html(Figure(name, origin=name, said=name), name)
    assert_only_text(shown, name)
    seen = Markup(shown)
    assert (seen.elements, seen.text) == (["data"], name)
    assert dict(seen.attributes) == {"class": "fig", "value": name, "data-figure": name, "title": name}


CONFIG = """\
site_name: x
docs_dir: docs
site_dir: site
theme: {name: null, custom_dir: theme}
plugins: []
markdown_extensions:
  - pymdownx.inlinehilite:
      custom_inline:
        - name: fig
          class: fig
          format: !!python/name:snippets.lab.figures.fig_formatter
"""


@pytest.mark.parametrize(("name", "works"), [("linear.sweep_liger.warm_us", False), ("linear.eager.bytes", True)])
def test_an_unknown_figure_fails_the_build(tmp_path: Path, name: str, works: bool) -> None:
    for folder in ("docs", "theme"):
        (tmp_path / folder).mkdir()
    (tmp_path / "mkdocs.yml").write_text(CONFIG)
    (tmp_path / "theme" / "main.html").write_text("{{ page.content }}")
    (tmp_path / "docs" / "index.md").write_text(f"It is `#!fig {name}` of it.\n")
    command = [sys.executable, "-m", "mkdocs", "build", "--config-file", str(tmp_path / "mkdocs.yml")]
    environment = {name: value for name, value in os.environ.items() if name != "DEVICE"}
    done = subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True, check=False)
    page = tmp_path / "site" / "index.html"
    if works:
        assert done.returncode == 0, done.stderr
        assert f'data-figure="{name}"' in page.read_text()
    else:
        assert done.returncode != 0
        assert f"#!fig {name}: UnknownFigure: no experiment 'linear/sweep_liger'; did you mean" in done.stderr
        assert not page.exists()
