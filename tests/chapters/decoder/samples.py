"""Recordings that nobody made: for the tests here, and for `make serve SAMPLE=decoder`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from snippets.lab.experiment import find
from snippets.lab.recording.schema import Timing
from tests.chapters.decoder.probed import probes
from tests.lab import samples
from tests.lab.sample_recordings import SPREAD, Sample, sample_of
from tests.tool import events

GEMV = "void gemvNSP_kernel<__nv_bfloat16, __nv_bfloat16, __nv_bfloat16, float, 1, 32, 4, 1024>"
FLASH = "void pytorch_flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<64, 64, 256, 4>>"
FUSED = "triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_0"
CAT = "void at::native::(anonymous namespace)::CatArrayBatchedCopy<__nv_bfloat16>"
LAYERS = 22
Launched = Sequence[tuple[str, Sequence[tuple[str, float]]]]
"""The calls of a step: name of the call, and its kernels with their microseconds."""
ITERATION_US = {
    "eager": 8_200.0,
    "static": 8_400.0,
    "graph": 2_000.0,
    "compiled": 4_000.0,
    "reduce_overhead": 1_400.0,
    "layers": 1_300.0,
    "joined": 1_200.0,
    "max_autotune": 1_190.0,
}
PAIRS_US = {
    "item": (420.0, 400.0),
    "sampling": (900.0, 420.0),
    "int4": (2_400.0, 500.0),
    "long_cache": (900.0, 500.0),
    "cat": (9_000.0, 2_000.0),
    "mask": (3_000.0, 1_500.0),
    "repeat_kv": (6_000.0, 1_800.0),
    "prompt_logits": (14_000.0, 12_000.0),
    "padded": (6_000.0, 1_600.0),
}
READS = {"generate": 2, "generate_late": 2, "generate_never": 1}
GRAPHS = ("graph", "reduce_overhead", "layers", "joined", "max_autotune")


def eager_token(per_layer: int = 20, layers: int = LAYERS) -> Launched:
    """A launch for each kernel."""
    kernels = [(GEMV, 8.0)] * 7 + [(FUSED, 2.0)] * (per_layer - 8) + [(FLASH, 6.0)]
    return [("cudaLaunchKernel", [kernel]) for kernel in layers * kernels]


def graph_token(per_layer: int = 9, others_us: float = 5.0) -> Launched:
    """One launch for all kernels: in each layer four products."""
    layer = [(GEMV, 9.0)] * 4 + [(FUSED, others_us)] * (per_layer - 5) + [(FLASH, 6.0)]
    return [("cudaGraphLaunch", [*LAYERS * layer, (GEMV, 40.0)])]


def trace(label: str, launched: Launched, reads: int = 0, tokens: int = 0) -> bytes:
    """Three steps; in each `reads` copies to the CPU at its end. With `tokens`, one step of so many tokens in a row,
    with a span around each."""
    found: list[events.Event] = []
    correlation, start = 0, 0.0
    for number in range(1 if tokens else 3):
        begin = start
        for _ in range(tokens or 1):
            first = start
            at = free = start + 10.0
            for call, kernels in launched:
                correlation += 1
                found.append(events.launch(correlation, at, name=call))
                free = max(free, at + 5.0)
                for name, us in kernels:
                    found.append(events.kernel(name, correlation, free, us))
                    free += us
                at += 6.0
            for _ in range(reads):
                correlation += 1
                copy = events.memcpy(correlation, free, 2.0, 8) | {"name": "Memcpy DtoH (Device -> Pageable)"}
                found += [events.launch(correlation, at, name="cudaMemcpyAsync"), copy]
                at, free = at + 6.0, free + 2.0
            start = max(at, free) + 20.0
            if tokens:
                found.append(events.annotation("token", first + 1, start - first - 2))
        found += [
            events.step(number + 2, begin, start - begin),
            events.annotation(label, begin + 0.5, start - begin - 1),
        ]
        start += 50.0
    return events.trace_bytes(*found, deviceProperties=[{"id": 0, "name": "NVIDIA Sample"}])


def loop(name: str, us: float, content: bytes) -> Sample:
    """A loop's recording with its trace; untimed with 0."""
    (described,) = find(f"decoder/{name}")
    work = described.work(**described.parameters) if described.work else None
    point = samples.point(
        dict(described.parameters),
        flops=work.flops if work else 0,
        bytes=work.bytes if work else 0,
        iteration=Timing.from_samples([share * us for share in SPREAD]) if us else None,
        reference_dtype="float32",
    )
    return samples.sample(f"decoder/{name}", label=described.label, points=(point,)), content


def recordings(
    iterations: Mapping[str, float] | None = None,
    traces: Mapping[str, Launched] | None = None,
    data: Mapping[str, Any] | None = None,
    pairs: Mapping[str, tuple[float, float]] | None = None,
    reads: Mapping[str, int] | None = None,
) -> list[Sample]:
    """One for each experiment; with arguments only those that they change: times of rungs and of pairs, traces of
    rungs and calls, copies of calls to the CPU, data of probes."""
    whole = not (iterations or traces or data or pairs)
    rungs = ITERATION_US | dict(iterations or {})
    names = list(rungs) if whole else [*(iterations or {}), *(name for name in traces or {} if name in rungs)]
    calls = READS if whole else {name: READS[name] for name in traces or {} if name in READS}
    return [
        *(rung(name, rungs[name], (traces or {}).get(name)) for name in names),
        *(call(name, (reads or calls)[name], (traces or {}).get(name)) for name in calls),
        *(each for name, times in (PAIRS_US if whole else pairs or {}).items() for each in pair(name, times)),
        *(sample_of(f"decoder/{name}", 0.0, data=each) for name, each in (probes() if whole else data or {}).items()),
    ]


def rung(name: str, us: float, launched: Launched | None = None) -> Sample:
    """A rung of the ladder."""
    usual = graph_token(24, 2.0) if name == "graph" else graph_token(9 if name == "joined" else 11)
    return loop(name, us, trace("token", launched or (usual if name in GRAPHS else eager_token())))


def call(name: str, reads: int, launched: Launched | None = None) -> Sample:
    """A call of `generate`."""
    return loop(
        name,
        0.0,
        trace("generate", launched or eager_token(45, LAYERS if name == "generate" else 2), reads=reads, tokens=3),
    )


def pair(name: str, times: tuple[float, float]) -> list[Sample]:
    """A fault before and after its mend."""
    label = "prompt" if name in ("prompt_logits", "padded") else "token"
    content = trace(label, eager_token(layers=1))
    return [loop(f"{name}_{state}", us, content) for state, us in zip(("before", "after"), times, strict=True)]
