"""Recordings that nobody made: for the tests here, and for `make serve SAMPLE=decoder`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from snippets.lab.experiment import Work, find
from tests.lab import samples
from tests.lab.sample_recordings import SPREAD, Sample, sample_of

LAYERS = 4
"""Of the sample, so that its traces are short."""
GEMV = ("gemvNSP_kernel", 12.0)
NORM = ("vectorized_layer_norm_kernel", 2.0)
SMALL = ("vectorized_elementwise_kernel", 1.5)
ROW, WIDE = [1, 1, 2048], [1, 1, 5632]
EAGER_LAYER = [
    ("aten::_fused_rms_norm", [ROW, [2048]], [NORM]),
    *[("aten::mm", [[1, 2048], [2048, width]], [GEMV]) for width in (2048, 256, 256)],
    ("aten::mul", [ROW, ROW], [SMALL]),
    ("aten::cat", [[1, 4, 512, 64], [1, 4, 1, 64]], [("CatArrayBatchedCopy", 3.0)] * 2),
    (
        "aten::_flash_attention_forward",
        [[1, 1, 32, 64], [1, 513, 4, 64]],
        [("flash_fwd_splitkv_kernel", 4.0), ("flash_fwd_splitkv_combine_kernel", 2.0)],
    ),
    ("aten::mm", [[1, 2048], [2048, 2048]], [GEMV]),
    ("aten::_fused_rms_norm", [ROW, [2048]], [NORM]),
    *[("aten::mm", [[1, 2048], [2048, 5632]], [GEMV])] * 2,
    ("aten::silu", [WIDE], [SMALL]),
    ("aten::mul", [WIDE, WIDE], [SMALL]),
    ("aten::mm", [[1, 5632], [5632, 2048]], [GEMV]),
]
"""Operators of a layer, the shapes of their inputs, and their kernels with their microseconds."""
EAGER = EAGER_LAYER * LAYERS
FUSED = [GEMV, ("triton_red_fused_mul_norm", 3.0), GEMV, ("triton_poi_fused_silu_mul", 2.0), GEMV] * LAYERS
LOOPS_US = {
    "eager": 8200.0,
    "static": 8000.0,
    "graph": 2000.0,
    "compiled": 2500.0,
    "reduce_overhead": 1270.0,
    "layers": 1250.0,
    "joined": 1150.0,
    "max_autotune": 1000.0,
    "item": (520.0, 480.0),
    "sampling": (900.0, 490.0),
    "int4": (900.0, 300.0),
    "long_cache": (1500.0, 600.0),
    "cat": (2200.0, 900.0),
    "mask": (4500.0, 900.0),
    "repeat_kv": (2600.0, 900.0),
    "prompt_logits": (3500.0, 2500.0),
    "padded": (1800.0, 700.0),
}
"""Loop -> microseconds of an iteration, or of a fault before and after."""


def loop_sample(name: str, us: float, operators: Any) -> Sample:
    """A loop whose iteration takes so many microseconds from Python."""
    (described,) = find(f"decoder/{name}")
    recording, trace = sample_of(described.id, us, operators)
    work = described.work(**described.parameters) if described.work else Work(bytes=0)
    iteration = samples.timing(*(share * us for share in SPREAD)) if described.timed else None
    at = samples.point(dict(described.parameters), flops=work.flops, bytes=work.bytes, iteration=iteration)
    return msgspec.structs.replace(recording, points=(at,)), trace


def spread(us: float) -> list[float]:
    """The samples of a time."""
    return [round(share * us, 3) for share in SPREAD]


def rates() -> dict[str, Any]:
    """Reading at 4 TB/s, copying at 4 TB/s, multiplying at 700 TFLOP/s."""
    size = 1 << 30
    moved = {"sum": size, "matvec": size, "copy": 2 * size}
    times = {name: spread(count / 4e6) for name, count in moved.items()}
    return {
        "bytes": moved,
        "flops": 2 * 8192**3,
        "samples_us": {**times, "matmul": spread(2 * 8192**3 / 7e8)},
    }


def whole(size: str, us: Mapping[str, float], read: int) -> dict[str, Any]:
    """Steady times of rungs."""
    state = {"clock_mhz": 1980.0, "watts": 400.0, "error": 0.005}
    return {
        "bytes": read,
        "context": 768,
        "variants": {name: {"us": spread(each), "joules": 4e-4 * each, **state} for name, each in us.items()},
    }


def kernel(name: str, us: float, grid: tuple[int, int, int] = (132, 1, 1)) -> dict[str, Any]:
    """What `kernels_of` returns of one kernel."""
    return {"name": name, "grid": list(grid), "us": us, "gap_us": None}


def probe_data() -> dict[str, dict[str, Any]]:
    """What each probe returned."""
    calls = {name: {"us": spread(us), "first_us": spread(23_000.0), "warm_up_s": [1.0, 1.0]} for name, us in GENERATE}
    growing = {str(batch): max(1250.0, 7.0 * batch) for batch in (1, 8, 64, 128, 256, 512)}
    ways = {"bf16": 28.0, "bf16 compiled": 27.0, "int8": 90.0, "int8 compiled": 75.0, "int8 max-autotune": 18.0}
    ways |= {"int8 packed": 280.0, "int4": 20.0, "fp8": 22.0, "fp8 compiled": 20.0}
    quantized = {"bf16": 1250.0, "int8": 9000.0, "int8 max-autotune": 900.0, "int4": 850.0, "fp8": 1100.0}
    share = {"bf16": 1.0, "int8": 0.5, "int4": 0.27, "fp8": 0.5}
    return {
        "ceilings": rates(),
        "boundary": {
            size: {"us": spread(us), "stream_us": spread(3.0), "kernel_us": [1.0, us - 0.6], "gap_us": [0.6]}
            for size, us in (("1", 1.6), ("1048576", 4.0))
        },
        "steady_1b": whole("1.1b", {"eager": 8200, "graph": 2000, "layers": 1250, "joined": 1150}, 2_100_000_000),
        "steady_8b": whole("8b", {"graph": 5500, "layers": 4850, "max_autotune": 4370}, 15_100_000_000),
        "prefill_lengths": {
            str(count): {
                "us": spread(max(1500.0, 4.0 * count)),
                "flops": 2 * count * 10**9,
                "bytes": 2_100_000_000,
                "kernels": {"nvjet_tst": {"count": 154, "us": 900.0}, "flash_fwd_kernel": {"count": 22, "us": 100.0}},
            }
            for count in (16, 32, 64, 128, 256, 512, 1024, 2048)
        },
        "generate_times": {"version": "5.17.0", "variants": calls},
        "first_calls": {"call_s": {"whole": [25.0, 0.3, 0.002, 0.0013], "layers": [4.0, 0.003, 0.003, 0.003]}},
        "lengths": {
            "cat": {"call_s": [4.0, 5.0, 0.003, 0.003], "graphs": [1, 2, 2, 2]},
            "cat, static shapes": {"call_s": [4.0, 4.0, 4.0, 4.0], "graphs": [1, 2, 3, 4]},
            "static": {"call_s": [4.0, 0.003, 0.003, 0.003], "graphs": [1, 1, 1, 1]},
        },
        "batches": {
            batch: {
                "us": spread(us),
                "products_us": spread(0.8 * us),
                "bytes": 2_070_000_000 + int(batch) * 5_770_000,
                "weight_bytes": 2_070_000_000,
                "flops": int(batch) * 2_100_000_000,
            }
            for batch, us in growing.items()
        },
        "contexts": {
            str(end): {
                "masked_us": spread(2000 + end),
                "sliced_us": spread(1900 + end / 100),
                "bytes": 2_070_000_000 + 22_528 * end,
                "cache_bytes": 22_528 * end,
            }
            for end in (128, 1024, 4096, 16384, 65536)
        },
        "split_keys": {"points": split_points()},
        "cache_kinds": {
            end: {
                kind: {"us": spread(us), "error": 0.002}
                for kind, us in (("cat", 40.0), ("static", 400.0), ("sliced", 20.0), ("paged", 25.0))
            }
            for end in ("1024", "8192")
        },
        "second_request": {
            "512": [1300.0, 6000.0, 1300.0],
            "2048": [1300.0, 12_000.0, 1300.0],
            "8192": [1300.0, 60_000.0, 1300.0],
        },
        "one_product": {
            shape: {
                name: {
                    "us": spread(us * scale),
                    "bytes": int(117_440_512 * scale * share[name.split()[0]]),
                    "error": 0.002,
                    "rounding": 0.01,
                    "kernels": [kernel("gemv", us * scale)],
                }
                for name, us in ways.items()
            }
            for shape, scale in (("4096 x 14336", 1.0), ("2048 x 5632", 0.2))
        },
        "quantized_models": {
            name: {"us": spread(us), "bytes": int(2_070_000_000 * share[name.split()[0]]), "error": 0.01}
            for name, us in quantized.items()
        },
    }


GENERATE = (("dynamic", 14_600.0), ("late", 14_300.0), ("never", 14_200.0), ("static eager", 24_000.0))


def split_points() -> list[dict[str, Any]]:
    """Points of `split_keys`: few keys are not split, and a mask costs the split."""
    names = {"shared": "flash_fwd_splitkv_kernel", "repeated": "flash_fwd_kernel", "masked": "fmha_cutlassF"}
    return [
        {
            "heads": heads,
            "kv_heads": kv_heads,
            "head_dim": head_dim,
            "batch": batch,
            "tokens": tokens,
            "variant": variant,
            "us": spread(5.0),
            "kernels": [kernel(name, 4.0, (1, max(1, tokens // 512) if variant == "shared" else 1, batch * kv_heads))],
        }
        for heads, kv_heads, head_dim in ((32, 4, 64), (32, 8, 128))
        for batch, tokens in ((1, 256), (1, 1024), (1, 4096), (1, 16384), (8, 1024), (32, 1024), (64, 1024))
        for variant, name in names.items()
    ]


def recordings(graph_launches: int = 1) -> list[Sample]:
    """One for each experiment."""
    replayed = [("cudaGraphLaunch", [], FUSED[:1])] * graph_launches
    found = [sample_of(f"decoder/{name}", 0.0, data=data) for name, data in probe_data().items()]
    for name in ("generate", "generate_late", "generate_never"):
        found.append(loop_sample(name, 60_000.0, EAGER))
    for name, us in LOOPS_US.items():
        if isinstance(us, float):
            operators = {"eager": EAGER, "static": EAGER, "graph": replayed}.get(name, [("compiled", [], FUSED)])
            found.append(loop_sample(name, us, operators))
            continue
        for state, each in zip(("before", "after"), us, strict=True):
            found.append(loop_sample(f"{name}_{state}", each, EAGER_LAYER))
    return found
