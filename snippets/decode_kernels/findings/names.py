"""Names that the findings of this chapter share: the variants of a step, the models, and their experiments."""

from __future__ import annotations

from snippets.decoder.findings.reading import BF16_BYTES, LARGE, SMALL, Shape

CHAPTER = "decode_kernels"
REDUCE_OVERHEAD, GPT_FAST, MAX_AUTOTUNE = "reduce_overhead", "gpt_fast", "max_autotune"
PLAIN, EARLY, ONE = "plain_kernels", "kernels", "one_kernel"
PEERS = {REDUCE_OVERHEAD: "reduce-overhead step", GPT_FAST: "gpt-fast step", MAX_AUTOTUNE: "max-autotune graph"}
OWN = {PLAIN: "five-kernel step", EARLY: "early-launch step", ONE: "one-kernel step"}
HEADINGS = PEERS | OWN
"""Variant -> its name on the page, in the order of the page."""
INT8 = "int8_"
"""The beginning of a variant's name if its weights are in int8."""
INT8_HEADINGS = {
    EARLY: "early-launch step, bf16",
    INT8 + EARLY: "early-launch step, int8",
    ONE: "one-kernel step, bf16",
    INT8 + ONE: "one-kernel step, int8",
}
MODELS = {"1.1 billion": ("1_1b", SMALL), "8 billion": ("8b", LARGE)}
"""Weights -> the end of an experiment's name, and the sizes."""
BATCHES = {1: "", 8: "_batch_8"}
"""Texts -> the end of an experiment's name."""
LAYER_PARTS = ("qkv", "attend", "out", "gate_up", "down")
"""The kernels of a layer, in their order."""
HEAD = "head"
PART_NAMES = {
    "qkv": "norm, queries, keys, values",
    "attend": "attention",
    "out": "output projection",
    "gate_up": "norm, gate, up",
    "down": "down projection",
    "head": "norm, output head",
}


def tokens_of(variant: str) -> str:
    """The experiment of a loop of tokens of the smaller model, for one text."""
    return f"{CHAPTER}/{variant}"


def steady_of(model: str, batch: int = 1) -> str:
    """The experiment of a model's variants, each alone for seconds."""
    return f"{CHAPTER}/steady_{MODELS[model][0]}{BATCHES[batch]}"


def parts_of(model: str, batch: int = 1) -> str:
    """The experiment of the parts of a model's step alone."""
    return f"{CHAPTER}/parts_{MODELS[model][0]}{BATCHES[batch]}"


def int8_of(model: str) -> str:
    """The experiment of a model's steps with weights in int8 and in bf16."""
    return f"{CHAPTER}/int8_{MODELS[model][0]}"


def errors_of(model: str) -> str:
    """The experiment of a model's long answers against float32."""
    return f"{CHAPTER}/errors_{MODELS[model][0]}"


def generate_of(model: str) -> str:
    """The experiment of a token of transformers' `generate` with a static cache."""
    return f"{CHAPTER}/generate_static_{MODELS[model][0]}"


def transformers_of(way: str) -> str:
    """The experiment of `generate` with this page's layers: a way of running it, compiled or not."""
    return f"{CHAPTER}/in_transformers{'_compiled' if way == 'static' else ''}"


def kernels_of(shape: Shape) -> int:
    """Kernels of a step of five kernels a layer and one for the head."""
    return len(LAYER_PARTS) * shape.layers + 1


def part_bytes(shape: Shape, batch: int, context: int) -> dict[str, int]:
    """Part -> the bytes of weights and cache that it reads in all layers, in bf16."""
    each = BF16_BYTES * shape.layers
    return {
        "qkv": each * shape.dim * (shape.dim + 2 * shape.kv_dim),
        "attend": batch * context * shape.cache_bytes,
        "out": each * shape.dim * shape.dim,
        "gate_up": 2 * each * shape.dim * shape.hidden,
        "down": each * shape.dim * shape.hidden,
        HEAD: BF16_BYTES * shape.embedding,
    }


def part_flops(shape: Shape, batch: int, context: int) -> dict[str, int]:
    """Part -> the FLOPs of its products and sums of values in all layers: two for each weight and text."""
    flops = {
        part: 2 * batch * count // BF16_BYTES
        for part, count in part_bytes(shape, batch, context).items()
        if part != "attend"
    }
    return flops | {"attend": 4 * batch * context * shape.layers * shape.dim}
