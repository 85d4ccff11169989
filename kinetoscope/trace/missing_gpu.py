"""Why a trace has no kernels, and how many launches have none, as far as the rest of the trace tells."""

from __future__ import annotations

import re
from functools import cache
from typing import Literal

from msgspec import Struct

from kinetoscope.trace.events import CudaCall, Trace
from kinetoscope.trace.intervals import Interval, contains, ns
from kinetoscope.trace.text import shortened

DROPPED_SHARE = 0.10
"""Share of launches without a kernel from which times and counts of kernels are wrong altogether (our limit)."""

_ACTIVITY = "ProfilerActivity.CUDA among the activities"
_CAPTURE = re.compile(r"(?:cuda|cu|hip)Stream(Begin|End)Capture")
_DOCTOR = "the command doctor names the cause on the machine that recorded"


def why_no_kernels(trace: Trace) -> str:
    """A sentence for a trace without kernels: the likely reasons, and what to check."""
    if ranges := counter_ranges(trace):
        return (
            f"no GPU kernels: CUPTI measured {ranges:,} ranges with counters (cuda_profiler_range) instead of "
            "recording activities; record again without profiler_metrics of experimental_config"
        )
    launches = sum(is_launch(call.name) for call in trace.calls)
    if launches:
        return (
            f"no GPU kernels, though the trace has {launches:,} launch{'es' * (launches != 1)}: the GPU's events are "
            "lost. Maybe the driver lets no user profile (CUPTI_ERROR_INSUFFICIENT_PRIVILEGES: load it with "
            "NVreg_RestrictProfilingToAdminUsers=0), another profiler has the GPU, or the profile ended before the GPU "
            f"did (torch.cuda.synchronize() first); {_DOCTOR}"
        )
    if trace.activities:
        return "no kernels: the GPU only copied and filled memory"
    if trace.unread:
        return "no GPU kernels that are read: a trace of another accelerator?"
    if trace.calls and not any(map(_is_of_gpu, {call.name for call in trace.calls})):
        return (
            "no work of an accelerator, though the trace has calls of its runtime, such as "
            f"{shortened(trace.calls[0].name, 60)}; check: the accelerator's ProfilerActivity (MTIA, XPU, PrivateUse1) "
            "among the activities; that its profiler was built into PyTorch"
        )
    if trace.calls or trace.devices:
        known = f"the trace names {trace.device}" if trace.device else "the trace has CUDA calls"
        return (
            f"no GPU kernels and no launch, though {known}; check: {_ACTIVITY}; that warm-up did not swallow the "
            f"steps; that model and data are on the GPU; {_DOCTOR}"
        )
    return (
        "no GPU kernels, no CUDA call and no GPU in this trace: from a machine without a GPU, from a PyTorch without "
        f"CUDA, or only the CPU was recorded; on a GPU check: {_ACTIVITY}; that warm-up did not swallow the steps; "
        f"{_DOCTOR}"
    )


def unread_work(trace: Trace) -> str:
    """That events are not read which may be the work of an accelerator, as a clause; empty if GPU work is read, or if
    all events are."""
    if not trace.unread or trace.activities or counter_ranges(trace):
        return ""
    count = sum(events for _, events in trace.unread)
    named = [shortened(category, 40) for category, _ in trace.unread[:2] if category]
    of = f" of {' and '.join(named)}" if named else ""
    known = (
        "so what the accelerator does is unknown"
        if trace.calls or trace.devices
        else "and may be an accelerator's work"
    )
    return f"{count:,} event{'s' * (count != 1)}{of} {'are' if count != 1 else 'is'} not read, {known}"


def _is_of_gpu(call_name: str) -> bool:
    """Whether it is a call of CUDA, HIP, or Level Zero and SYCL."""
    return call_name.startswith(("cu", "hip", "ze", "ur", "pi", "sycl"))


@cache
def is_launch(call_name: str) -> bool:
    """Whether a call puts kernels on the GPU: `cudaLaunchKernelExC`, `hipExtModuleLaunchKernel`, `cuGraphLaunch`."""
    if not call_name.startswith(("cu", "hip")):
        return False
    return "GraphLaunch" in call_name or ("Launch" in call_name and "Kernel" in call_name)


def counter_ranges(trace: Trace) -> int:
    """How many ranges CUPTI's range profiler measured, which records counters and no kernels."""
    return dict(trace.unread).get("cuda_profiler_range", 0)


class Dropped(Struct, frozen=True):
    """The launches of a trace, and those whose kernels are missing. Captures into a CUDA graph do not count."""

    launches: int
    without_kernel: int = 0
    where: Literal["all at the start", "in between", "all at the end"] = "in between"

    @property
    def share(self) -> float:
        """The part of the launches whose kernels are missing."""
        return self.without_kernel / self.launches if self.launches else 0.0

    @property
    def is_too_much(self) -> bool:
        """Whether times and counts of kernels are too low to be used."""
        return self.share >= DROPPED_SHARE


def dropped_kernels(trace: Trace) -> Dropped | None:
    """How many launches have no kernel (pytorch/kineto#762); None without launches or without any kernel."""
    launches = [call for call in launch_calls(trace) if call.correlation]
    if not launches or not any(activity.kind == "kernel" for activity in trace.activities):
        return None
    there = {activity.correlation for activity in trace.activities}
    captures = _captures(trace)
    dropped = [
        index
        for index, call in enumerate(launches)
        if call.correlation not in there and not contains(captures, ns(call.start_us))
    ]
    if not dropped:
        return Dropped(len(launches))
    if dropped[0] + len(dropped) == len(launches):
        return Dropped(len(launches), len(dropped), "all at the end")
    return Dropped(len(launches), len(dropped), "all at the start" if dropped[-1] + 1 == len(dropped) else "in between")


def launch_calls(trace: Trace) -> list[CudaCall]:
    """The calls that put kernels on the GPU."""
    names = {name for name in {call.name for call in trace.calls} if is_launch(name)}
    return [call for call in trace.calls if call.name in names]


def _captures(trace: Trace) -> list[Interval]:
    """Times in which a stream was captured into a CUDA graph, from the begin of a capture to the end of the last open
    one."""
    captures: list[Interval] = []
    depth, start = 0, 0
    matches = {name: match for name in {call.name for call in trace.calls} if (match := _CAPTURE.match(name))}
    for call in trace.calls if matches else ():
        if match := matches.get(call.name):
            if match[1] == "Begin":
                start = ns(call.start_us) if not depth else start
                depth += 1
            elif depth:
                depth -= 1
                if not depth:
                    captures.append((start, ns(call.end_us)))
    return captures
