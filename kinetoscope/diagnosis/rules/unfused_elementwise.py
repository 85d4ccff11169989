"""Successive elementwise kernels, each of which reads what its predecessor wrote."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from kinetoscope.diagnosis.amounts import count_text, duration_text
from kinetoscope.diagnosis.facts import Facts
from kinetoscope.diagnosis.fusing import avoidable_us, chains, is_elementwise
from kinetoscope.diagnosis.missing import no_gpu_work, unseen
from kinetoscope.diagnosis.peaks import find_peaks
from kinetoscope.diagnosis.rule import CannotTell, Finding, Rule
from kinetoscope.diagnosis.sources import TRACELENS
from kinetoscope.diagnosis.waste import Waste, findings, streams
from kinetoscope.trace.events import Step


def find(facts: Facts) -> Sequence[Finding] | CannotTell:
    """Find chains of two or more kernels by their shapes."""
    peaks = find_peaks(facts.trace.device)

    def look(step: Step) -> list[Waste]:
        found = (chain for stream in streams(step) for chain in chains(stream))
        return [Waste(tuple(chain), avoidable_us(chain, peaks)) for chain in found]

    return findings(RULE, facts, look, _describe)


def _describe(waste: Sequence[Waste], time_us: float) -> str:
    kernels = count_text(sum(len(found.activities) for found in waste), "elementwise kernel")
    chains_text = count_text(len(waste), "chain")
    return f"{kernels} in {chains_text} that one kernel each could replace: {duration_text(time_us)} per step"


RULE = Rule(
    name="unfused-elementwise",
    title="Elementwise kernels are not fused",
    looks_for="Elementwise kernels of PyTorch directly after each other on a stream, where one has an input of the "
    "shape that the one before wrote: each writes to memory what the next reads back. Optimizers have a rule of their "
    "own.",
    threshold="Two or more in a row; what fusing saves at most is at least 1 % of a step.",
    source=f"{TRACELENS} (kernel_fusion_analysis.py); chains and ceiling are this book's",
    advice="Compile the code around them (`torch.compile`), or use an operator or a kernel that does all of it at "
    "once (Liger and others have GeGLU, SwiGLU, RMSNorm).",
    find=find,
    needs=(no_gpu_work, partial(unseen, concerns=is_elementwise, needs_shapes=True)),
    confidence="medium",
    mistaken="The intermediate result is needed later, for example by the backward pass, and must be written anyway.",
)
