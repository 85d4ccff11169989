"""Traces of ranks written by hand, as one file: operators with their kernels, and collectives that all ranks meet in.

    merged_operators([
        [("aten::mm", [[64, 64], [64, 64]], [("gemm", 40.0)]), ("all_reduce", [[1 << 20]], [("nccl", 20.0)])],
        [("aten::mm", [[96, 64], [64, 64]], [("gemm", 60.0)]), ("all_reduce", [[1 << 20]], [("nccl", 20.0)])],
    ])

is the trace of two ranks, of which rank 1 arrives last: rank 0 waits for 20 us. The time of a collective is that of its
transfer; its shape is that of the whole array.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from pathlib import Path

from kinetoscope.ranks.joining import merge_ranks
from tests.tool.events import Event, annotation, kernel, launch, op, step, trace_bytes
from tests.tool.simple import Operator

BASE_NS = 1_790_857_026_000_000_000
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
COLLECTIVES = {
    "all_reduce": ("allreduce", ALL_REDUCE),
    "all_gather": ("_allgather_base", ALL_REDUCE.replace("AllReduce_Sum_bf16", "AllGather")),
    "reduce_scatter": ("_reduce_scatter_base", ALL_REDUCE.replace("AllReduce", "ReduceScatter")),
}
"""Operator -> the name that the profiler gives the collective, and its kernel."""
TRANSFER_US, FIRST_US, PAUSE_US, CALL_US, STREAM = 20.0, 10.0, 100.0, 1.0, 13


def merged_trace(works_us: Sequence[float], label: str = "step", steps: int = 3, collectives: int = 1) -> bytes:
    """The merged trace of one rank for each of `works_us`: so many times a matrix product of so many microseconds, then
    an all-reduce that ends 20 us after the last rank has begun it."""
    shape = [[64, 64], [64, 64]]
    ranks = [
        [("aten::mm", shape, [("gemm", us)]), ("all_reduce", [[1 << 20]], [("nccl", TRANSFER_US)])] * collectives
        for us in works_us
    ]
    return merged_operators(ranks, label, steps)


def merged_operators(ranks: Sequence[Sequence[Operator]], label: str = "step", steps: int = 3) -> bytes:
    """The merged trace of ranks that each run their operators in every step, one kernel after the other."""
    places = _placed(ranks)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paths = [folder / f"rank{rank}.json" for rank in range(len(ranks))]
        for rank, path in enumerate(paths):
            path.write_bytes(_rank_trace(rank, ranks, places, label, steps))
        merge_ranks(paths, folder / "job.json")
        return (folder / "job.json").read_bytes()


def _placed(ranks: Sequence[Sequence[Operator]]) -> list[list[tuple[float, float]]]:
    """Begin and end of each rank's kernels, in us from the start of the GPU's work: collectives end on all at once."""
    parts = [list(_split(operators)) for operators in ranks]
    placed: list[list[tuple[float, float]]] = [[] for _ in ranks]
    times = [0.0] * len(ranks)
    for sections in zip_longest(*parts, fillvalue=([], 0.0)):
        for rank, (kernels_us, _) in enumerate(sections):
            for us in kernels_us:
                placed[rank].append((times[rank], times[rank] + us))
                times[rank] += us
        if transfer_us := max(us for _, us in sections):
            end = max(times) + transfer_us
            for rank, begin in enumerate(times):
                placed[rank].append((begin, end))
            times = [end] * len(ranks)
    return placed


def _split(operators: Iterable[Operator]) -> Iterable[tuple[list[float], float]]:
    """The kernels before each collective, and the time of its transfer; after the last one, 0."""
    before: list[float] = []
    for name, _, kernels in operators:
        times = [us for _, us in map(_timed, kernels)]
        if name in COLLECTIVES:
            yield before, times[0]
            before = []
        else:
            before += times
    yield before, 0.0


def _timed(kernel_of: str | tuple[str, float]) -> tuple[str, float]:
    return (kernel_of, 10.0) if isinstance(kernel_of, str) else kernel_of


def _rank_trace(
    rank: int,
    ranks: Sequence[Sequence[Operator]],
    places: Sequence[Sequence[tuple[float, float]]],
    label: str,
    steps: int,
) -> bytes:
    calls = sum(1 + len(kernels) for _, _, kernels in ranks[rank])
    cpu_us = (calls + 4) * CALL_US
    period_us = max(cpu_us, FIRST_US + max(end for placed in places for _, end in placed)) + PAUSE_US
    found: list[Event] = []
    for number in range(1, steps + 1):
        start, ids = period_us * number, 10_000 * number
        found += [step(number, start, cpu_us, external=ids), annotation(label, start + 0.5, cpu_us - 1)]
        found += _step_events(ranks[rank], places[rank], start, ids, len(ranks))
    job = {"rank": rank, "world_size": len(ranks), "backend": "nccl"}
    job |= {"pg_config": [{"pg_name": "0", "ranks": list(range(len(ranks)))}]}
    devices = [{"id": 0, "name": "NVIDIA Sample"}]
    return trace_bytes(*found, baseTimeNanoseconds=BASE_NS, distributedInfo=job, deviceProperties=devices)


def _step_events(
    operators: Sequence[Operator], places: Sequence[tuple[float, float]], start: float, ids: int, world: int
) -> Iterable[Event]:
    """The operators of a step, each of which launches its kernels."""
    call, placed = start + 2 * CALL_US, iter(places)
    for name, shapes, kernels in operators:
        ids += 1
        external, is_collective = ids, name in COLLECTIVES
        length = (1 + len(kernels)) * CALL_US - 0.1
        dims = None if is_collective else [list(shape) for shape in shapes]
        yield op("record_param_comms" if is_collective else name, call, length, external=external, dims=dims)
        for kernel_name, _ in map(_timed, kernels):
            ids += 1
            call += CALL_US
            begin, end = next(placed)
            begin, end = start + FIRST_US + begin, start + FIRST_US + end
            given: Event = {"External id": external}
            if is_collective:
                given |= {"stream": STREAM, **_collective(name, shapes[0][0], world)}
            yield launch(ids, call, 0.5)
            shown = COLLECTIVES[name][1] if is_collective else kernel_name
            yield kernel(shown, ids, begin, end - begin, **given)
        call += CALL_US


def _collective(name: str, elements: int, world: int) -> Event:
    """What the profiler tells of the kernel of a collective over an array of so many elements."""
    shard = elements // world
    return {
        "Collective name": COLLECTIVES[name][0],
        "In msg nelems": shard if name == "all_gather" else elements,
        "Out msg nelems": shard if name == "reduce_scatter" else elements,
        "Group size": world,
        "dtype": "BFloat16",
        "Process Group Name": "0",
        "Process Group Description": "default_pg",
        "Process Group Ranks": str(list(range(world))),
    }
