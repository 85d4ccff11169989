"""Traces written by hand, and what a rule finds in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from kinetoscope.diagnosis.facts import Facts
from kinetoscope.diagnosis.rule import CannotTell, Finding, Rule
from kinetoscope.diagnosis.rules import RULES
from kinetoscope.trace import kineto
from kinetoscope.trace.events import GpuActivity, PythonFunction, Trace
from tests.tool.events import HOST, Event, annotation, kernel, launch, memcpy, op, trace_bytes

BY_NAME = {rule.name: rule for rule in RULES}
MAIN = f"{HOST}/{HOST}"
PAGEABLE_UPLOAD = "Memcpy HtoD (Pageable -> Device)"
PINNED_UPLOAD = "Memcpy HtoD (Pinned -> Device)"
DOWNLOAD = "Memcpy DtoH (Device -> Pinned)"


def written(*events: Event, functions: Sequence[PythonFunction] = ()) -> Trace:
    """A trace of these events; `functions` are what `with_stack` records."""
    return msgspec.structs.replace(kineto.read_trace(trace_bytes(*events)), functions=tuple(functions))


def function(name: str, start: float, duration: float, thread: str = MAIN) -> PythonFunction:
    return PythonFunction(name, start, duration, thread)


STACK = [function("train.py(3): <module>", 0.0, 9e6), function("train.py(12): step", 1.0, 8e6)]


def copied(name: str, correlation: int, start: float, duration: float, moved_bytes: int = 4096) -> Event:
    """A memcpy with the profiler's name of its direction and memory."""
    return {**memcpy(correlation, start, duration, moved_bytes), "name": name}


def work(number: int, cpu: float, gpu: float, duration: float, *, name: str = "k", **args: Any) -> list[Event]:
    """An operator of 10 us at `cpu` that launches a kernel, which starts at `gpu`."""
    return [
        op("aten::mm", cpu, 10.0, external=number),
        launch(number, cpu + 4.0, 4.0, external=number),
        kernel(name, number, gpu, duration, **args),
    ]


Before = Callable[[int, float], tuple[float, Sequence[Event]]]
"""Number and start of a step -> what the CPU does before its work: time and events."""


def looped(
    steps: int,
    before: Before,
    *,
    gpu_us: float = 10_000.0,
    name: str = "ProfilerStep#{}",
    pause_us: float = 0.0,
    start_us: float = 0.0,
    wait: str = "cudaDeviceSynchronize",
) -> list[Event]:
    """Steps that launch a kernel, which starts 20 us later, and wait for it, if `wait` names a call.

    A step lasts 25 us longer than the kernel and what comes `before` it.
    """
    events: list[Event] = []
    at = start_us
    for number in range(steps):
        us, more = before(number, at)
        ready, length = at + us, us + gpu_us + 25.0
        events += [annotation(name.format(number), at, length), *more]
        events += work(number + 1, ready, ready + 20.0, gpu_us)
        events += [{**launch(None, ready + 15.0, gpu_us + 8.0), "name": wait}] if wait else []
        at += length + pause_us
    return events


def without_cpu(trace: Trace) -> Trace:
    """The same GPU work and steps, as if ProfilerActivity.CPU had not been recorded."""
    bare = tuple(msgspec.structs.replace(activity, launch=None, op=None) for activity in trace.activities)
    steps = tuple(
        msgspec.structs.replace(step, ops=(), calls=(), activities=_same(bare, step.activities)) for step in trace.steps
    )
    return msgspec.structs.replace(trace, cpu_ops=(), calls=(), functions=(), activities=bare, steps=steps)


def without_gpu(trace: Trace) -> Trace:
    """The same CPU events and steps, as if ProfilerActivity.CUDA had not been recorded."""
    steps = tuple(msgspec.structs.replace(step, calls=(), activities=()) for step in trace.steps)
    return msgspec.structs.replace(trace, calls=(), activities=(), steps=steps, unattributed=(), overheads=())


def found(rule: Rule, trace: Trace) -> Finding:
    """The one finding of a rule."""
    result = rule.check(Facts(trace))
    assert not isinstance(result, CannotTell)
    (finding,) = result
    return finding


def cannot_tell(rule: Rule, trace: Trace) -> CannotTell:
    result = rule.check(Facts(trace))
    assert isinstance(result, CannotTell)
    assert result.rule is rule
    return result


def nothing(rule: Rule, trace: Trace) -> bool:
    """Whether a rule looked and found nothing."""
    result = rule.check(Facts(trace))
    return not isinstance(result, CannotTell) and not result


def _same(bare: Sequence[GpuActivity], activities: Sequence[GpuActivity]) -> tuple[GpuActivity, ...]:
    keys = {(activity.start_us, activity.device, activity.stream) for activity in activities}
    return tuple(activity for activity in bare if (activity.start_us, activity.device, activity.stream) in keys)
