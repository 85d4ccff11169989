"""What launch overhead is and what removes it: experiments of the chapter
regimes."""

from __future__ import annotations

from snippets.lab.experiment import Experiment

LAUNCHES: tuple[Experiment, ...] = ()
