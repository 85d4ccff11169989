"""Sample recordings of the loops with faults: merged traces of two ranks, written by hand, and made-up times."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kinetoscope.ranks.joining import merge_ranks
from snippets.lab.experiment import find
from snippets.lab.recording.schema import Timing
from tests.lab import samples
from tests.lab.sample_recordings import SPREAD, Sample, sample_of
from tests.tool import events

GEMM = "nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_TNT"
COLLECTIVES = {
    "allreduce": "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "flags": "ncclDevKernel_AllReduce_Sum_u32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "allgather": "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "reducescatter": "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
}
"""Kind of a collective -> its kernel."""
Kernel = tuple[str, float, float]
"""`gemm` or a kind of `COLLECTIVES`, start after the step's, and duration, in us."""


@dataclass(frozen=True)
class Rank:
    """What one rank does in each step."""

    kernels: tuple[Kernel, ...]
    sleep_us: float = 0.0
    """Before the first launch."""
    reads: bool = False
    """Whether the CPU reads a value at the end."""
    searches: int = 0


def own(us: float, start_us: float = 0.0) -> tuple[Kernel, ...]:
    return (("gemm", start_us, us),)


def calls(kind: str, count: int, start_us: float, us: float, every_us: float) -> tuple[Kernel, ...]:
    return tuple((kind, start_us + index * every_us, us) for index in range(count))


@dataclass(frozen=True)
class Pair:
    """The ranks of a loop, and the time of its iteration without the profiler."""

    us: float
    ranks: tuple[Rank, ...]


def both(us: float, *kernels: Kernel, **more: Any) -> Pair:
    """Two ranks that do the same."""
    return Pair(us, 2 * (Rank(kernels, **more),))


WORK = own(10_000)
ADAM = own(1_000, 12_500)
BUCKETS = calls("allreduce", 8, 3_000, 300, 750)
SMALL_BUCKET = ("allreduce", 9_000, 20)
DDP = both(11_500, *WORK, *BUCKETS, SMALL_BUCKET, *own(1_300, 10_000))
GATHERS = calls("allgather", 8, 0, 200, 1_200)
SCATTERS = calls("reducescatter", 4, 6_000, 200, 1_300)
FSDP = both(11_800, *own(10_700, 100), *GATHERS, *SCATTERS)
SMALL = both(3_600, *own(3_000), ("allreduce", 3_000, 200), *own(500, 3_200))
PAIRS: dict[str, Pair] = {
    "uneven_before": Pair(
        13_000,
        (
            Rank((*own(12_000), ("allreduce", 12_000, 1_000))),
            Rank((*own(8_000), ("allreduce", 8_000, 5_000))),
        ),
    ),
    "uneven_after": both(11_000, *own(10_000), ("allreduce", 10_000, 1_000)),
    "late_before": both(20_100, *own(20_000), ("allreduce", 15_000, 1_000)),
    "late_after": both(20_000, *own(20_000), ("allreduce", 15_000, 1_000)),
    "late_small_before": Pair(
        23_200,
        (
            Rank((*own(3_000), ("allreduce", 3_000, 20_200), *own(500, 23_200))),
            Rank(
                (*own(3_000, 20_000), ("allreduce", 23_000, 200), *own(500, 23_200)),
                sleep_us=20_000,
            ),
        ),
    ),
    "item_before": Pair(
        3_680,
        (replace(SMALL.ranks[0], reads=True), SMALL.ranks[1]),
    ),
    "item_after": SMALL,
    "one_bucket_before": both(13_500, *WORK, ("allreduce", 10_000, 2_500), *ADAM),
    "afterwards_before": both(13_600, *WORK, *calls("allreduce", 20, 10_000, 125, 125), *ADAM),
    "unused_before": both(
        11_700,
        *WORK,
        SMALL_BUCKET,
        *BUCKETS,
        ("allreduce", 9_200, 300),
        ("flags", 9_600, 20),
        *own(1_000, 10_000),
        searches=1,
    ),
    "ddp_after": DDP,
    "root_only_before": both(
        13_000, ("allgather", 0, 1_500), *own(10_000, 1_500), ("reducescatter", 11_500, 1_500), *own(500, 13_000)
    ),
    "fsdp_after": FSDP,
    "one_queue_before": both(
        13_200, *GATHERS, *own(10_000, 100), *calls("reducescatter", 4, 10_100, 500, 500), *own(500, 12_100)
    ),
    "no_sync_before": both(14_000, *WORK, *calls("allreduce", 36, 4_000, 200, 240), *own(1_000, 12_700)),
    "no_sync_backward": both(14_000, *WORK, *calls("allreduce", 36, 1_000, 200, 240)),
    "no_sync_after": both(12_000, *WORK, *calls("allreduce", 9, 7_000, 200, 240)),
}
STEPS, GAP_US = 3, 20.0


