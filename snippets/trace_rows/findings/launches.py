"""Launches and waits: how long a launch takes, and what the CPU waits for."""

import math
import statistics
from fnmatch import fnmatchcase
from functools import partial

from kinetoscope.trace.events import CudaCall, Span, Step, Trace
from snippets.lab.finding import Device, Figure, at_least, at_most, between, claim, equals
from snippets.lab.page import show as show, timeline

QUEUE = "trace_rows/full_queue"
LAUNCHES = "*LaunchKernel*"


def launches(step: Step) -> list[CudaCall]:
    """The launches of kernels in a step."""
    return [call for call in step.calls if fnmatchcase(call.name, LAUNCHES)]


def longest_launch(device: Device) -> CudaCall:
    """The longest launch of the step that fills the queue."""
    return max(launches(device[QUEUE].step), key=lambda call: call.duration_us)


def launch_quartiles(device: Device) -> tuple[float, float, float]:
    """Lower quartile, median and upper quartile of the launches of the step that fills the queue, in us."""
    low, median, high = statistics.quantiles([call.duration_us for call in launches(device[QUEUE].step)], n=4)
    return low, median, high


@claim("R18", at_most(10), scope="timing")
def median_launch(device: Device) -> Figure:
    """The median launch of a step takes at most 10 us of the CPU's time."""
    low, median, high = launch_quartiles(device)
    return Figure(median, "us", (low, high), f"{QUEUE}, median launch")


@claim("R4", between(900, 1100), scope="this-gpu")
def queued(device: Device) -> Figure:
    """The longest launch comes right after about a thousand launches, which fit into a stream's queue."""
    return Figure(launches(device[QUEUE].step).index(longest_launch(device)), origin=f"{QUEUE}, launches before")


@claim("R5", at_least(1000), scope="timing")
def waiting_launch(device: Device) -> Figure:
    """The call of `cudaLaunchKernel` that finds the queue full takes at least 1 ms."""
    return Figure(longest_launch(device).duration_us, "us", origin=f"{QUEUE}, longest launch")


@claim("R6", at_least(90), scope="timing")
def buffer_full(device: Device) -> Figure:
    """A row `Command Buffer Full` covers at least 90 % of the launch that waits for room in the queue."""
    launch = longest_launch(device)
    rows = [span for span in device[QUEUE].whole.trace.overheads if span.name == "Command Buffer Full"]
    inside = math.fsum(_shared_us(row, launch) for row in rows)
    return Figure(100 * inside / launch.duration_us, "%", origin=f"{QUEUE}, Command Buffer Full of the longest launch")


def _shared_us(one: Span, other: Span) -> float:
    """How long two spans run at once."""
    return max(0.0, min(one.end_us, other.end_us) - max(one.start_us, other.start_us))


@claim("R7", equals(True))
def waits_for_the_sum(device: Device) -> Figure:
    """In `.item()`, `cudaStreamSynchronize` ends after the copy of the number to the host has ended."""
    run = device["trace_rows/item"]
    return run.per_step(lambda step: _wait(step).end_us >= step.memcpys[-1].end_us)


def _wait(step: Step) -> CudaCall:
    return next(call for call in step.calls if call.name == "cudaStreamSynchronize")


@claim("R15", equals(True))
def launched_by_replay(device: Device) -> Figure:
    """In a replay of a CUDA graph, one `cudaGraphLaunch` launches all kernels."""
    return device["trace_rows/graph"].per_step(
        lambda step: {kernel.launch and kernel.launch.name for kernel in step.kernels} == {"cudaGraphLaunch"}
    )


def _closing(trace: Trace) -> CudaCall:
    return next(call for call in reversed(trace.calls) if call.name == "cudaDeviceSynchronize")


def work_left(device: Device) -> Figure:
    """How long the GPU still works when the profiler's own `cudaDeviceSynchronize` begins."""
    trace = device["mlp/eager"].whole.trace
    left_us = max(0.0, max(each.end_us for each in trace.steps[-1].activities) - _closing(trace).start_us)
    display = "" if left_us else "nothing"
    return Figure(left_us, "us", origin="mlp/eager, cudaDeviceSynchronize after the end", display=display)


@claim("R16", equals("0 in the steps, 1 after them"))
def closing_wait_is_outside(device: Device) -> Figure:
    """The only `cudaDeviceSynchronize` of the trace comes after the last step and is the profiler's own call."""
    trace = device["mlp/eager"].whole.trace
    waits = [call for call in trace.calls if call.name == "cudaDeviceSynchronize"]
    inside = sum(step.start_us <= call.start_us <= step.end_us for call in waits for step in trace.steps)
    after = sum(call.start_us > trace.steps[-1].end_us for call in waits)
    return Figure(f"{inside} in the steps, {after} after them", origin="mlp/eager")


@claim("R17", at_least(1.2), scope="timing")
def first_to_next(device: Device) -> Figure:
    """The first training step of a process takes the CPU at least 20 % longer than the second training step."""
    first, second, *_ = device["trace_rows/first"].whole.steps
    ratio = (first.end_us - first.start_us) / (second.end_us - second.start_us)
    return Figure(ratio, "x", origin="trace_rows/first, first step over second")


FIGURES = {
    "queued_launches": lambda device: Figure(queued(device).value, origin=QUEUE),
    "wait": lambda device: device["trace_rows/item"].per_step(lambda step: _wait(step).duration_us, "us"),
}


the_sum = partial(timeline, variants={"sum and read": "trace_rows/item"}, caption="A sum whose value the CPU reads")
