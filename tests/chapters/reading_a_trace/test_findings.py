"""The page on reading a trace: how a kernel came to run, and the numbers to look at first."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest

from snippets.lab.finding import Device, NotRecorded, TraceError
from snippets.lab.page.install import WHEEL
from snippets.reading_a_trace.findings import annotated, first_look, journey, summary_lines
from tests.lab import samples
from tests.lab.samples import EVIL, assert_only_text, cells, sample, save_all, trace_json
from tests.tool import events


@pytest.fixture
def device(tmp_path: Path) -> Device:
    return save_all(tmp_path, sample())


def numbers(html: str) -> list[tuple[str, str, str, str]]:
    """The numbers of the picture: how far aside, x, y, the number."""
    aside = r'<g(?: transform="translate\((-?\d+)\)")?>'
    return re.findall(aside + r'<circle cx="([^"]+)" cy="(\d+)" r="9"/><text[^>]*>(\d)</text></g>', html)


def test_the_numbers_are_at_an_operator_its_launch_the_arrow_the_kernel_and_the_longest_idle_time(
    device: Device,
) -> None:
    """From the label at 5 us to the fill's end at 134 us: the operator is at 10 to 70, its first launch at 20 to 22."""
    html = annotated(device, "mlp/eager", "One <forward>")
    assert "<figcaption>One &lt;forward&gt;</figcaption>" in html
    assert numbers(html) == [
        ("", "26.6%", "52", "1"),
        ("-15", "12.16%", "79", "2"),
        ("", "30.78%", "112", "3"),
        ("", "54.72%", "145", "4"),
        ("", "34.58%", "145", "5"),
    ]


@pytest.mark.parametrize(
    ("trace", "message"),
    [
        (trace_json(kernels=(1, 0, 1)), r"ProfilerStep#3 has no kernel with its launch, or no idle time"),
        (events.trace_bytes(events.step(2, 0, 100)), "no GPU kernels"),
        (
            events.trace_bytes(
                events.step(2, 0, 100),
                events.annotation("mlp_fwd", 5, 80),
                events.launch(1, 20),
                events.kernel("gemm", 1, 50, 10),
            ),
            "ProfilerStep#2: no operator encloses the launch of gemm",
        ),
    ],
)
def test_a_step_that_cannot_be_numbered(tmp_path: Path, trace: bytes, message: str) -> None:
    with pytest.raises(TraceError, match=message):
        annotated(save_all(tmp_path, sample(), trace=trace), "mlp/eager", "One forward")


def test_the_journey_of_a_kernel(device: Device) -> None:
    html = journey(device, "mlp/eager")
    correlation = device["mlp/eager"].step.kernels[0].correlation
    assert "<caption>From annotation to kernel: mlp/eager, ProfilerStep#3</caption>" in html
    assert cells(html) == [
        ["name", "kind and lane", "linked by", "start in the step", "duration"],
        ["ProfilerStep#3", "annotation, CPU", "its time encloses the time of the next row", "0 µs", "100 µs"],
        ["mlp_fwd", "annotation, CPU", "its time encloses the time of the next row", "5.00 µs", "80.0 µs"],
        ["aten::mm", "operator, CPU", "External id 20", "10.0 µs", "60.0 µs"],
        ["cudaLaunchKernel", "CUDA call, CPU", f"External id None, correlation {correlation}", "20.0 µs", "2.00 µs"],
        ["gemm", "kernel, stream 7", f"External id 20, correlation {correlation}", "70.0 µs", "10.0 µs"],
    ]


def test_the_journey_has_the_caption_it_is_given(device: Device) -> None:
    assert "<caption>Another</caption>" in journey(device, "mlp/eager", "Another")


def test_a_step_without_a_kernel_has_no_journey(tmp_path: Path) -> None:
    device = save_all(tmp_path, sample(), trace=trace_json(kernels=(1, 0, 1)))
    with pytest.raises(TraceError, match=r"mlp/eager: ProfilerStep#3 has no kernel"):
        journey(device, "mlp/eager")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (events.trace_bytes(events.launch(1, 0), events.kernel("k", 1, 5, 5)), "no active steps"),
        (events.trace_bytes(events.step(2, 0, 100)), "no GPU kernels"),
    ],
)
def test_a_trace_without_steps_or_kernels_says_what_to_check(tmp_path: Path, content: bytes, message: str) -> None:
    device = save_all(tmp_path, sample(), trace=content)
    with pytest.raises(TraceError, match=message):
        journey(device, "mlp/eager")


def test_a_missing_recording(device: Device) -> None:
    with pytest.raises(NotRecorded, match="make record CHAPTER=mlp"):
        journey(device, "mlp/compiled")


@pytest.mark.parametrize("name", EVIL)
def test_untrusted_names_are_text(tmp_path: Path, name: str) -> None:
    device = save_all(tmp_path, sample(label=name), trace=trace_json(name=name, op=name, label=name))
    assert_only_text(journey(device, "mlp/eager"), name)
    assert_only_text(journey(device, "mlp/eager", name), name)


def test_the_first_look(tmp_path: Path) -> None:
    recordings = [sample(experiment) for experiment in ("linear/eager", "mlp/eager", "mlp/compiled")]
    save_all(tmp_path, *recordings[:2])
    device = save_all(tmp_path, recordings[2], trace=samples.trace_json(kernels=(1, 1, 1)))
    assert cells(first_look(device)) == [
        ["", "linear, eager", "MLP, eager", "MLP, compiled"],
        ["kernels in a step", "2", "2", "1"],
        ["copies in a step", "0", "0", "0"],
        ["fills in a step", "1", "1", "1"],
        ["GPU busy", "24.0 µs", "24.0 µs", "14.0 µs"],
        ["the step on the CPU", "80.0 µs", "80.0 µs", "80.0 µs"],
    ]


def test_where_the_gpu_is_in_a_file() -> None:
    """As the page says: processes by label, the GPU's streams as its threads, steps on the main thread."""
    content = json.loads(
        gzip.decompress((samples.BOOK.root / samples.BOOK.name / "trace_rows/train.trace.json.gz").read_bytes())
    )
    named = [event for event in content["traceEvents"] if event["ph"] == "M"]
    labels = {event["args"]["labels"]: event["pid"] for event in named if event["name"] == "process_labels"}
    threads = {(e["pid"], e["tid"], e["args"]["name"].strip()) for e in named if e["name"] == "thread_name"}
    assert [labels[f"GPU {index}"] for index in range(16)] == list(range(16))
    assert len(labels) == 17
    assert [name for pid, _, name in threads if pid == 0] == ["stream 7"]
    host = labels["CPU"]
    assert any(pid == host and "(pt_autograd_0)" in name for pid, _, name in threads)
    steps = {
        (e["pid"], e["tid"]) for e in content["traceEvents"] if e["name"].startswith("ProfilerStep#") and e["ph"] == "X"
    }
    assert (host, host) in steps


def test_the_first_line_installs_the_tool_from_this_site(device: Device) -> None:
    first, second, _ = summary_lines(device).split("\n")
    assert first.endswith(f"pip install <span data-site></span>{WHEEL}")
    assert second == "kinetoscope summary trace.json.gz"
