"""What the chapter matmul_add measures: two operators, two sizes, cold and
warm, eager and compiled."""

from __future__ import annotations

from typing import Any

from snippets.lab.experiment import Experiment, Schedule
from snippets.matmul_add.experiments.probes import (
    first_gap,
    generated_code,
    long_trace,
)
from snippets.matmul_add.experiments.steps import (
    compiled,
    eager,
    item,
    matrix_bias,
    product_work,
    row_bias,
    row_bias_work,
    stacked,
    stacked_input,
    stacked_input_work,
    stacked_work,
)

SMALL, LARGE, STACK = 64, 4096, 8


SIZES = tuple(
    {"size": size} for size in (64, 128, 256, 512, 1024, 2048, 4096, 8192)
)


def _profiled(
    name: str, make: Any, size: int, work: Any = product_work, **more: Any
) -> Experiment:
    return Experiment(
        chapter="matmul_add",
        name=name,
        label="matmul_add",
        parameters={"size": size, **more.pop("extra", {})},
        make=make,
        work=work,
        **more,
    )


EXPERIMENTS = (
    *(
        _profiled(f"{name}_{size}_cold", make, size, first_steps=0, timed=False)
        for size in (SMALL, LARGE)
        for name, make in (("eager", eager), ("compiled", compiled))
    ),
    *(
        _profiled(f"{name}_{size}", make, size, group=f"warm_{size}")
        for size in (SMALL, LARGE)
        for name, make in (("eager", eager), ("compiled", compiled))
    ),
    _profiled(
        "unscheduled",
        eager,
        SMALL,
        first_steps=0,
        timed=False,
        schedule=Schedule(0, 0, 5),
    ),
    _profiled(
        "unscheduled_20",
        eager,
        SMALL,
        first_steps=0,
        timed=False,
        schedule=Schedule(0, 0, 20),
    ),
    _profiled(
        "stacked",
        stacked,
        SMALL,
        stacked_work,
        group="stacked",
        extra={"stack": STACK},
    ),
    _profiled(
        "stacked_input",
        stacked_input,
        SMALL,
        stacked_input_work,
        group="stacked",
        extra={"stack": STACK},
    ),
    *(
        _profiled(f"{name}_{size}", make, size, work, group=f"addmm_{size}")
        for size in (SMALL, LARGE)
        for name, make, work in (
            ("matrix_bias", matrix_bias, product_work),
            ("row_bias", row_bias, row_bias_work),
        )
    ),
    _profiled("item_4096", item, LARGE, timed=False),
    _profiled("sweep_eager", eager, SMALL, group="sweep", sweep=SIZES),
    _profiled("sweep_compiled", compiled, SMALL, group="sweep", sweep=SIZES),
    Experiment(
        chapter="matmul_add",
        name="generated_code",
        parameters={"size": LARGE},
        probe=generated_code,
    ),
    Experiment(
        chapter="matmul_add",
        name="first_gap",
        parameters={"size": SMALL, "repeats": 25},
        probe=first_gap,
    ),
    Experiment(
        chapter="matmul_add",
        name="long_trace",
        parameters={"size": SMALL, "steps": 20_000},
        probe=long_trace,
    ),
)
