"""What a device's memory holds at its peak: which operators and lines allocated it, and what becomes of it.

Categories are those of torch's memory profiler, as far as the events tell: by the phases in which a block is allocated
and released. Blocks from before the trace, such as parameters and the optimizer's state, have no event.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from math import inf
from typing import Literal, NamedTuple

from kinetoscope.diagnosis.sites import Site, find_sites
from kinetoscope.trace.events import MemoryEvent, Trace
from kinetoscope.trace.intervals import Interval, contains, intersect, ns, union_of
from kinetoscope.trace.metadata import Metadata

Category = Literal["activation", "gradient", "optimizer state", "input", "temporary", "other"]
CATEGORIES: dict[Category, str] = {
    "activation": "allocated outside of the backward pass, released in it",
    "gradient": "allocated in the backward pass and not released in it",
    "optimizer state": "allocated in the optimizer's step and not released in it",
    "input": "allocated while a DataLoader fetches a batch",
    "temporary": "released before its phase ends, or before a backward pass begins",
    "other": "released after the backward pass, or not while the profiler records",
}
"""Category -> what the events of a block show."""
NEAR = 0.9
"""Share of a device's memory from which on it is nearly full."""
_NODE, _STEP, _FETCH = "autograd::engine::evaluate_function: ", "Optimizer.step#", "enumerate(DataLoader)#"


class Alive(NamedTuple):
    """Blocks in memory at the peak with one origin and one fate."""

    op: str
    """The outermost operator that allocated them: `aten::linear`, `AddmmBackward0`; empty outside operators."""
    where: str
    """The line of Python, else the module or annotation; empty if the trace does not tell."""
    category: Category
    bytes: int
    blocks: int


class MemoryPeak(NamedTuple):
    """The peak of a device's allocated memory."""

    device: int
    """-1: the CPU."""
    peak_bytes: int
    at_us: float
    reserved_bytes: int | None
    """The most that PyTorch's allocator held; None if the trace does not tell."""
    total_bytes: int | None
    """The device's memory."""
    before_bytes: int | None
    """Allocated before the trace began; None if the trace has no totals."""
    alive: tuple[Alive, ...]
    """The largest first; empty if the events have no addresses."""

    @property
    def name(self) -> str:
        """`GPU 0`, `CPU`."""
        return "CPU" if self.device < 0 else f"GPU {self.device}"

    @property
    def is_near(self) -> bool:
        """Whether the device is nearly full at some time."""
        return self.total_bytes is not None and self.held_bytes >= NEAR * self.total_bytes

    @property
    def held_bytes(self) -> int:
        """The reserved bytes, or where they are unknown, the allocated bytes."""
        return max(self.peak_bytes, self.reserved_bytes or 0)

    @property
    def by_category(self) -> dict[Category, int]:
        """Bytes of the blocks in `alive` by category, the largest first."""
        sums: dict[Category, int] = defaultdict(int)
        for each in self.alive:
            sums[each.category] += each.bytes
        return dict(sorted(sums.items(), key=lambda item: -item[1]))


class _Block(NamedTuple):
    event: MemoryEvent
    freed_us: float


def memory_levels(events: Iterable[MemoryEvent]) -> list[tuple[float, int]]:
    """Time and bytes allocated after each event; without totals in the trace, since its start."""
    levels, level = [], 0
    for event in events:
        level = level + event.bytes if event.total_allocated is None else event.total_allocated
        levels.append((event.at_us, level))
    return levels


def memory_peaks(trace: Trace) -> list[MemoryPeak]:
    """The peak of each device of each process, GPUs first, the largest first; empty if nothing was recorded."""
    groups: dict[tuple[str, int], list[MemoryEvent]] = defaultdict(list)
    for event in trace.memory:
        groups[event.thread.partition("/")[0], event.device].append(event)
    peaks = [_peak(trace, events) for events in groups.values()]
    return sorted(peaks, key=lambda peak: (peak.device < 0, -peak.peak_bytes, peak.device))


def _peak(trace: Trace, events: Sequence[MemoryEvent]) -> MemoryPeak:
    levels = memory_levels(events)
    index = max(range(len(levels)), key=lambda index: (levels[index][1], -index))
    (at_us, peak_bytes), device = levels[index], events[0].device
    blocks = _alive(events, index)
    has_totals = blocks and all(event.total_allocated is not None for event in events)
    total = Metadata(trace.devices).device(device).get("totalGlobalMem") if device >= 0 else None
    return MemoryPeak(
        device,
        peak_bytes,
        at_us,
        max((event.total_reserved for event in events if event.total_reserved), default=None),
        total if isinstance(total, int) and total > 0 else None,
        max(0, peak_bytes - sum(block.event.bytes for block in blocks)) if has_totals else None,
        _grouped(trace, blocks),
    )


def _alive(events: Sequence[MemoryEvent], index: int) -> list[_Block]:
    """The blocks that are allocated after the event at `index`, with the time of their release. Addresses are used
    again; events without one tell nothing."""
    alive: dict[int, MemoryEvent] = {}
    for event in events[: index + 1]:
        if event.bytes > 0 and event.address:
            alive[event.address] = event
        else:
            alive.pop(event.address, None)
    freed_us: dict[int, float] = {}
    for event in events[index + 1 :]:
        if event.bytes < 0 and event.address in alive:
            freed_us.setdefault(event.address, event.at_us)
    return [_Block(event, freed_us.get(address, inf)) for address, event in alive.items()]


def _grouped(trace: Trace, blocks: Sequence[_Block]) -> tuple[Alive, ...]:
    if not blocks:
        return ()
    phases = _Phases.of(trace)
    sums: dict[tuple[str, str, Category], list[int]] = defaultdict(lambda: [0, 0])
    sites = find_sites(trace, [(block.event.thread, block.event.at_us) for block in blocks])
    for block, site in zip(blocks, sites, strict=True):
        where = site.line or site.module or site.annotation
        of_group = sums[_op_name(site), where, phases.category(block, site)]
        of_group[0] += block.event.bytes
        of_group[1] += 1
    alive = (Alive(*key, total, count) for key, (total, count) in sums.items())
    return tuple(sorted(alive, key=lambda each: (-each.bytes, *each)))


def _op_name(site: Site) -> str:
    return site.name or (site.op.name if site.op else "")


class _Phases(NamedTuple):
    """Times of the backward pass's nodes and of optimizers' steps, on any thread."""

    nodes: list[Interval]
    steps: list[Interval]

    @classmethod
    def of(cls, trace: Trace) -> _Phases:
        nodes = (op for op in trace.cpu_ops if op.name.startswith(_NODE))
        steps = (op for op in trace.cpu_ops if op.name.startswith(_STEP))
        return cls(union_of(nodes), union_of(steps))

    def category(self, block: _Block, site: Site) -> Category:
        """By the phases of allocation and release; a block that is never released stays until the trace ends."""
        freed = None if block.freed_us == inf else ns(block.freed_us)
        at = ns(block.event.at_us)
        if contains(self.steps, at):
            return "temporary" if freed is not None and contains(self.steps, freed) else "optimizer state"
        if contains(self.nodes, at):
            return "temporary" if freed is not None and contains(self.nodes, freed) else "gradient"
        if site.annotation.startswith(_FETCH):
            return "input"
        if freed is None:
            return "other"
        if contains(self.nodes, freed):
            return "activation"
        return "other" if intersect([(at, freed)], self.nodes) else "temporary"
