"""What the chapter's probes could return, made up around an H200's numbers."""

from __future__ import annotations

from typing import Any

from snippets.decoder.findings.reading import SMALL
from tests.lab.sample_recordings import SPREAD

READ, COPY, MATMUL = 4.4e12, 4.26e12, 7.9e14
SPLIT = "cudnn_generated_fort_native_sdpa_sm80_flash_fprop_wmma_f16_knob_35_16x128x64_1x4x1_cga1x1x1_kernel0_0"
COMBINED = "void cudnn::fusion::lean_reduction_kernel<false, false, false>(void*, float*, float*)"
GEMM = "nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_TNT"
POINTWISE = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>"


def around(us: float) -> list[float]:
    """Samples whose median is a time."""
    return [round(share * us, 4) for share in SPREAD]


def kernel(name: str, us: float, blocks: int = 32) -> dict[str, Any]:
    return {"name": name, "grid": [blocks, 1, 1], "us": us, "gap_us": 1.0}


def probes() -> dict[str, dict[str, Any]]:
    """Name of a probe -> its data."""
    return {
        "generate_times": generate_times(),
        "ceilings": ceilings(),
        "boundary": boundary(),
        "steady_1b": steady(
            {"eager": 8_000.0, "graph": 2_000.0, "layers": 1_290.0, "joined": 1_190.0, "fused": 1_100.0}
        ),
        "steady_8b": steady({"layers": 4_800.0, "max_autotune": 4_370.0}),
        "prefill_lengths": prefill_lengths(),
        "first_calls": first_calls(),
        "lengths": lengths(),
        "batches": batches(),
        "contexts": contexts(),
        "split_keys": split_keys(),
        "cache_kinds": cache_kinds(),
        "second_request": second_request(),
        "one_product": one_product(),
        "quantized_models": quantized_models(),
    }


def first_calls(whole: float = 42.0, layers: float = 6.0) -> dict[str, Any]:
    return {"call_s": {"whole": [whole, 0.07 * whole, *[0.0013] * 6], "layers": [layers, 0.02, *[0.0015] * 6]}}


def second_request(longest_us: float = 40_000.0) -> dict[str, Any]:
    longest = {"512": 3_000.0, "2048": 9_000.0, "8192": longest_us}
    return {tokens: [1_300.0] * 20 + [us] + [1_300.0] * 19 for tokens, us in longest.items()}


def generate_times(**changed: float) -> dict[str, Any]:
    times = {"dynamic": 14_600.0, "late": 14_500.0, "never": 14_300.0, "static_eager": 24_000.0} | changed
    variants = {
        name.replace("_", " "): {"us": around(us), "first_us": around(20_000.0), "warm_up_s": [1.0, 1.0]}
        for name, us in times.items()
    }
    return {"version": "5.17.0", "variants": variants}


def ceilings(read: float = READ, copy: float = COPY, matmul: float = MATMUL) -> dict[str, Any]:
    size, flops = 1 << 30, 2 * 8192**3
    return {
        "bytes": {"sum": size, "matvec": size, "copy": 2 * size},
        "flops": flops,
        "samples_us": {
            "sum": around(1e6 * size / read),
            "matvec": around(1.02e6 * size / read),
            "copy": around(2e6 * size / copy),
            "matmul": around(1e6 * flops / matmul),
        },
    }


def boundary(us: float = 1.3, stream_us: float = 4.5) -> dict[str, Any]:
    entry = {"us": around(us), "stream_us": around(stream_us), "kernel_us": [1.0] * 3, "gap_us": [0.3] * 2}
    return {"1": entry, "1048576": {**entry, "us": around(2.4)}}


def steady(times: dict[str, float], watts: float = 300.0) -> dict[str, Any]:
    variants = {
        name: {"us": around(us), "clock_mhz": 1900.0, "watts": watts, "joules": watts * us / 1e6, "error": 0.01}
        for name, us in times.items()
    }
    return {"bytes": 0, "context": 768, "variants": variants}


def prefill_lengths(slow: float = 1.6, products: float = 0.7) -> dict[str, Any]:
    found = {}
    for tokens in (16, 32, 64, 128, 256, 512, 1024, 2048):
        flops = 2 * SMALL.read_weights * tokens
        read = SMALL.read_bytes(1, tokens)
        us = 1_500.0 + slow * max(1e6 * flops / MATMUL, 1e6 * read / READ)
        shares = {GEMM: products, SPLIT: 0.1, POINTWISE: 0.9 - products}
        kernels = {name: {"count": 22, "us": share * us} for name, share in shares.items()}
        found[str(tokens)] = {"us": around(us), "flops": flops, "bytes": read, "kernels": kernels}
    return found