def rank_trace(rank: int, does: Rank) -> bytes:
    """Three steps of a rank. The CPU launches a kernel just before it starts."""
    found: list[events.Event] = []
    correlation = 0
    length = max(start + us for _, start, us in does.kernels) + 100
    for number in range(STEPS):
        begin = 1_000 + number * (length + GAP_US)
        found.append(events.step(number + 2, begin, length))
        found.append(events.annotation("step", begin + 0.5, length - 1))
        found += [events.op(SEARCH, begin + 2 + index, 1) for index in range(does.searches)]
        for kind, start, us in does.kernels:
            correlation += 1
            at = begin + does.sleep_us + 10 + (start - does.sleep_us) / 100
            args = communication_args(kind) if kind in COLLECTIVES else {}
            found.append(events.launch(correlation, at))
            stream = 7 if kind == "gemm" else 9
            found.append(
                events.kernel(
                    COLLECTIVES.get(kind, GEMM), correlation, begin + 60 + start, us, stream=stream, device=rank, **args
                )
            )
        if does.reads:
            correlation += 1
            end = begin + length - 30
            at = begin + 100
            found += [
                events.op("aten::item", at, end - at, external=correlation),
                events.launch(correlation, at + 1, name="cudaMemcpyAsync", external=correlation),
                events.memcpy(correlation, end - 5, 2, 4) | {"name": "Memcpy DtoH (Device -> Pageable)"},
                events.launch(
                    correlation + 1, at + 5, end - at - 8, name="cudaStreamSynchronize", external=correlation
                ),
            ]
            found[-2]["args"]["device"] = rank
            correlation += 1
    job = {"backend": "nccl", "rank": rank, "world_size": 2}
    device = [{"id": index, "name": "NVIDIA Sample"} for index in range(2)]
    return events.trace_bytes(
        *found, deviceProperties=device, distributedInfo=job, baseTimeNanoseconds=1_790_857_026_000_000_000
    )


SEARCH = "torch.distributed.ddp.reducer::search_unused_parameters"


def communication_args(kind: str) -> dict[str, Any]:
    """What Kineto writes on a kernel of NCCL."""
    return {
        "Collective name": "allreduce" if kind == "flags" else kind,
        "In msg nelems": 1_000,
        "Out msg nelems": 1_000,
        "Group size": 2,
        "dtype": "Int" if kind == "flags" else "BFloat16",
        "Process Group Name": "0",
        "Process Group Ranks": "[0, 1]",
    }


def merged(ranks: Sequence[Rank]) -> bytes:
    """The traces of the ranks, as `kinetoscope merge` writes them."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"rank{number}.json" for number in range(len(ranks))]
        for number, (path, does) in enumerate(zip(paths, ranks, strict=True)):
            path.write_bytes(rank_trace(number, does))
        output = Path(folder) / "job.json"
        merge_ranks(paths, output)
        return output.read_bytes()


def loop(name: str, pair: Pair) -> Sample:
    """The recording of a loop."""
    (described,) = find(f"several_gpus/{name}")
    assert described.work is not None
    work = described.work(**described.parameters)
    point = samples.point(
        dict(described.parameters),
        flops=work.flops,
        bytes=work.bytes,
        iteration=Timing.from_samples([share * pair.us for share in SPREAD]),
        reference_dtype="float32",
    )
    place = samples.environment(gpus=len(pair.ranks))
    recording = samples.sample(f"several_gpus/{name}", label=described.label, points=(point,), environment=place)
    return recording, merged(pair.ranks)


def around(us: float) -> list[float]:
    """Samples whose median is a time."""
    return [share * us for share in SPREAD]


def profiled(
    none: float = 5_000.0, one: float = 9_000.0, alone: float = 300.0, together: float = 900.0
) -> dict[str, Any]:
    return {
        "none": {"us": around(none), "nccl_us": {}},
        "rank 0": {"us": around(one), "nccl_us": {"0": around(alone)}},
        "all": {"us": around(9_500.0), "nccl_us": {"0": around(together), "1": around(together)}},
    }


def fault_recordings(pairs: Mapping[str, Pair] | None = None, data: Mapping[str, Any] | None = None) -> list[Sample]:
    """One for each loop and the probe; with arguments only those."""
    is_whole = pairs is None and data is None
    loops = PAIRS if is_whole else pairs or {}
    probes = {"profiled_ranks": profiled()} if is_whole else data or {}
    return [
        *(loop(name, pair) for name, pair in loops.items()),
        *(sample_of(f"several_gpus/{name}", 0.0, data=each) for name, each in probes.items()),
    ]
