"""What the chapter regimes measures: what limits a step as it grows, and what
removes launch overhead."""

from __future__ import annotations

from snippets.lab.experiment import Experiment
from snippets.regimes.experiments.compiling import COMPILING
from snippets.regimes.experiments.fusing import FUSING
from snippets.regimes.experiments.growth import GROWTH
from snippets.regimes.experiments.launches import LAUNCHES
from snippets.regimes.experiments.spilling import SPILLING

EXPERIMENTS: tuple[Experiment, ...] = (
    *GROWTH,
    *LAUNCHES,
    *COMPILING,
    *FUSING,
    *SPILLING,
)
