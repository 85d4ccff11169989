"""A pipeline of stages."""

from __future__ import annotations

from snippets.lab.experiment import Experiment

EXPERIMENTS: tuple[Experiment, ...] = ()
