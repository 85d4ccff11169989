"""Sharded weights: FSDP2."""

from __future__ import annotations

from snippets.lab.experiment import Experiment

EXPERIMENTS: tuple[Experiment, ...] = ()
