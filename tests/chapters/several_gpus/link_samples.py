"""Recordings that nobody made of the link, data parallel and products next to transfers, around an H200's numbers."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import structs

from kinetoscope.ranks.joining import merge_ranks
from snippets.lab.experiment import find
from snippets.lab.recording.schema import Timing
from snippets.several_gpus.experiments.data_parallel import RUNGS
from snippets.several_gpus.findings.data_parallel import PARAMETERS, gradient_bytes
from snippets.several_gpus.findings.link import sent_share
from tests.lab import samples
from tests.lab.rank_samples import ALL_REDUCE, BASE_NS
from tests.lab.sample_recordings import SPREAD, Sample, sample_of
from tests.tool import events

SIZES = [4096 * 4**power for power in range(10)]
SYMMETRIC_SIZES = [16_384 * 4**power for power in range(6)]
ITERATION_US = {
    "alone": 20_000.0,
    "each_parameter": 26_000.0,
    "one_bucket": 24_500.0,
    "buckets_in_backward": 20_900.0,
    "ddp": 20_700.0,
    "ddp_views": 20_500.0,
}
CALLS = {"alone": 0, "each_parameter": PARAMETERS, "one_bucket": 1}
PRODUCT = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"
HIDDEN = ("buckets_in_backward", "ddp", "ddp_views")
BACKWARD_US, CALL_US = 1000.0, 20.0
WORLD = 2


def around(us: float) -> list[float]:
    """Samples whose median is a time."""
    return [round(share * us, 4) for share in SPREAD]


def link(
    ranks: int = 2,
    *,
    latency: float = 10.0,
    bus: float = 320e9,
    slow_to: int = 0,
    copy: float = 396e9,
    other_copy: float = 0.99,
    launched: float = 30.0,
    gather: float = 0.5,
    calls: float = 12.0,
    **symmetric: float,
) -> dict[str, Any]:
    """A link whose calls take a latency and the time of their bytes; up to `slow_to` bytes, four times that.

    `gather` is the share of an all-reduce's time that the other collectives take; `launched` and `calls` are
    microseconds of a call of few bytes, by Python and in a graph; `symmetric` is a factor of a kind's time.
    """
    collectives: dict[str, Any] = {}
    for name in ("all_reduce", "all_gather", "reduce_scatter"):
        for size in SIZES:
            us = latency + 1e6 * sent_share("all_reduce", ranks) * size / bus * (4 if size <= slow_to else 1)
            us *= 1.0 if name == "all_reduce" else gather
            entry = {"us": around(us), "launched_us": around(max(us, launched))}
            collectives.setdefault(name, {})[str(size)] = entry
    whole = latency + 1e6 * (64 << 20) / bus
    counts = {
        str(count): {"us": around(max(whole, calls * count)), "launched_us": around(max(whole, launched * count))}
        for count in (1, 4, 16, 64, 256, 1024)
    }
    return {
        "ranks": ranks,
        "collectives": collectives,
        "calls": {"bytes": 64 << 20, "counts": counts},
        "copies": copies(copy, other_copy),
        "symmetric": symmetric_memory(ranks, latency, bus, symmetric),
    }


def copies(rate: float, share: float) -> dict[str, Any]:
    us = 1e6 * (256 << 20) / rate
    return {"bytes": 256 << 20, "one_us": around(us), "all_us": around(us / share)}


def symmetric_memory(ranks: int, latency: float, bus: float, factors: Mapping[str, float]) -> dict[str, Any]:
    """One shot reads n - 1 arrays, two shots 2 (n - 1) / n of one; both have a third of NCCL's latency."""
    passes = {"nccl_us": sent_share("all_reduce", ranks), "one_shot_us": ranks - 1.0}
    passes["two_shot_us"] = 1.1 * passes["nccl_us"]
    return {
        str(size): {
            **{
                name: around(
                    factors.get(name, 1.0) * ((latency if name == "nccl_us" else latency / 3) + 1e6 * each * size / bus)
                )
                for name, each in passes.items()
            },
            "error": 0.001,
        }
        for size in SYMMETRIC_SIZES
    }


