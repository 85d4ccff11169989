"""What a report says of several GPUs, and of copies that no kernel hides."""

from __future__ import annotations

import pytest

from kinetoscope.diagnosis.facts import Facts
from kinetoscope.report.gpus import gpus_html
from kinetoscope.report.headline import headline, tiles_html
from kinetoscope.report.trace_report import report_data
from kinetoscope.trace.events import Trace
from tests.tool.diagnosis.test_gpu_use import FOUR_IN_TURNS, IN_TURNS, copying, used
from tests.tool.diagnosis.traces import DOWNLOAD
from tests.tool.markup import text_of
from tests.tool.report.samples import diagnosed

COPIED = copying((DOWNLOAD, 400, 900))


@pytest.mark.parametrize(
    ("trace", "works"),
    [
        (IN_TURNS, "its 2 GPUs work in turns, each 40 % of it."),
        (FOUR_IN_TURNS, "its 4 GPUs work in turns, 10 % to 40 % of it."),
        (used([(10, 910)], [(10, 910)]), "its 2 GPUs work each 90 % of it."),
        (copying((DOWNLOAD, 400, 900)), "kernels run 50 % of it, copies alone 40 %."),
        (copying((DOWNLOAD, 400, 540)), "the GPU works 54 % of it."),
    ],
)
def test_headline(trace: Trace, works: str) -> None:
    assert headline(diagnosed(trace)).startswith(f"A step takes 1.00 ms and {works}")


@pytest.mark.parametrize(
    ("trace", "tile"),
    [
        (FOUR_IN_TURNS, "GPU busy25 %250 µs per step, mean of 4 GPUs; idle 750 µs"),
        (COPIED, "GPU busy90 %900 µs per step; copies alone 400 µs of it; idle 100 µs"),
        (used([(10, 510)]), "GPU busy50 %500 µs per step; idle 500 µs"),
    ],
)
def test_tile(trace: Trace, tile: str) -> None:
    assert tile in text_of(tiles_html(diagnosed(trace)))


def test_the_section_of_several_gpus() -> None:
    text = text_of(gpus_html(Facts(FOUR_IN_TURNS)))
    assert "GPU 3\n400 µs\n40.0 %\n600 µs\n60.0 %" in text
    assert "the GPU works while any GPU works" in text


def test_the_section_of_copies() -> None:
    text = text_of(gpus_html(Facts(COPIED)))
    assert "copies between host and GPU while no kernel runs: 400 µs per step. Kernels run for 500 µs per step." in text
    assert gpus_html(Facts(used([(10, 510)]))) == ""


def test_json() -> None:
    data = report_data(diagnosed(IN_TURNS))
    gpu = {"busy_us_per_step": 400.0, "share": 0.4, "bubble_us_per_step": 400.0}
    assert data["gpus"] == [{"device": 0, **gpu}, {"device": 1, **gpu}]
    assert (data["kernels_us_per_step"], data["copies_alone_us_per_step"]) == (800.0, 0.0)
