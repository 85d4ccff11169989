"""The GPU waits for launches."""

from __future__ import annotations

from collections.abc import Sequence

from snippets.lab.diagnosis.amounts import count_text, duration_text, share_text
from snippets.lab.diagnosis.facts import Facts, spare_us
from snippets.lab.diagnosis.gaps import LONG_US
from snippets.lab.diagnosis.rule import CannotTell, Finding, Rule
from snippets.lab.diagnosis.sources import CPU_AND_GPU, TRACELENS
from snippets.lab.trace.events import CpuOp, CudaCall

MIN_SHARE = 0.15


def check(facts: Facts) -> Sequence[Finding] | CannotTell:
    """Gaps of the GPU in which the CPU is in operators, launches or Python between them."""
    if not facts.has_gpu or not facts.has_cpu:
        return CannotTell(RULE, "the trace lacks CPU or GPU events", CPU_AND_GPU)
    short = [gap for gap in facts.gaps if gap.duration_us < LONG_US]
    launching = [gap for gap in short if gap.cause == "launching"]
    python = [gap for gap in short if gap.cause == "Python"]
    launching_us, python_us = sum(gap.duration_us for gap in launching), sum(gap.duration_us for gap in python)
    ceiling_us = round(min(launching_us + python_us, spare_us(facts.step)), 3)
    if ceiling_us < MIN_SHARE * facts.step_us:
        return []
    gaps = [*launching, *python]
    blames = list(dict.fromkeys(gap.blame for gap in sorted(gaps, key=lambda gap: -gap.duration_us) if gap.blame))
    site = facts.sites([blame for blame in blames[:1] if isinstance(blame, CpuOp | CudaCall)])
    title = (
        f"The GPU waits {duration_text(launching_us + python_us)} of {duration_text(facts.step_us)} for launches "
        f"({share_text(launching_us + python_us, facts.step_us)}): {duration_text(launching_us)} in operators and "
        f"calls, {duration_text(python_us)} in Python between them, in {count_text(len(gaps), 'gap')}"
    )
    where = site[0].text if site else ""
    evidence = facts.evidence(blames)
    return [Finding(RULE, title, where, evidence, round(launching_us + python_us, 3), ceiling_us)]


RULE = Rule(
    name="launch-bound",
    title="The GPU waits for launches",
    looks_for="Gaps in which no GPU works while the CPU runs operators, launches or Python between them: the CPU needs "
    "longer to launch a kernel than the GPU to run the one before. Gaps with another cause, and long ones, which "
    "slow-cpu-code reports, do not count.",
    threshold=f"from {MIN_SHARE:.0%} of the median step on; not if a step's own GPU work is as long as the step",
    source=f"{TRACELENS} (GPU idle above 15 %)",
    advice="Launch less often: larger batches, torch.compile (mode='reduce-overhead' replays CUDA graphs), fused "
    "operators. Profiling itself slows down launching: measure the step without it, too.",
    check=check,
)
