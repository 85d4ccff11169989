"""Elementwise kernels in a row, each of which reads what the one before it wrote."""

from __future__ import annotations

from collections.abc import Sequence

from snippets.lab.diagnosis.amounts import count_text, duration_text
from snippets.lab.diagnosis.facts import Facts
from snippets.lab.diagnosis.fusing import avoidable_us, chains, is_elementwise
from snippets.lab.diagnosis.missing import no_gpu_work, unseen
from snippets.lab.diagnosis.peaks import find_peaks
from snippets.lab.diagnosis.rule import CannotTell, Finding, Rule
from snippets.lab.diagnosis.sources import TRACELENS
from snippets.lab.diagnosis.waste import Waste, findings, streams
from snippets.lab.trace.events import Step


def check(facts: Facts) -> Sequence[Finding] | CannotTell:
    """Chains of two or more, by shapes."""
    if unable := no_gpu_work(RULE, facts) or unseen(RULE, facts, is_elementwise, needs_shapes=True):
        return unable
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
    looks_for=(
        "Elementwise kernels of PyTorch directly after each other on a stream, where one has an input of the shape "
        "that the one before wrote: each writes to memory what the next reads back. Optimizers have a rule of their "
        "own."
    ),
    threshold="Two or more in a row; what fusing saves at most is at least 1 % of a step.",
    source=f"{TRACELENS} (kernel_fusion_analysis.py); chains and ceiling are this book's",
    advice=(
        "Compile the code around them (`torch.compile`), or use an operator or a kernel that does all of it at once "
        "(Liger and others have GeGLU, SwiGLU, RMSNorm)."
    ),
    check=check,
)
