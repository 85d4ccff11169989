"""Made-up recordings of the chapter's second page: compile modes and fusion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from snippets.regimes.experiments.spilling import TRIED, tile_name
from snippets.regimes.findings.caching import OPS, gelu_bytes
from snippets.regimes.findings.compiling import GEGLU, MODES, STACK, TUNED
from snippets.regimes.findings.fusing import FEW, MANY, TOKENS
from tests.lab.sample_recordings import Sample, sample_of

GRAPH = ("extern_kernels.addmm", "triton_poi_fused_gelu_0", "extern_kernels.addmm")
UNFUSED = ("extern_kernels.mm", "triton_poi_fused_add_gelu_0", "extern_kernels.addmm")
KERNEL = "def triton_poi_fused_gelu_0(in_out_ptr0, xnumel, XBLOCK : tl.constexpr):\n    pass"
POWER_LIMIT_W = 700.0
PYTHON_US: Mapping[str, float] = {
    "eager": 40,
    "default": 60,
    "dynamic": 65,
    "reduce-overhead": 10,
    "max-autotune-no-cudagraphs": 50,
    "max-autotune": 9,
}
GPU_US: Mapping[str, Mapping[str, float]] = {
    "eager": {STACK: 14, GEGLU: 250},
    "default": {STACK: 14, GEGLU: 270},
    "dynamic": {STACK: 15, GEGLU: 275},
    "reduce-overhead": {STACK: 16, GEGLU: 272},
    "max-autotune-no-cudagraphs": {STACK: 17, GEGLU: 260},
    "max-autotune": {STACK: 13, GEGLU: 262},
}


def around(us: float) -> list[float]:
    """Samples whose median is `us`."""
    return [round(us * share, 3) for share in (0.99, 1.0, 1.01, 1.0, 0.99, 1.0, 1.01, 1.0, 1.0)]


def guards(size: str) -> list[str]:
    """Guards of a graph for that shape of x."""
    return [
        f"check_tensor(L['x'], Tensor, DispatchKeySet(CUDA), torch.bfloat16, size={size}, stride=[1024, 1])",
        "___check_type_id(L['self'])",
        "___check_global_state()",
        "___check_obj_id(G['__import_torch_dot_nn_dot_modules_dot_linear'].F.linear)",
    ]


def modes(subject: str) -> Sample:
    """The modes of a subject."""
    seen = {
        mode: {
            "graphs": 1,
            "breaks": [],
            "guards": [guards("[64, 1024]")],
            "inductor": {},
            "calls": list(GRAPH),
            "kernels": {"triton_poi_fused_gelu_0": KERNEL},
            "cold_s": [[seconds * share, 0.002, 0.001, 0.0001, 0.0001] for share in (1.0, 1.1, 0.9)],
            "again_s": [0.05, 0.002, 0.001, 0.0001, 0.0001],
            "tuned": tuned(mode) if "autotune" in mode else [],
        }
        for mode, seconds in zip(MODES, (0.5, 0.6, 0.5, 6.0, 5.0), strict=True)
    }
    times = {
        variant: {
            "interleaved": around(GPU_US[variant][subject]),
            "from_python": around(max(PYTHON_US[variant], GPU_US[variant][subject])),
            "enqueue": around(PYTHON_US[variant] - 5),
        }
        for variant in GPU_US
    }
    steady = alone() if subject == GEGLU else {}
    data = {"modes": seen, "times": times, "steady": steady, "first_ever_s": 4.0}
    recording, trace = sample_of(f"regimes/modes_{subject}", 0, data=data)
    limited = msgspec.structs.replace(recording.environment, power_limit_w=POWER_LIMIT_W)
    return msgspec.structs.replace(recording, environment=limited), trace


def tuned(mode: str) -> list[dict[str, object]]:
    """Max-autotune's times of two products: for the second it chose cuBLAS, and Triton with CUDA graphs."""
    library_ms = 0.012 if mode == TUNED else 0.015
    timed = ({"addmm": 0.2, "triton_mm_3": 0.01}, {"bias_addmm": library_ms, "addmm": 0.03, "triton_mm_5": 0.013})
    return [{"name": "addmm", "ms": ms, "about": []} for ms in timed]


def alone() -> dict[str, dict[str, object]]:
    """Steady times of the GeGLU block: a tenth longer than interleaved, at 98 % of the power limit."""
    steady_us = {variant: 1.1 * us[GEGLU] for variant, us in GPU_US.items()} | {"default": 260.0}
    return {
        variant: {"us": around(us), "clock_mhz": 1700.0, "joules": 0.98 * POWER_LIMIT_W * us * 1e-6}
        for variant, us in steady_us.items()
    }