def tokens(
    *, flops: float = 7.5e14, transfer_us: float = 3_400.0, hiding: float = 1.0, tail: float = 0.1
) -> dict[str, Any]:
    """Steps whose backward hides the all-reduce `hiding` times as well as its time allows, but for its `tail`."""
    weights = gradient_bytes(4096, 4) // 2
    counts = {}
    for count in (256, 512, 1024, 2048, 4096, 8192):
        forward = 1e6 * 2 * weights * count / flops
        alone = 3 * forward + 500.0
        exposed = max(tail * transfer_us, transfer_us - hiding * 2 * forward)
        counts[str(count)] = {
            "alone_us": around(alone),
            "one_bucket_us": around(alone + 1.1 * transfer_us),
            "ddp_us": [a + exposed for a in around(alone)],
        }
    work = 8 * 8192 * 4096**2
    return {
        "ranks": WORLD,
        "bytes": 2 * weights,
        "all_reduce_us": around(transfer_us),
        "matmul": {"us": around(1e6 * work / flops), "flops": work},
        "counts": counts,
    }


def ddp_options(*, one: int = 33, large: float = 1.2, quarter: float = 0.95, no_sync: float = 0.7) -> dict[str, Any]:
    """Options around a step of 11 ms: times as multiples of the defaults'."""
    gradients = gradient_bytes(2048, 16)
    us = {"bucket_cap_mb=1": 1.0, "bucket_cap_mb=25": 1.0, "bucket_cap_mb=100": 1.02, "bucket_cap_mb=250": quarter}
    us |= {"bucket_cap_mb=2000": large, "defaults": 1.0, "large first bucket": 1.05, "gradient_as_bucket_view": 0.97}
    variants = {
        name: {
            "us": around(11_000.0 * factor),
            "buckets": [gradients // 33] * (one if name == "bucket_cap_mb=1" else 33),
            "held_bytes": 2 * gradients,
        }
        for name, factor in us.items()
    }
    accumulation = {
        "batches": 4,
        "tokens": 1024,
        "synced_us": around(28_000.0),
        "no_sync_us": around(28_000.0 * no_sync),
    }
    return {"ranks": WORLD, "bytes": gradients, "variants": variants, "accumulation": accumulation}


def beside(
    *,
    blocks: int = 24,
    few: int = 4,
    slowdown: float = 1.22,
    gather: float = 1.35,
    fewer: float = 1.05,
    copy: float = 1.01,
    transfer: float = 3.0,
    pair: float = 0.8,
    copied: str = "Memcpy PtoP (Device -> Device)",
    outlasted: bool = True,
) -> dict[str, Any]:
    """A product of 1.45 ms and its slowdowns; `transfer` is the factor of an all-reduce with four blocks."""
    alone = 1_450.0
    factors = {"all_reduce": slowdown, "all_gather": gather, "max_ctas=2": fewer, "max_ctas=4": fewer}
    factors |= {"max_ctas=8": 1.1, "max_ctas=16": 1.15, "copy": copy}
    grids = {"all_reduce": blocks, "all_gather": 16, "max_ctas=2": 2, "max_ctas=4": few, "max_ctas=8": 8}
    grids |= {"max_ctas=16": 16, "copy": 0}
    transfers = {
        name: {
            "us": around(1_700.0 * (transfer if name == "max_ctas=4" else 1.0)),
            "product_us": around(alone * factor),
            "outlasted": outlasted,
            "activity": copied if name == "copy" else ALL_REDUCE,
            "blocks": grids[name],
            "products": 1,
            "in_order_us": around(3_150.0),
            "side_by_side_us": around(3_150.0 * pair),
        }
        for name, factor in factors.items()
    }
    return {
        "ranks": WORLD,
        "bytes": 512 << 20,
        "flops": 2 * 8192**3,
        "multiprocessors": 132,
        "alone_us": around(alone),
        "transfers": transfers,
    }


def probes() -> dict[str, dict[str, Any]]:
    """Name of a probe -> its data."""
    return {
        "link_2": link(),
        "link_4": link(4, bus=350e9),
        "tokens": tokens(),
        "ddp_options": ddp_options(),
        "beside": beside(),
    }


def rank_trace(
    rank: int, calls: int, is_hidden: bool, is_annotated: bool = True, slowdown: float = 2.0, copies: int = 0
) -> bytes:
    """Three steps of one rank: a backward, and all-reduces next to it or behind it, and copies.

    `slowdown` is the factor of a backward that runs next to all-reduces.
    """
    found: list[events.Event] = []
    correlation = 0
    for number in range(3):
        begin = 10_000.0 * number
        works = correlation = correlation + 1
        found += [
            events.step(number + 2, begin, 4_000.0),
            events.annotation("step", begin + 1, 3_998.0),
            events.launch(works, begin + 4),
            events.kernel(PRODUCT, works, begin + 10, BACKWARD_US * (slowdown if is_hidden else 1.0)),
        ]
        for index in range(copies):
            correlation += 1
            found += [
                events.launch(correlation, begin + 5 + 0.01 * index, duration=0.005),
                events.memcpy(correlation, begin + 2_500.0 + 2 * index, 1.0, 1 << 20),
            ]
        start = begin + 10 + (100.0 if is_hidden else BACKWARD_US)
        for index in range(calls):
            correlation += 1
            at = start + index * (CALL_US + 2.0)
            kernel = events.kernel(ALL_REDUCE, correlation, at, CALL_US, stream=13)
            kernel["args"] |= {"Collective name": "allreduce", "In msg nelems": 1 << 20, "Out msg nelems": 1 << 20}
            kernel["args"] |= {"Group size": WORLD, "dtype": "BFloat16", "Process Group Name": "0"}
            kernel["args"] |= {"Process Group Description": "default_pg", "Process Group Ranks": "[0, 1]"}
            called = begin + 8 + index
            found += [
                events.op("c10d::allreduce_", called, 0.9),
                events.op("record_param_comms", called + 0.1, 0.7),
                *([events.annotation("nccl:all_reduce", called + 0.2, 0.5)] if is_annotated else []),
                events.launch(correlation, called + 0.3, duration=0.2),
                events.gpu_annotation("nccl:all_reduce", at, CALL_US, stream=13),
                kernel,
            ]
    job = {"rank": rank, "world_size": WORLD, "backend": "nccl"}
    job |= {"pg_config": [{"pg_name": "0", "ranks": [0, 1]}]}
    devices = [{"id": 0, "name": "NVIDIA Sample"}]
    return events.trace_bytes(*found, baseTimeNanoseconds=BASE_NS, distributedInfo=job, deviceProperties=devices)


def merged(calls: int, is_hidden: bool, *options: Any) -> bytes:
    """The trace of both ranks in one file."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paths = [folder / f"rank{rank}.json" for rank in range(WORLD)]
        for rank, path in enumerate(paths):
            path.write_bytes(rank_trace(rank, calls, is_hidden, *options))
        merge_ranks(paths, folder / "job.json")
        return (folder / "job.json").read_bytes()


def rung(
    name: str,
    us: float,
    calls: int | None = None,
    is_hidden: bool | None = None,
    is_annotated: bool = True,
    slowdown: float = 2.0,
    copies: int | None = None,
) -> Sample:
    """A rung of the ladder with its trace."""
    (described,) = find(f"several_gpus/{name}")
    point = samples.point(
        dict(described.parameters),
        flops=0,
        bytes=0,
        iteration=structs.replace(Timing.from_samples([share * us for share in SPREAD]), watts=600.0),
        reference_dtype="float32",
    )
    recording = samples.sample(
        f"several_gpus/{name}", label=described.label, points=(point,), environment=samples.environment(gpus=WORLD)
    )
    number = CALLS.get(name, 16) if calls is None else calls
    hides = name in HIDDEN if is_hidden is None else is_hidden
    copied = (PARAMETERS if name == "ddp" else 0) if copies is None else copies
    return recording, merged(number, hides, is_annotated, slowdown, copied)


def recordings(
    iterations: Mapping[str, float] | None = None,
    data: Mapping[str, Any] | None = None,
    traces: Mapping[str, tuple[Any, ...]] | None = None,
) -> list[Sample]:
    """One for each experiment; with arguments only those that they change: times of rungs, data of probes, and
    traces: the arguments of `rung` after the time."""
    whole = not (iterations or data or traces)
    times = ITERATION_US if whole else {name: ITERATION_US[name] for name in traces or {}} | dict(iterations or {})
    rungs = [rung(name, us, *(traces or {}).get(name, ())) for name, us in times.items()]
    probed = probes() if whole else data or {}
    assert set(times) <= set(RUNGS)
    return [*rungs, *(sample_of(f"several_gpus/{name}", 0.0, data=each) for name, each in probed.items())]
