"""Recordings that nobody made, around an H200's numbers: for tests, and for `make serve SAMPLE=decode_kernels`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from snippets.decode_kernels.findings.names import PART_NAMES, kernels_of, part_bytes
from snippets.decoder.findings.reading import LARGE, SMALL, Shape
from snippets.lab.experiment import find
from snippets.lab.recording.schema import Timing
from tests.chapters.decoder import probed
from tests.chapters.decoder.probed import READ, around
from tests.lab import samples
from tests.lab.sample_recordings import SPREAD, Sample, sample_of
from tests.tool import events

CONTEXT = 528
MULTIPROCESSORS = 132
PROGRAMS = {"qkv": 320, "attend": 64, "out": 512, "gate_up": 1408, "down": 512, "head": 4000}
NAMES = {
    "qkv": "decode_qkv_kernel",
    "attend": "decode_attend_kernel",
    "out": "decode_residual_kernel",
    "gate_up": "decode_gate_up_kernel",
    "down": "decode_residual_kernel",
    "head": "decode_head_kernel",
}
COMPILED = {"reduce_overhead": 379, "gpt_fast": 300, "max_autotune": 273}
"""Compiled step -> its kernels."""
TOKEN_US = {
    "reduce_overhead": 1_400.0,
    "gpt_fast": 1_250.0,
    "max_autotune": 1_100.0,
    "plain_kernels": 680.0,
    "kernels": 590.0,
    "one_kernel": 580.0,
}
LARGE_US = {
    "reduce_overhead": 4_800.0,
    "gpt_fast": 4_600.0,
    "max_autotune": 4_250.0,
    "plain_kernels": 3_800.0,
    "kernels": 3_550.0,
    "one_kernel": 3_580.0,
}
INT8_US = {"kernels": 590.0, "int8_kernels": 400.0, "one_kernel": 580.0, "int8_one_kernel": 390.0}
LARGE_INT8_US = {"kernels": 3_550.0, "int8_kernels": 2_000.0, "one_kernel": 3_580.0, "int8_one_kernel": 2_020.0}
EIGHT = 1.08
"""The time of a step for eight texts over the time for one text."""
Kernels = Sequence[tuple[str, int, float]]
"""Name, programs and microseconds of each kernel of a step."""


def kernels_of_step(variant: str, programs: Mapping[str, int] = PROGRAMS, layers: int = SMALL.layers) -> Kernels:
    """The kernels of a variant in their order."""
    if variant == "one_kernel":
        return [("decode_step_kernel", MULTIPROCESSORS, 570.0)]
    if variant in COMPILED:
        return [("triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_0", 32, 3.0)] * COMPILED[variant]
    order = [part for part in PART_NAMES if part != "head"] * layers + ["head"]
    return [(NAMES[part], programs[part], 5.0) for part in order]


def trace(kernels: Kernels, calls: int = 1) -> bytes:
    """Three tokens, each with so many launches of a graph; the first launch runs all kernels."""
    found: list[events.Event] = []
    correlation, start = 0, 0.0
    for number in range(3):
        begin, at = start, start + 10.0
        for call in range(calls):
            correlation += 1
            found.append(events.launch(correlation, begin + 5.0 + call, name="cudaGraphLaunch"))
            for name, programs, us in kernels if call == 0 else kernels[:1]:
                found.append(events.kernel(name, correlation, at, us, grid=[programs, 1, 1]))
                at += us
        start = at + 10.0
        found += [
            events.step(number + 2, begin, start - begin),
            events.annotation("token", begin + 0.5, start - begin - 1),
        ]
        start += 50.0
    return events.trace_bytes(*found, deviceProperties=[{"id": 0, "name": "NVIDIA Sample"}])


def loop(name: str, us: float, content: bytes) -> Sample:
    """A loop's recording with its trace."""
    (described,) = find(f"decode_kernels/{name}")
    assert described.work is not None
    work = described.work(**described.parameters)
    point = samples.point(
        dict(described.parameters),
        flops=work.flops,
        bytes=work.bytes,
        iteration=Timing.from_samples([share * us for share in SPREAD]),
        reference_dtype="float32",
    )
    environment = samples.environment(multiprocessors=MULTIPROCESSORS)
    return (
        samples.sample(f"decode_kernels/{name}", label=described.label, points=(point,), environment=environment),
        content,
    )


