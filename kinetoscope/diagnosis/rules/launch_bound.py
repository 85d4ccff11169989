"""The GPU waits for launches."""

from __future__ import annotations

from collections.abc import Sequence

from kinetoscope.diagnosis.amounts import count_text, duration_text, share_text
from kinetoscope.diagnosis.facts import SLOWDOWN, Facts
from kinetoscope.diagnosis.gaps import LONG_US
from kinetoscope.diagnosis.missing import no_gpu_work, no_operators
from kinetoscope.diagnosis.rule import CannotTell, Finding, Measured, Rule
from kinetoscope.diagnosis.sources import TRACELENS
from kinetoscope.trace.events import CpuOp, CudaCall
from kinetoscope.trace.queries import count_launches

MIN_SHARE = 0.15
MIN_WAITING = 1 - (1 - MIN_SHARE) / SLOWDOWN
"""If the GPU waits less than this, then launching faster by `SLOWDOWN` leaves it waiting less than `MIN_SHARE`."""
PER_TOKEN = (
    "Measure a token without the profiler first: it lengthens launching 1.5 to 7 times, and this ceiling with it. Then "
    "replay each token as one CUDA graph: a cache of fixed size that is written in place, and torch.compile(mode="
    "'reduce-overhead'); in transformers, cache_implementation='static' does both. A larger batch shares the launches."
)


def find(facts: Facts) -> Sequence[Finding] | CannotTell:
    """Gaps of the GPU while the CPU is in operators, in launches or in Python between them."""
    waits = [gap for gap in facts.inner_gaps if gap.cause in ("launching", "Python")]
    short = [gap for gap in waits if gap.duration_us < LONG_US]
    launching = [gap for gap in short if gap.cause == "launching"]
    python = [gap for gap in short if gap.cause == "Python"]
    launching_us, python_us = sum(gap.duration_us for gap in launching), sum(gap.duration_us for gap in python)
    saving_us = round(min(sum(gap.working_us for gap in short), facts.spare_us(facts.step)), 3)
    waiting_us = min(sum(gap.duration_us for gap in waits), facts.spare_us(facts.step))
    if saving_us < MIN_SHARE * facts.median_us or waiting_us < MIN_WAITING * facts.median_us:
        return []
    gaps = [*launching, *python]
    blames = list(dict.fromkeys(gap.blame for gap in sorted(gaps, key=lambda gap: -gap.duration_us) if gap.blame))
    site = facts.sites([blame for blame in blames[:1] if isinstance(blame, CpuOp | CudaCall)])
    title = (
        f"The GPU waits {duration_text(launching_us + python_us)} of {duration_text(facts.median_us)} for launches "
        f"({share_text(launching_us + python_us, facts.median_us)}): {duration_text(launching_us)} in operators and "
        f"calls, {duration_text(python_us)} in Python between them, in {count_text(len(gaps), 'gap')}"
    )
    if facts.is_token_loop:
        title += f"; a token needs {count_text(count_launches(facts.step), 'launch', 'launches')}"
    where = site[0].text if site else ""
    advice = PER_TOKEN if facts.is_token_loop else ""
    waited_us = facts.per_step_us(launching_us + python_us)
    saving_us = facts.per_step_us(saving_us)
    measured = (
        Measured("gaps in the median step", len(gaps), "gaps"),
        Measured("gaps in operators and calls", launching_us, "us"),
        Measured("gaps in Python", python_us, "us"),
        Measured("launches of the median step", count_launches(facts.step), "launches"),
    )
    return [Finding(RULE, title, where, facts.evidence(blames), waited_us, saving_us, advice, measured=measured)]


RULE = Rule(
    name="launch-bound",
    title="The GPU waits for launches",
    looks_for="No GPU works in a gap while the CPU runs operators, launches, or Python between launches. The CPU "
    "takes longer to launch a kernel than the GPU takes to run the kernel before. Some gaps don't count: gaps with "
    "another cause, long gaps (see slow-cpu-code), and the time before the first GPU work and after the last GPU "
    "work.",
    threshold=f"The gaps take at least {MIN_SHARE:.0%} of the median step, and all waits for the CPU take at least "
    f"{MIN_WAITING:.1%}, because the rule assumes that the profiler makes launches {SLOWDOWN:.0f} times as long. A "
    "step doesn't count if its GPU work is as long as the step.",
    source=f"{TRACELENS} (cpu_idle_analysis.py: GPU idle above 15 %); the profiler's part is measured in this book's "
    "recordings",
    advice="First measure the step without the profiler, because the profiler makes launches, and this ceiling, 1.5 "
    "to 7 times as long. Then launch fewer kernels: use larger batches, torch.compile (mode='reduce-overhead' "
    "replays CUDA graphs) or fused operators.",
    find=find,
    needs=(no_gpu_work, no_operators),
    confidence="medium",
    mistaken="The profiler makes launches 1.5 to 7 times as long. Without the profiler, the CPU may launch fast "
    "enough.",
)
