"""Recordings that nobody made, of stacks that are sharded, split or pipelined; made up around two and four H200."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kinetoscope.ranks.joining import merge_ranks
from snippets.lab.experiment import find
from snippets.lab.recording.schema import Timing
from tests.lab import samples
from tests.lab.sample_recordings import SPREAD, Sample
from tests.tool import events

C, B, READ = 7.9e14, {2: 3.29e11, 4: 3.55e11}, 4.4e12
"""FLOP/s of a product, bus bandwidth by the number of GPUs, and the rate of reading."""
WEIGHTS = 4 * (4 * 4096**2 + 3 * 4096 * 14336 + 2 * 4096)
BLOCK = WEIGHTS // 4
GEMM = "nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_TNT"
ALL_GATHER, REDUCE_SCATTER = (
    "ncclDevKernel_AllGather_RING_LL(args)",
    "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(args)",
)
ALL_REDUCE, SEND = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(args)", "ncclDevKernel_SendRecv(args)"
FSDP_US = {"per_block": 42_000.0, "root_only": 50_000.0, "kept": 41_000.0, "ahead": 42_100.0}
TENSOR_US = {"reduced": 6_700.0, "sequence": 6_800.0, "overlapped": 6_300.0}
MESH_US = {"even": 16_000.0, "late": 19_000.0}
PIPELINE_US = {"2_on_2": 52_000.0, "8_on_2": 42_000.0, "8_on_4": 24_000.0}


@dataclass(frozen=True)
class Work:
    """A kernel of a step, from its start on the GPU; a collective has a name and elements of the whole array."""

    name: str
    start_us: float
    us: float
    collective: str = ""
    elements: int = 0
    peer: int = -1
    """Of a send, its receiver; of a receive, its sender."""


def trace_of(label: str, ranks: Sequence[Sequence[Work]], step_us: float = 1000.0) -> bytes:
    """The merged trace of ranks that each run this work in three steps."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paths = [folder / f"rank{rank}.json" for rank in range(len(ranks))]
        for rank, path in enumerate(paths):
            path.write_bytes(_rank_trace(label, rank, ranks, step_us))
        merge_ranks(paths, folder / "job.json")
        return (folder / "job.json").read_bytes()


def _rank_trace(label: str, rank: int, ranks: Sequence[Sequence[Work]], step_us: float) -> bytes:
    found: list[events.Event] = []
    correlation, world = 0, len(ranks)
    for number in range(1, 4):
        start = step_us * number
        found += [events.step(number, start, step_us), events.annotation(label, start + 1, step_us - 2)]
        for index, work in enumerate(ranks[rank]):
            correlation += 1
            told: dict[str, Any] = {}
            if work.collective:
                told = {
                    "Collective name": work.collective,
                    "In msg nelems": work.elements // (world if work.collective == "_allgather_base" else 1),
                    "Out msg nelems": work.elements // (world if work.collective == "_reduce_scatter_base" else 1),
                    "Group size": world,
                    "dtype": "BFloat16",
                    "Process Group Name": "0",
                    "Process Group Ranks": str(list(range(world))),
                }
            if work.peer >= 0:
                told |= {"Dst Rank" if work.collective == "send" else "Src Rank": work.peer}
            found += [
                events.launch(correlation, start + 2 + index),
                events.kernel(work.name, correlation, start + work.start_us, work.us, stream=13 if told else 7, **told),
            ]
    job = {
        "rank": rank,
        "world_size": world,
        "backend": "nccl",
        "pg_config": [{"pg_name": "0", "ranks": list(range(world))}],
    }
    return events.trace_bytes(
        *found,
        baseTimeNanoseconds=1_790_857_026_000_000_000,
        distributedInfo=job,
        deviceProperties=[{"id": 0, "name": "NVIDIA Sample"}],
    )


def fsdp_step(
    gathers: int = 8, scatters: int = 4, elements: int = BLOCK, exposed_us: float = 40.0, pieces: int = 1
) -> list[list[Work]]:
    """A step of two ranks: a short product alone, and a long product or its pieces, with collectives beside it; the
    last for a while alone."""
    calls = [(ALL_GATHER, "_allgather_base")] * gathers + [(REDUCE_SCATTER, "_reduce_scatter_base")] * scatters
    each_us = 800.0 / len(calls)
    piece_us = (840.0 - exposed_us) / pieces
    step = [Work(GEMM, 10.0, 80.0), *(Work(GEMM, 100.0 + index * piece_us, piece_us) for index in range(pieces))]
    for index, (name, collective) in enumerate(calls):
        step.append(Work(name, 120.0 + index * each_us, each_us, collective, elements))
    step[-1] = Work(step[-1].name, step[-1].start_us, 940.0 - step[-1].start_us, step[-1].collective, elements)
    return [step, step]


