"""What the chapter mlp measures: one GeGLU forward pass in three variants, and
the cost of a new shape for each."""

from __future__ import annotations

from typing import Any

from snippets.lab.experiment import Experiment
from snippets.mlp.experiments.forwards import (
    SHAPE,
    compiled,
    eager,
    forward_work,
    liger,
)
from snippets.mlp.experiments.idling import after_idle
from snippets.mlp.experiments.recompiling import new_shapes
from snippets.mlp.experiments.tuning import tuned

SMALL_TO_LARGE = (
    {"batch": 1, "seq": 1},
    *({"batch": batch} for batch in (1, 4, 16, 64, 128)),
)


def _profiled(
    name: str, make: Any, group: str = "forward", **more: Any
) -> Experiment:
    shape = SHAPE | more.pop("shape", {})
    return Experiment(
        chapter="mlp",
        name=name,
        label="mlp_fwd",
        parameters=shape,
        make=make,
        work=forward_work,
        group=group,
        **more,
    )


EXPERIMENTS = (
    _profiled("eager", eager),
    _profiled("compiled", compiled),
    _profiled("liger", liger),
    *(
        _profiled(f"{name}_4096", make, "hidden_4096", shape={"hidden": 4096})
        for name, make in (
            ("eager", eager),
            ("compiled", compiled),
            ("liger", liger),
        )
    ),
    _profiled("sweep_eager", eager, "sweep", sweep=SMALL_TO_LARGE),
    _profiled("sweep_compiled", compiled, "sweep", sweep=SMALL_TO_LARGE),
    _profiled("sweep_liger", liger, "sweep", sweep=SMALL_TO_LARGE),
    Experiment(
        chapter="mlp",
        name="new_shapes",
        parameters=SHAPE,
        probe=new_shapes,
        time_limit_s=180,
    ),
    Experiment(
        chapter="mlp",
        name="tuned",
        parameters={**SHAPE, "times": 12},
        probe=tuned,
        time_limit_s=300,
    ),
    Experiment(
        chapter="mlp",
        name="after_idle",
        parameters={**SHAPE, "rounds": 12},
        probe=after_idle,
    ),
)
