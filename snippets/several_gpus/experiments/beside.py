"""A matrix product beside a transfer."""

from __future__ import annotations

from snippets.lab.experiment import Experiment

EXPERIMENTS: tuple[Experiment, ...] = ()