FSDP_STEPS = {
    "per_block": fsdp_step(),
    "ahead": fsdp_step(),
    "kept": fsdp_step(4),
    "root_only": fsdp_step(1, 1, WEIGHTS, exposed_us=300.0),
}


def forward_step(sums: int = 4, elements: int = 8192 * 4096, pairs: int = 0) -> list[list[Work]]:
    """A forward of two ranks: products, each with an all-reduce behind it, or with an all-gather and a
    reduce-scatter."""
    calls = [[(ALL_REDUCE, "allreduce")]] * sums
    calls += [[(ALL_GATHER, "_allgather_base"), (REDUCE_SCATTER, "_reduce_scatter_base")]] * pairs
    step, at = [], 50.0
    for layer in calls:
        step.append(Work(GEMM, at, 100.0))
        at += 100.0
        for name, collective in layer:
            step.append(Work(name, at, 40.0, collective, elements))
            at += 40.0
    return [step, step]


TENSOR_STEPS = {
    "reduced": forward_step(),
    "sequence": forward_step(0, pairs=4),
    "overlapped": [[Work(GEMM, 50.0, 500.0)]] * 2,
}


def mesh_step(late: int | None = None) -> list[list[Work]]:
    """Four ranks of one group; the late rank works longer, and the others wait for it."""
    ends = 600.0 if late is None else 800.0
    ranks = []
    for rank in range(4):
        own = 500.0 + 200.0 * (rank == late)
        ranks.append([Work(GEMM, 50.0, own), Work(ALL_REDUCE, 50.0 + own, ends - 50.0 - own, "allreduce", 8192 * 4096)])
    return ranks


def stage_step(world: int, elements: int = 1024 * 4096, count: int = 8) -> list[list[Work]]:
    """Stages that each receive so many micro-batches, compute, and send them on: forwards only."""
    ranks = []
    for rank in range(world):
        step = []
        for index in range(count):
            at = 50.0 + 60.0 * (index + rank)
            if rank > 0:
                begin = 40.0 if index == 0 else at - 10.0  # the first waits for the stages before
                step.append(Work(SEND, begin, at - begin, "recv", elements, rank - 1))
            step.append(Work(GEMM, at, 50.0))
            if rank < world - 1:
                step.append(Work(SEND, at + 50.0, 10.0, "send", elements, rank + 1))
        ranks.append(step)
    return ranks


def loop(name: str, us: float, ranks: Sequence[Sequence[Work]]) -> Sample:
    """A loop's recording with its merged trace."""
    (described,) = find(f"several_gpus/{name}")
    work = described.work(**described.parameters) if described.work else None
    point = samples.point(
        dict(described.parameters),
        flops=work.flops if work else 0,
        bytes=0,
        iteration=Timing.from_samples([share * us for share in SPREAD]),
        reference_dtype="float32",
    )
    place = samples.environment(gpus=described.gpus)
    recording = samples.sample(
        f"several_gpus/{name}", label=described.label, points=(point,), environment=place, data={}
    )
    return recording, trace_of(described.label, ranks)


def probe(name: str, data: Mapping[str, Any]) -> Sample:
    """A probe's recording."""
    (described,) = find(f"several_gpus/{name}")
    place = samples.environment(gpus=described.gpus)
    recording = samples.sample(
        f"several_gpus/{name}", points=(), data=dict(data), has_trace=False, environment=place, label=""
    )
    return recording, None


def around(us: float) -> list[float]:
    """Samples whose median is a time."""
    return [round(share * us, 4) for share in SPREAD]


def memory(state: float = 1.01, kept: float = 1.0, root: float = 1.5) -> dict[str, Any]:
    """As derived, times these."""
    sharded = int(state * 12 * WEIGHTS / 2)

    def way(more_forward: float, more_peak: float, held: int = sharded) -> dict[str, int]:
        forward = held + 2_000_000_000 + int(more_forward * 2 * WEIGHTS)
        peak = held + 5_000_000_000 + int(more_peak * 2 * WEIGHTS)
        return {"weights": WEIGHTS, "state_bytes": held, "forward_bytes": forward, "peak_bytes": peak}

    return {
        "whole": way(1.0, 1.0, 12 * WEIGHTS),
        "per_block": way(0.0, 0.0),
        "kept": way(kept, 0.8),
        "root_only": way(1.0, root),
    }


def by_tokens(few: float = 2.0, many: float = 1.08, some: float = 1.2) -> dict[str, Any]:
    """Times over those without communication: at 512 tokens, at 8,192, and in the middle."""
    found = {}
    overs = (few, (few + some) / 2, some, (some + many) / 2, many)
    for tokens, over in zip((512, 1024, 2048, 4096, 8192), overs, strict=True):
        alone = 1e6 * 6 * WEIGHTS * tokens / C
        times = {"alone": 1.0, "per_block": over, "root_only": 1.3 * over, "kept": 0.99 * over}
        found[str(tokens)] = {way: around(alone * each) for way, each in times.items()}
    return found


