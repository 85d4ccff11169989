"""What the home page measures: the MLP's eager forward at one token, next to `mlp/eager` with its 8,192."""

from __future__ import annotations

from snippets.lab.experiment import Experiment
from snippets.mlp.experiments.forwards import SHAPE, eager, forward_work

EXPERIMENTS = (
    Experiment(
        chapter="index",
        name="one_token",
        label="mlp_fwd",
        parameters=SHAPE | {"batch": 1, "seq": 1},
        make=eager,
        work=forward_work,
    ),
)
