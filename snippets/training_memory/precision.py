"""Training steps in different precisions and with different optimizers: the chapter's first page."""

from __future__ import annotations

from snippets.lab.experiment import Experiment

PRECISION: tuple[Experiment, ...] = ()
