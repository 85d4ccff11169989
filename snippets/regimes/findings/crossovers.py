"""The sizes at which one regime gives way to the next, and the limit of a step at a point of a sweep."""

import statistics
from dataclasses import replace

from snippets.lab.finding import Device, Figure, NotTimed, Run, crossing, grows_from, percent, ratio_of_kinds
from snippets.lab.recording.ceilings import COPY, LARGE_MATMUL

LAUNCHES = "regimes/growth_launches"


def points(run: Run) -> dict[int, Run]:
    """The points of a sweep by their tokens, ascending."""
    at = {int(point.parameters["tokens"]): run.at(**point.parameters) for point in run.points}
    return dict(sorted(at.items()))


def medians(run: Run, kind: str = "interleaved") -> list[float]:
    """The median of each point of a sweep, in microseconds."""
    return [at.timing(kind).median_us for at in points(run).values()]


def least_us(at: Run, limit: str) -> float:
    """The time of a point's bytes at a copy's rate, or of its FLOPs at a large matmul's."""
    point, ceiling = at.point, at.ceiling(limit)
    return 1e6 * (point.flops if ceiling.flops else point.bytes) / ceiling.rate


def _size(run: Run, tokens: float | None, what: str) -> Figure:
    if tokens is None:
        raise NotTimed(f"{run.id}: {what} at none of the sizes between its first and its last")
    return Figure(float(tokens), origin=f"{run.origin}, between points")


def overhead_until(run: Run) -> Figure:
    """The tokens up to which the CPU takes longer to enqueue a step than the GPU to run it.

    The CPU's time doesn't depend on the tokens, so its median over all sizes counts. Its lowest and its highest time
    give the spread, where the GPU crosses both.
    """
    sizes, cpu, gpu = list(points(run)), medians(run, "enqueue"), medians(run)
    middle, *ends = (crossing(sizes, [us] * len(sizes), gpu) for us in (statistics.median(cpu), min(cpu), max(cpu)))
    low, high = ends
    spread = None if low is None or high is None else (low, high)
    return replace(_size(run, middle, "the GPU overtakes the CPU"), spread=spread)


def cpu_median(run: Run) -> Figure:
    """The CPU's time of a step, its median over the sizes of a sweep; its spread has all sizes."""
    cpu = medians(run, "enqueue")
    return Figure(statistics.median(cpu), "us", (min(cpu), max(cpu)), f"{run.origin}, enqueue")


def cpu_varies(run: Run) -> Figure:
    """The CPU's highest time of a step over its lowest, among the sizes of a sweep."""
    cpu = medians(run, "enqueue")
    return Figure(max(cpu) / min(cpu), "x", origin=f"{run.origin}, enqueue")


def memory_until(run: Run) -> Figure:
    """The tokens up to which a step's bytes, at a copy's rate, take longer than its FLOPs at a matmul's rate."""
    at = points(run)
    by_bytes, by_flops = ([least_us(each, limit) for each in at.values()] for limit in (COPY, LARGE_MATMUL))
    return _size(run, crossing(list(at), by_bytes, by_flops), "arithmetic overtakes memory")


def growth_from(run: Run) -> Figure:
    """The smallest tokens from which on the GPU's time grows at least half as fast as they do, as exponents go."""
    found = grows_from(list(points(run)), medians(run))
    return _size(run, found, "the GPU's time begins to grow")


def idle(at: Run) -> Figure:
    """The percentage of a step's time from Python in which the GPU has nothing to do."""
    busy = percent(ratio_of_kinds(at, "interleaved", "from_python"))
    low, high = busy.bounds
    value, least, most = (max(0.0, 100 - each) for each in (busy.number, high, low))
    return Figure(value, "%", (least, most), busy.origin)


def launches(device: Device, sweep: str) -> dict[int, int]:
    """Tokens -> the launches of one step, at the sizes whose profile shows the same in every step.

    Raises `NotTimed` if there is none.
    """
    data = device[LAUNCHES].data[sweep.rpartition("_")[2]]
    counts = {tokens: len(names) for tokens, names in zip(data["tokens"], data["names"], strict=True) if names}
    if not counts:
        raise NotTimed(f"{LAUNCHES}: the steps of no profile agree")
    return counts


def regime_of(at: Run) -> str:
    """The limit of a step at a point: the CPU if it is slower than the GPU, else the larger of two least times."""
    if at.timing("enqueue").median_us > at.timing().median_us:
        return "overhead-bound"
    return "memory-bound" if least_us(at, COPY) > least_us(at, LARGE_MATMUL) else "compute-bound"
