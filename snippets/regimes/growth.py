"""Where time goes as work grows: experiments of the chapter regimes."""

from __future__ import annotations

from snippets.lab.experiment import Experiment

GROWTH: tuple[Experiment, ...] = ()
