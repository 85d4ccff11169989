"""What the chapter attention measures: one function, nine ways, forward,
trained, decoding, and as sequences grow."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from snippets.attention.experiments.growing import SWEPT, lengths
from snippets.attention.experiments.others import compiled_code, hub_flash
from snippets.attention.experiments.steps import (
    DECODE,
    SHAPE,
    decode,
    decode_work,
    forward,
    forward_work,
    training,
    training_work,
)
from snippets.lab.experiment import Experiment

if TYPE_CHECKING:
    from collections.abc import Sequence


def _variants(
    prefix: str,
    make: Any,
    work: Any,
    label: str,
    names: Sequence[str],
    parameters: Any,
) -> Any:
    """An experiment for each variant; experiments with one prefix are timed
    interleaved."""
    for name in names:
        yield Experiment(
            chapter="attention",
            name=prefix + name,
            label=label,
            group=prefix.strip("_") or "forward",
            parameters=parameters,
            make=functools.partial(make, variant=name),
            work=work,
        )


def _probed(
    name: str, probe: Any, time_limit_s: int = 180, **parameters: int
) -> Experiment:
    return Experiment(
        chapter="attention",
        name=name,
        parameters=parameters,
        probe=probe,
        time_limit_s=time_limit_s,
    )


FORWARD = (
    "naive",
    "in_place",
    "math",
    "efficient",
    "flash",
    "cudnn",
    "auto",
    "compiled",
    "flex",
)
DECODING = tuple(name for name in SWEPT if name != "in_place")
"""Without a mask there is nothing to mask in place."""

EXPERIMENTS = (
    *_variants("", forward, forward_work, "attn_fwd", FORWARD, SHAPE),
    *_variants(
        "training_", training, training_work, "attn_train", SWEPT, SHAPE
    ),
    *_variants("decode_", decode, decode_work, "attn_decode", DECODING, DECODE),
    *(
        _probed(
            f"lengths_{head_dim}",
            lengths,
            300,
            batch=8,
            heads=16,
            head_dim=head_dim,
            longest=16384,
        )
        for head_dim in (64, 128)
    ),
    _probed("hub_flash", hub_flash, **SHAPE),
    _probed("compiled_code", compiled_code, **SHAPE),
)
