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
    looks_for="Elementwise kernels of PyTorch follow each other directly on a stream, and a kernel has an input of "
    "the shape that the kernel before wrote. So each kernel writes a tensor to memory that the next kernel reads. "
    "Optimizers have a separate rule.",
    threshold="Two or more such kernels follow each other, and fusing could save at least 1 % of a step.",
    source=f"{TRACELENS} (kernel_fusion_analysis.py); chains and ceiling are this book's",
    advice="Compile the code around these kernels (`torch.compile`). Or use one operator or kernel for all of their "
    "work (for example Liger's GeGLU, SwiGLU or RMSNorm).",
    find=find,
    needs=(no_gpu_work, partial(unseen, concerns=is_elementwise, needs_shapes=True)),
    confidence="medium",
    mistaken="The program needs the intermediate result later, for example for the backward pass, and must write it.",
)