def steady(times: Mapping[str, float], watts: Mapping[str, float] | None = None, **errors: float) -> dict[str, Any]:
    """Variants alone for seconds: microseconds of each; `watts` of some are not 300, and `errors` not 0.01."""
    drawn = dict(watts or {})
    variants = {
        name: {
            "us": around(us),
            "clock_mhz": 1_900.0,
            "watts": drawn.get(name, 300.0),
            "joules": drawn.get(name, 300.0) * us / 1e6,
            "error": errors.get(name, 0.01),
        }
        for name, us in times.items()
    }
    return {"bytes": 0, "variants": variants}


def int8(shape: Shape, times: Mapping[str, float], left: float = 0.53, **errors: float) -> dict[str, Any]:
    """Steps with weights in int8, which leave so much of the bytes, and in bf16."""
    found = steady(times, **errors)
    whole = shape.read_bytes(1, CONTEXT)
    for name, entry in found["variants"].items():
        entry["bytes"] = int(whole * left) if name.startswith("int8_") else whole
    return found | {"bytes": whole}


def parts(shape: Shape, batch: int = 1, start_us: float = 1.0, **factors: float) -> dict[str, Any]:
    """Parts alone: each reads at the rate of reading but for its tail, and starts for `start_us` a kernel; `factors` of
    a part's time are not 1."""
    found = {}
    for part, moved in part_bytes(shape, batch, CONTEXT).items():
        kernels = 1 if part == "head" else shape.layers
        tail = {"qkv": 1.24, "attend": 2.06}.get(part, 1.03) if shape is SMALL else 1.02
        us = 1e6 * moved / READ * tail + kernels * start_us
        found[part] = {"us": around(us * factors.get(part, 1.0)), "bytes": moved, "launches": kernels}
    return found


def errors(equal: int = 250, int8_error: float = 0.004, rounding: float = 0.03, **changed: float) -> dict[str, Any]:
    """Long answers: `changed` errors of variants, and `equal` tokens of the early-launch step."""
    own = {"max_autotune": 0.003, "kernels": 0.003, "one_kernel": 0.003} | changed
    found = {name: {"error": error, "quantized": 0.0, "equal": 252} for name, error in own.items()}
    for name in ("int8_kernels", "int8_one_kernel"):
        found[name] = {"error": int8_error, "quantized": rounding, "equal": 249}
    found["kernels"]["equal"] = equal
    return {name: each | {"equal_before": int(each["equal"]) - 9, "tokens": 256} for name, each in found.items()}


def tiles(fastest: float = 0.98) -> dict[str, Any]:
    """Steps with two tiles of each part that multiplies: the faster step takes so much of the time with this book's
    tiles."""
    found: dict[str, Any] = {}
    for size, us in (("1.1b", TOKEN_US["kernels"]), ("8b", LARGE_US["kernels"])):
        steps = {
            "8 x 512, 4 warps, 4 held": around(us),
            "8 x 256, 4 warps, 2 held": around(1.01 * us),
            "8 x 1024, 8 warps, 1 held": around(fastest * us),
        }
        swept = {"chosen": "8 x 512, 4 warps, 4 held", "us": steps}
        found[f"{size}, batch 1, bf16"] = {part: swept for part in PART_NAMES if part != "attend"}
    return found


def generate_static(us: float = 3_000.0) -> dict[str, Any]:
    """A token of `generate` with a static cache."""
    times = {"us": around(us), "first_us": around(20_000.0), "warm_up_s": [50.0, 1.0]}
    return {"version": "5.17.0", "variants": {"static": times}}


