"""Faults of several GPUs, before and after."""

from __future__ import annotations

from snippets.lab.experiment import Experiment

EXPERIMENTS: tuple[Experiment, ...] = ()
