"""What the chapter regimes measures: what limits a step as it grows, and what
removes launch overhead."""

from __future__ import annotations

from snippets.lab.experiment import Experiment
from snippets.regimes.compiling import COMPILING
from snippets.regimes.fusing import FUSING
from snippets.regimes.growth import GROWTH
from snippets.regimes.launches import LAUNCHES
from snippets.regimes.spilling import SPILLING

EXPERIMENTS: tuple[Experiment, ...] = (
    *GROWTH,
    *LAUNCHES,
    *COMPILING,
    *FUSING,
    *SPILLING,
)
