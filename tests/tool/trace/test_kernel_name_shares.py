"""How much of the GPU time of real traces has a kernel name whose library the decoder knows."""

from __future__ import annotations

import gzip
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from kinetoscope.trace.kernel_names import decode_kernel_name
from tests.tool.diagnosis.recorded import DEVICES
from tests.tool.recorded import experiments, recorded
from tests.tool.trace.public import PUBLIC_TRACES, needs_public_traces

NVIDIA_LIMIT = 0.01
AMD_LIMIT = 0.05
GPU_WORK = {"kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset"}


class Event(msgspec.Struct):
    """The fields of an event that matter here; older versions of the profiler capitalize `cat`."""

    name: str = ""
    cat: str | None = None
    dur: float = 0.0


class File(msgspec.Struct):
    """A trace file."""

    traceEvents: list[Event]


def gpu_time_us(path: Path) -> tuple[bool, Counter[str]]:
    """Whether the trace is from an AMD GPU, and the time of GPU work by name."""
    events = msgspec.json.decode(gzip.decompress(path.read_bytes()), type=File, strict=False).traceEvents
    time: Counter[str] = Counter()
    for event in events:
        if event.cat and event.cat.lower() in GPU_WORK:
            time[event.name] += event.dur
    return any(event.name.startswith("hip") for event in events if event.cat == "cuda_runtime"), time


def unknown_us(time: Counter[str]) -> float:
    """The time under names whose library is unknown."""
    return sum(us for name, us in time.items() if decode_kernel_name(name).library == "unknown")


@needs_public_traces
def test_the_library_of_almost_all_gpu_time_of_public_traces() -> None:
    public = {path.name: gpu_time_us(path) for path in PUBLIC_TRACES}
    assert {is_amd for is_amd, _ in public.values()} == {True, False}
    for is_amd, limit in ((False, NVIDIA_LIMIT), (True, AMD_LIMIT)):
        times = {name: time for name, (amd, time) in public.items() if amd is is_amd and time}
        unknown = {name: unknown_us(time) / time.total() for name, time in times.items()}
        assert {name: share for name, share in unknown.items() if share > limit} == {}
        total = sum(time.total() for time in times.values())
        assert sum(unknown_us(time) for time in times.values()) <= limit * total


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
def test_the_library_of_all_gpu_time_of_our_recordings(device: str) -> None:
    time: Counter[str] = Counter()
    for experiment in experiments(device):
        for activity in recorded(experiment, device).activities:
            time[activity.name] += activity.duration_us
    assert time
    assert unknown_us(time) == 0