def lengths(cat: int = 2, fixed: int = 10, static: int = 1, plan_s: float = 0.037) -> dict[str, Any]:
    def entry(graphs: int) -> dict[str, Any]:
        counts = [min(graphs, token + 1) for token in range(10)]
        return {"call_s": [4.0 if token < graphs else 0.001 for token in range(10)], "graphs": counts}

    plain = {"call_s": [0.001 + plan_s] * 10, "again_s": [0.001] * 10, "graphs": [0] * 10}
    return {"not compiled": plain, "cat": entry(cat), "cat, static shapes": entry(fixed), "static": entry(static)}


def batches(knee: float = 180.0, small: float = 1.5, **stopped: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    flat_us = 1e6 * 2 * SMALL.read_weights / READ
    for batch in (1, 8, 64, 128, 256, 512):
        products = flat_us * max(1.0, batch / (small * knee))
        found[str(batch)] = {
            "us": around(products + 600.0),
            "products_us": around(products),
            "large_products_us": around(300.0 * max(1.0, batch / knee)),
            "bytes": SMALL.read_bytes(batch, 256),
            "weight_bytes": 2 * SMALL.read_weights,
            "flops": 2 * SMALL.read_weights * batch,
        }
    return found | {name.removeprefix("b"): {"stopped": why} for name, why in stopped.items()}


def contexts(masked: float = 0.005, rest_us: float = 1_500.0) -> dict[str, Any]:
    found = {}
    for tokens in (128, 1024, 4096, 16384, 65536):
        read = SMALL.read_bytes(1, tokens)
        us = rest_us + 1e6 * read / READ
        found[str(tokens)] = {
            "sliced_us": around(us),
            "masked_us": around(us + masked * tokens),
            "bytes": read,
            "cache_bytes": tokens * SMALL.cache_bytes,
        }
    return found


def split_keys(split: int = 32, more: int = 3, full: int = 1) -> dict[str, Any]:
    """Keys in up to `split` parts, `full` for 32 sequences; behind a mask `more` kernels."""
    points = []
    for heads, kv_heads, head_dim in ((32, 4, 64), (32, 8, 128)):
        for batch, tokens in ((1, 256), (1, 1024), (1, 4096), (1, 16384), (32, 1024)):
            shape = {"heads": heads, "kv_heads": kv_heads, "head_dim": head_dim, "batch": batch, "tokens": tokens}
            parts = min(split, max(1, tokens // 128)) if batch == 1 else full
            shared = [kernel(SPLIT, 5.0, parts * kv_heads * batch)]
            shared += [kernel(COMBINED, 2.0)] if parts > 1 else []
            masked = shared + [kernel(POINTWISE, 1.5)] * more
            for name, kernels in (("shared", shared), ("repeated", shared), ("masked", masked)):
                us = around(sum(each["us"] for each in kernels))
                points.append({**shape, "variant": name, "us": us, "kernels": kernels})
    return {"points": points}


def cache_kinds(**changed: float) -> dict[str, Any]:
    times = {
        "1024": {"cat": 30.0, "static": 90.0, "sliced": 14.0, "paged": 20.0},
        "8192": {"cat": 160.0, "static": 95.0, "sliced": 30.0, "paged": 40.0},
    }
    return {
        tokens: {kind: {"us": around(us), "error": 0.002} for kind, us in (each | changed).items()}
        for tokens, each in times.items()
    }


PRODUCT_US = {
    "bf16": 28.0,
    "int8": 140.0,
    "int8 compiled": 75.0,
    "int8 max-autotune": 18.0,
    "int8 packed": 284.0,
    "int4": 21.0,
    "fp8": 33.0,
    "fp8 compiled": 23.0,
}
BYTES = {"bf16": 2.0, "int4": 0.53}


def one_product(kernels_of_fp8: int = 7, **changed: float) -> dict[str, Any]:
    found = {}
    for k, n in ((4096, 14336), (2048, 5632)):
        scale = k * n / (4096 * 14336)
        ways = {}
        for way, us in PRODUCT_US.items():
            count = {"fp8": kernels_of_fp8, "int8": 3, "int8 compiled": 2}.get(way, 1)
            ways[way] = {
                "us": around(scale * changed.get(way.replace("max-autotune", "tuned").replace(" ", "_"), us)),
                "bytes": int(k * n * BYTES.get(way, 1.0)),
                "error": 0.002,
                "rounding": 0.1 if way == "int4" else 0.007,
                "kernels": [kernel(POINTWISE, us / count)] * count,
            }
        found[f"{k} x {n}"] = ways
    return found


def quantized_models(int8: float = 2_600.0, int8_tuned: float = 1_000.0) -> dict[str, Any]:
    times = {"bf16": 1_300.0, "int8": int8, "int8 max-autotune": int8_tuned, "int4": 1_100.0, "fp8": 1_900.0}
    found = {
        way: {"us": around(us), "bytes": SMALL.read_weights * (2 if way == "bf16" else 1), "error": 0.01}
        for way, us in times.items()
    }
    return found