def new_shapes() -> Sample:
    """Calls with new numbers of tokens."""
    asked = {
        "static": ([1, 2, 3, 4, 4, 5, 6], ["[500, 1024]", "[1, 1024]", "[200, 1024]", "[96, 1024]"]),
        "automatic": ([1, 2, 2, 2, 2, 3, 3], ["[1, 1024]", "[None, 1024]", "[64, 1024]"]),
        "dynamic": ([1, 1, 1, 1, 1, 2, 2], ["[1, 1024]", "[None, 1024]"]),
    }
    data = {
        name: {
            "graphs": graphs,
            "call_s": [1.2 if after > before else 0.0001 for before, after in zip([0, *graphs], graphs, strict=False)],
            "guards": [guards(size) for size in sizes],
        }
        for name, (graphs, sizes) in asked.items()
    }
    recorded = [1, 2, 3, 4, 4, 5, 6]
    replayed = {
        "call_s": [[0.9, 0.003, 0.0002] if new else [0.0001] * 3 for new in (1, 1, 1, 1, 0, 1, 1)],
        "graphs": asked["automatic"][0],
        "recorded": recorded,
    }
    tokens = [64, 128, 96, 200, 200, 1, 500]
    return sample_of("regimes/new_shapes", 0, data={"tokens": tokens, "asked": data, "replayed": replayed})


def layer(variant: str) -> Sample:
    """The sweep of the Linear with its GELU: fused, it starts sooner and takes longer for each token."""
    extra = 3.0 if variant == "eager" else 1.0
    rate = 60 if variant == "eager" else 50
    return sample_of(f"regimes/layer_{variant}", lambda point: extra + int(point["tokens"]) / rate)


def bias(variant: str, tokens: int, kernels: Sequence[tuple[str, float]]) -> Sample:
    """A traced forward of the stack."""
    shapes = [[tokens, 1024], [1024, 4096]]
    operators = [("aten::op", shapes, [kernel]) for kernel in kernels]
    return sample_of(f"regimes/bias_{variant}_{tokens}", sum(us for _, us in kernels), operators)


def biases() -> list[Sample]:
    """Traces and times of the three forms of the stack."""
    found = []
    for tokens, us in ((FEW, 5.0), (MANY, 100.0)):
        down = ("nvjet_bias_TNN", us)
        found += [
            bias("eager", tokens, [("nvjet_bias_TNT", us), ("GeluCUDAKernelImpl", us / 3), down]),
            bias("compiled", tokens, [("nvjet_bias_TNT", us), ("triton_poi_fused_gelu_0", us / 2.5), down]),
            bias("written_out", tokens, [("nvjet_TNT", us), ("triton_poi_fused_add_gelu_0", us / 2.5), down]),
        ]
    code = {"compiled": {"calls": list(GRAPH), "kernels": {}}, "written_out": {"calls": list(UNFUSED), "kernels": {}}}
    times = {
        str(tokens): {"eager": around(us), "compiled": around(1.1 * us), "written_out": around(1.11 * us)}
        for tokens, us in ((FEW, 14.0), (1024, 37.0), (MANY, 250.0))
    }
    moved = [UNFUSED[0], "triton_poi_fused_addmm_gelu_0", UNFUSED[2]]
    unfused = {name: {"calls": moved, "kernels": {}} for name in code}
    data = {"code": {"bfloat16": code, "float32": unfused}, "us": times}
    return [*found, sample_of("regimes/biases", 0, data=data)]


def in_cache() -> Sample:
    """GELU right after its product."""
    sizes = (64, 256, 1024, 2048, 4096, 8192, 16384)
    rates = {tokens: (4.2e12 if tokens <= 2048 else 3.5e12) for tokens in sizes}
    data = {
        "l2_bytes": 60_000_000,
        "copy": {"bytes": 1 << 30, "us": around(250.0)},
        "op_us": {
            op: {
                str(tokens): {
                    "after": around(
                        1.3 + 1e6 * gelu_bytes(tokens) / rates[tokens] / (1.4 if op == "negation" else 1.0)
                    ),
                    "flushed": around(1.5 + 1e6 * gelu_bytes(tokens) / 3.5e12),
                }
                for tokens in sizes
            }
            for op in OPS
        },
        "step_us": {
            str(tokens): {
                "linear": around(4 + tokens / 85),
                "eager": around(6 + tokens / 60),
                "epilogue": around(4.2 + tokens / 75),
                "fused": around(5 + tokens / 70),
            }
            for tokens in sizes
        },
    }
    return sample_of("regimes/in_cache", 0, data=data)


def spills() -> Sample:
    """The kernel with several tiles."""
    found: dict[str, Any] = {}
    for tokens, tried in TRIED.items():
        found[str(tokens)] = {"linear": {"us": around(90.0)}, "eager": {"us": around(130.0)}}
        for sizes in tried:
            sums = sizes[0] * sizes[1] // (32 * sizes[3])
            spilled = 128 if sums > 200 else 0
            loop = {"instructions": 130 + 2 * spilled, "stores": spilled, "loads": spilled, "products": 4}
            found[str(tokens)][tile_name(sizes)] = {
                "registers": min(255, sums + 60),
                "spills": 4 * spilled,
                "shared_bytes": 147456,
                "programs": 1024,
                "us": around(400.0 if spilled else 110.0),
                "code": {
                    "kernel": loop,
                    "loop": loop,
                    "listing": [*["STL.64 [R1+0x8], R24"] * spilled, "HGMMA.64x256x16.F32.BF16 R24, gdesc[UR4]"],
                },
            }
    return sample_of("regimes/spills", 0, data=found)


def compiling_recordings() -> list[Sample]:
    """One for each experiment of the second page."""
    sweeps = [layer(variant) for variant in ("eager", "fused")]
    assert TOKENS[0] == 1
    return [modes(STACK), modes(GEGLU), new_shapes(), *sweeps, *biases(), in_cache(), spills()]