def rates(gpus: int) -> dict[str, Any]:
    size = 64 << 20
    times = {"matmul": 1e6 * 2 * 8192**3 / C, "all_reduce": 1e6 * 2 * (1 - 1 / gpus) * size / B[gpus]}
    return {"flops": 2 * 8192**3, "bytes": size, "us": {name: around(us) for name, us in times.items()}}


def tensor_rows(
    gpus: int,
    found: float = 1.1,
    few: float = 1.0,
    sequence: float = 1.03,
    overlapped: float = 0.95,
    overlapped_few: float = 1.4,
) -> dict[str, Any]:
    """The measured over the predicted ratio, at 8,192 rows and, times `few`, at fewer; and ways over others."""
    widths = {}
    for width in ("768x3072", "4096x14336"):
        dim, hidden = map(int, width.split("x"))
        points = {}
        for rows in (128, 512, 2048, 8192):
            alone = 1e6 * 6 * rows * dim * hidden / gpus / C
            predicted = 2 * (gpus - 1) * C / (3 * hidden * B[gpus])
            reduced = alone * (1 + found * predicted * (1.0 if rows == 8192 else few))
            parts = sequence * reduced
            pieces = parts * (overlapped_few if rows == 128 else overlapped)
            times = {"alone": alone, "reduced": reduced, "sequence": parts, "overlapped": pieces}
            points[str(rows)] = {
                way: {"us": around(us), **({} if way == "alone" else {"error": 0.003})} for way, us in times.items()
            }
        widths[width] = points
    return {"rates": rates(gpus), "widths": widths}


def decode(
    gpus: int, sum_us: float = 16.0, shot_us: float = 8.0, large_us: float = 4_600.0, off_us: float = 0.0
) -> Any:
    """Tokens as predicted, plus `off_us`."""
    sizes = {}
    for size, layers, read, whole, one in (
        ("1.1b", 22, 2_080_000_000, 131_000_000, 1_300.0),
        ("8b", 32, 15_000_000_000, 1_050_000_000, large_us),
    ):
        saved = 1e6 * (read - whole) * (1 - 1 / gpus) / READ
        every = {"nccl": sum_us, "one_shot": shot_us}
        split = {way: around(one - saved + 2 * layers * us + off_us) for way, us in every.items()}
        sizes[size] = {
            "layers": layers,
            "bytes": read,
            "whole_bytes": whole,
            "us": {"one": around(one), **split},
            "sums_us": {way: around(2 * layers * us) for way, us in every.items()},
            "error": dict.fromkeys(every, 0.01),
        }
    return {"read": {"bytes": 1 << 30, "us": around(1e6 * (1 << 30) / READ)}, "sizes": sizes}


def bubbles(gpus: int, more: float = 0.02) -> dict[str, Any]:
    """Bubbles that are so much longer than the formula's."""
    found = {}
    for count in (1, 2, 4, 8, 16):
        alone = 4_500.0 * count * 2 / gpus
        share = (gpus - 1) / (count + gpus - 1) + more
        found[str(count)] = {"us": around(alone / (1 - share)), "alone_us": around(alone)}
    return found


def probes() -> dict[str, Any]:
    """Name of a probe -> its data."""
    return {
        "fsdp_memory": memory(),
        "fsdp_tokens": by_tokens(),
        **{f"tensor_rows_on_{gpus}": tensor_rows(gpus) for gpus in (2, 4)},
        **{f"decode_on_{gpus}": decode(gpus) for gpus in (2, 4)},
        **{f"bubble_on_{gpus}": bubbles(gpus) for gpus in (2, 4)},
    }


def loops() -> dict[str, tuple[float, Sequence[Sequence[Work]]]]:
    """Name of a loop -> the time of its step, and the work of its ranks."""
    return {
        **{f"fsdp_{name}": (us, FSDP_STEPS[name]) for name, us in FSDP_US.items()},
        **{f"tensor_{name}": (us, TENSOR_STEPS[name]) for name, us in TENSOR_US.items()},
        **{f"mesh_{name}": (us, mesh_step(3 if name == "late" else None)) for name, us in MESH_US.items()},
        **{f"pipeline_{name}": (us, stage_step(int(name[-1]))) for name, us in PIPELINE_US.items()},
    }


def recordings(
    data: Mapping[str, Any] | None = None,
    times_us: Mapping[str, float] | None = None,
    steps: Mapping[str, Sequence[Sequence[Work]]] | None = None,
) -> list[Sample]:
    """One for each experiment of these sections; with arguments only those that they change."""
    usual = loops()
    whole = not (data or times_us or steps)
    names = usual if whole else {*(times_us or {}), *(steps or {})}
    return [
        *(
            loop(name, (times_us or {}).get(name, usual[name][0]), (steps or {}).get(name, usual[name][1]))
            for name in names
        ),
        *(probe(name, each) for name, each in (probes() if whole else data or {}).items()),
    ]