def in_transformers(*ways: str, dropped: int = 35, **changed: Any) -> dict[str, Any]:
    """`generate` with and without the kernels, which take `dropped` kernels from a layer; `changed` values of ours."""
    plain = {"dynamic": (15_500.0, 970), "static eager": (20_000.0, 980), "static": (3_000.0, 420)}
    ours = {"dynamic": 8_000.0, "static eager": 9_000.0, "static": 2_300.0}
    found = {}
    for way in ways:
        us, kernels = plain[way]
        left = kernels - (dropped if way != "static" else 12) * SMALL.layers
        own = {"us": around(changed.get("us", ours[way])), "kernels": float(left), "own": 110.0}
        rest = {"first_us": around(20_000.0), "warm_up_s": [0.4, 2.4], "error": 0.003, "likely": 63}
        found[way] = {
            "plain": {"us": around(us), "kernels": float(kernels), "own": 0.0, **rest},
            "ours": {**own, **rest, "likely": 62},
            "equal": 64 if way == "dynamic" else 51,
            "gap": 0.0 if way == "dynamic" else changed.get("gap", 0.01),
            "largest_error": 0.02,
        }
    versions = {"transformers": "5.17.0", "kernels": "0.17.2"}
    return {"versions": versions, "tokens": 64, "ways": found}


def probes() -> dict[str, dict[str, Any]]:
    """Name of a probe -> its data."""
    found: dict[str, dict[str, Any]] = {
        "steady_1_1b": steady(TOKEN_US),
        "steady_8b": steady(LARGE_US),
        "int8_1_1b": int8(SMALL, INT8_US),
        "int8_8b": int8(LARGE, LARGE_INT8_US),
        "errors_1_1b": errors(),
        "errors_8b": errors(),
        "generate_static_1_1b": generate_static(),
        "generate_static_8b": generate_static(7_000.0),
        "in_transformers": in_transformers("dynamic", "static eager"),
        "in_transformers_compiled": in_transformers("static"),
        "tiles": tiles(),
    }
    for size, shape, times in (("1_1b", SMALL, TOKEN_US), ("8b", LARGE, LARGE_US)):
        found[f"steady_{size}_batch_8"] = steady({name: EIGHT * us for name, us in times.items()})
        found[f"parts_{size}"] = parts(shape, start_us=1.0 if shape is SMALL else 0.5)
        found[f"parts_{size}_batch_8"] = parts(shape, 8)
    return found


def rates(read: float = READ, boundary_us: float = 1.3) -> list[Sample]:
    """The rates and the boundary that the chapter decoder recorded."""
    found = {"ceilings": probed.ceilings(read=read), "boundary": probed.boundary(us=boundary_us)}
    return [sample_of(f"decoder/{name}", 0.0, data=data) for name, data in found.items()]


def recordings(
    tokens: Mapping[str, float] | None = None,
    traces: Mapping[str, bytes] | None = None,
    data: Mapping[str, Any] | None = None,
    ceilings: Mapping[str, float] | None = None,
) -> list[Sample]:
    """One for each experiment, and the rates of the chapter decoder; with arguments only those that they change: times
    of loops, their traces, data of probes, and the rates."""
    whole = not (tokens or traces or data or ceilings)
    names = list(TOKEN_US) if whole else [*(tokens or {}), *(traces or {})]
    times = TOKEN_US | dict(tokens or {})
    loops = [loop(name, times[name], (traces or {}).get(name) or trace(kernels_of_step(name))) for name in names]
    probed_data = probes() if whole else data or {}
    shared = rates(**ceilings) if ceilings else rates() if whole else []
    return [
        *loops,
        *shared,
        *(sample_of(f"decode_kernels/{name}", 0.0, data=each) for name, each in probed_data.items()),
    ]


assert kernels_of(SMALL) == len(kernels_of_step("kernels"))
