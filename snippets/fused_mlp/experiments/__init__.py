"""What the chapter fused_mlp measures: hand-written kernels against every
alternative that a user could pick."""

from __future__ import annotations

import functools
from typing import Any

from snippets.fused_mlp.experiments.forwards import TRAINING, forward, training
from snippets.fused_mlp.experiments.halves import (
    gate_up,
    linear_activation,
    pointwise,
)
from snippets.fused_mlp.experiments.launching import enqueued, launches, steps
from snippets.fused_mlp.experiments.peers import quack, quack_shapes
from snippets.fused_mlp.experiments.portability import (
    activation_errors,
    ampere_code,
    architectures,
    few_tokens,
)
from snippets.fused_mlp.experiments.probes import (
    chosen,
    generated,
    kept_bytes,
    new_shapes,
    resources,
)
from snippets.fused_mlp.experiments.subjects import (
    SHAPES,
    forward_work,
    gate_up_work,
    linear_work,
    pointwise_work,
    training_work,
)
from snippets.lab.experiment import Experiment

SERIES = {"tokens": 8192, "dim": 768, "hidden": 3072}
"""The shape of the series' MLP: 64 sequences of 128 tokens."""
FLOAT16_SHAPES = SHAPES[:4]


def _variants(
    prefix: str,
    make: Any,
    work: Any,
    names: tuple[str, ...],
    parameters: Any,
    **more: Any,
) -> Any:
    """An experiment for each variant; experiments with one prefix are timed
    interleaved."""
    group = prefix.strip("_") or "forward"
    for name in names:
        yield Experiment(
            chapter="fused_mlp",
            name=prefix + name,
            label=f"fused_mlp_{group}",
            group=group,
            parameters=parameters,
            make=functools.partial(make, variant=name),
            work=work,
            **more,
        )


POINTWISE = {"tokens": 8192, "hidden": 3072}
SMALL, LARGE = (
    {"tokens": tokens, "dim": 1024, "outputs": 4096} for tokens in (64, 8192)
)
LINEAR = ("eager", "compiled", "addmm", "fused")
GATE_UP = ("bare", "eager", "stacked", "portable", "fused")
PEERS = (
    "eager",
    "compiled",
    "max_autotune",
    "reduce_overhead",
    "liger",
    "fused",
    "fused_compiled",
    "fused_reduce_overhead",
    "portable",
)
IN_TABLE = {
    "bfloat16": (
        ("eager", "compiled", "max_autotune", "liger", "fused", "portable"),
        SHAPES,
    ),
    "float16": (("eager", "compiled", "liger", "fused"), FLOAT16_SHAPES),
}
"""Variants and shapes of each type; max-autotune takes the longest to build, so
float16 does without."""


def _table(dtype: str) -> Any:
    names, shapes = IN_TABLE[dtype]
    sweep = tuple(
        {"tokens": tokens, "dim": dim, "hidden": hidden}
        for tokens, dim, hidden in shapes
    )
    parameters = {**SERIES, "dtype": dtype}
    return _variants(
        f"{dtype}_",
        forward,
        forward_work,
        names,
        parameters,
        sweep=sweep,
        steady_sweep=True,
        time_limit_s=90,
    )


EXPERIMENTS = (
    *_variants(
        "pointwise_",
        pointwise,
        pointwise_work,
        ("eager", "compiled", "liger", "fused", "copy"),
        POINTWISE,
    ),
    *_variants("linear_64_", linear_activation, linear_work, LINEAR, SMALL),
    *_variants("linear_8192_", linear_activation, linear_work, LINEAR, LARGE),
    *_variants("gate_up_", gate_up, gate_up_work, GATE_UP, SERIES),
    *_variants("", forward, forward_work, (*PEERS, "kernelized"), SERIES),
    *_variants("training_", training, training_work, TRAINING, SERIES),
    *_table("bfloat16"),
    *_table("float16"),
    *(
        Experiment(
            chapter="fused_mlp",
            name=probe.__name__,
            parameters=SERIES,
            probe=probe,
            time_limit_s=180,
        )
        for probe in (
            chosen,
            resources,
            generated,
            quack,
            steps,
            launches,
            enqueued,
            new_shapes,
            few_tokens,
            architectures,
            ampere_code,
            activation_errors,
            kept_bytes,
        )
    ),
    Experiment(
        chapter="fused_mlp",
        name="quack_shapes",
        probe=quack_shapes,
        time_limit_s=240,
    ),
)
