"""How the steps use their GPUs: the work and the bubbles of each GPU, kernels, and copies that no kernel hides."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from kinetoscope.trace.events import GpuActivity, Step, last_end_us
from kinetoscope.trace.intervals import Interval, depths, intersect, length_us, ns, subtract, union, union_of
from kinetoscope.trace.queries import busy_us, by_device, copy_direction

MIN_WORK = 0.01
"""A GPU counts if its kernels take this part of the busiest GPU's kernels: a process may touch a GPU without computing
on it."""
MAX_TOGETHER, MIN_ANY = 0.1, 0.5
"""GPUs work in turns if a GPU works for half of the time, and two at once for at most a tenth of that time.

GPUs that are mostly idle seldom work at the same time, even by chance.
"""


@dataclass(frozen=True)
class Gpu:
    """The use of one GPU; times are means per step."""

    device: int
    busy_us: float
    share: float
    """Of the time of a step, until the GPUs are done."""
    bubble_us: float
    """Time in which this GPU is idle while another GPU of the process works."""


@dataclass(frozen=True)
class GpuUse:
    """The use of a process's GPUs from the start of its first step until all work of its steps is done."""

    steps: Sequence[Step]
    activities: Sequence[GpuActivity]
    """All work on the GPUs of the steps, in or outside of steps."""
    any_busy: Sequence[Interval]
    """The times in which a GPU works."""

    @cached_property
    def window(self) -> Interval:
        """The measured time."""
        done = max((step.end_us for step in self.steps), default=0.0)
        work = max((last_end_us(step.activities) for step in self.steps), default=0.0)
        return ns(min(step.start_us for step in self.steps)), ns(max(done, work))

    @cached_property
    def step_us(self) -> float:
        """The measured time per step."""
        return self._per_step([self.window])

    @cached_property
    def busy(self) -> dict[int, list[Interval]]:
        """The times in which each GPU works, of the GPUs on which the process computes."""
        devices = by_device(self.activities)
        if len(devices) == 1:
            return {device: intersect([self.window], self.any_busy) for device in devices}
        kernels_us = {device: busy_us(a for a in work if a.kind == "kernel") for device, work in devices.items()}
        least_us = MIN_WORK * max(kernels_us.values(), default=0.0)
        used = [device for device in devices if kernels_us[device] >= least_us]
        return {device: intersect([self.window], union_of(devices[device])) for device in used}

    @cached_property
    def gpus(self) -> tuple[Gpu, ...]:
        """The use of each GPU, by its index."""
        gpus, any_us = [], self._any_us
        for device, times in self.busy.items():
            device_us = any_us if times is self._any else length_us(times)
            busy_us = round(device_us / len(self.steps), 3)
            bubble_us = (any_us - device_us) / len(self.steps)
            share = round(busy_us / self.step_us, 4) if self.step_us else 0.0
            gpus.append(Gpu(device, busy_us, share, round(bubble_us, 3)))
        return tuple(gpus)

    @cached_property
    def take_turns(self) -> bool:
        """Whether several GPUs work, and hardly ever two of them at the same time."""
        together_ns = sum(time for gpus, time in self._depths.items() if gpus > 1)
        any_us = self._any_us
        is_mostly_busy = any_us >= MIN_ANY * length_us([self.window])
        return len(self.busy) > 1 and is_mostly_busy and together_ns / 1000 <= MAX_TOGETHER * any_us

    @cached_property
    def uneven_us(self) -> float:
        """Time per step in which a GPU works and another GPU is idle."""
        uneven_ns = sum(time for gpus, time in self._depths.items() if 0 < gpus < len(self.busy))
        return round(uneven_ns / 1000 / len(self.steps), 3)

    @cached_property
    def kernels_us(self) -> float:
        """Time per step in which a kernel runs on a GPU."""
        return self._per_step(intersect([self.window], union_of(self._kernels)))

    def alone_us(self, copies: Sequence[GpuActivity]) -> float:
        """Time per step in which at least one of these copies and no kernel runs, on any GPU of the process."""
        times = union_of(copies)
        if not times:
            return 0.0
        begin, end = times[0][0] / 1000, times[-1][1] / 1000
        near = (kernel for kernel in self._kernels if kernel.start_us < end and kernel.end_us > begin)
        return self._per_step(subtract(times, union_of(near)))

    @cached_property
    def host_copies(self) -> list[GpuActivity]:
        """The copies of the steps between the host and a GPU: a copy within a GPU is work of the GPU itself."""
        copies = (copy for step in self.steps for copy in step.memcpys)
        return [copy for copy in copies if copy_direction(copy.name) in ("HtoD", "DtoH")]

    @cached_property
    def host_copies_alone_us(self) -> float:
        """Time per step in which a copy between the host and a GPU runs, and no kernel."""
        return self.alone_us(self.host_copies)

    @cached_property
    def _depths(self) -> dict[int, int]:
        return depths(self.busy.values())

    @cached_property
    def _any(self) -> list[Interval]:
        if len(self.busy) == 1:
            (times,) = self.busy.values()
            return times
        return union(time for times in self.busy.values() for time in times)

    @cached_property
    def _any_us(self) -> float:
        return length_us(self._any)

    @property
    def _kernels(self) -> Iterator[GpuActivity]:
        return (activity for activity in self.activities if activity.kind == "kernel")

    def _per_step(self, times: Sequence[Interval]) -> float:
        return round(length_us(times) / len(self.steps), 3)
