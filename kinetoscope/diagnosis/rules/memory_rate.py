"""A token that takes much longer than reading its weights and its cache."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kinetoscope.diagnosis.amounts import duration_text, share_text
from kinetoscope.diagnosis.facts import MIN_SHARE, SLOWDOWN, Facts
from kinetoscope.diagnosis.missing import unseen
from kinetoscope.diagnosis.peaks import Peaks, find_peaks
from kinetoscope.diagnosis.products import is_product
from kinetoscope.diagnosis.rule import CannotTell, Finding, Measured, Rule
from kinetoscope.diagnosis.sources import MEMORY_RATE
from kinetoscope.diagnosis.token_work import cache_bytes, product_works, prompt_weight_bytes, reads, reads_known_bytes
from kinetoscope.trace.events import Step
from kinetoscope.trace.units import format_value

MAX_TIMES_READING = 1.5
MIN_BUSY = 0.5 / SLOWDOWN
"""Half of the step, where the profiler is taken to lengthen launching by `SLOWDOWN`."""
MIN_KNOWN = 0.9
WEIGHTS, READ = "weights, as the prompt's products read them,", "weights and cache"


def find(facts: Facts) -> Sequence[Finding] | CannotTell:
    """Compare the GPU's time of a token with its bytes at the rate of the datasheet."""
    steps = facts.token_steps
    if not facts.is_token_loop or not steps:
        return []
    busy = math.fsum(facts.busy_us(step) for step in steps) / len(steps)
    if busy < MIN_BUSY * facts.step_us:
        return []
    peaks = find_peaks(facts.trace.device)
    if peaks is None:
        return CannotTell(RULE, f"the peaks of {facts.trace.device or 'the device'} are not known here", "")
    of, moved = READ, sum(_read_bytes(step, peaks) for step in steps) / len(steps)
    if unable := _unknown(facts):
        of, moved = WEIGHTS, prompt_weight_bytes(facts)
        if not moved:
            return unable
    least_us = peaks.memory_us(moved)
    saving_us = round(busy - least_us, 3)
    if not moved or busy <= MAX_TIMES_READING * least_us or saving_us < MIN_SHARE * facts.long_run_us:
        return []
    rate = format_value(peaks.bandwidth_gb_per_s * 1e9, "bytes/s")
    title = (
        f"{format_value(moved, 'bytes')} of {of} take {duration_text(least_us)} at {rate}; the GPU works "
        f"{duration_text(busy)} per token ({share_text(least_us, busy)} of that rate)"
    )
    longest = max(facts.step.activities, key=lambda activity: activity.duration_us)
    evidence = facts.evidence(facts.step.activities)
    measured = (Measured("read per token", moved, "bytes"), Measured("reading at the peak rate", least_us, "us"))
    return [Finding(RULE, title, facts.place(longest), evidence, round(busy, 3), saving_us, measured=measured)]


def _unknown(facts: Facts) -> CannotTell | None:
    """Why the bytes that a token reads are unknown; None if they are known."""
    if unable := unseen(RULE, facts, is_product, needs_shapes=True):
        return unable
    reading = [(a, reads_known_bytes(a)) for step in facts.token_steps for a in step.activities if reads(a)]
    total_us = math.fsum(activity.duration_us for activity, _ in reading)
    known_us = math.fsum(activity.duration_us for activity, is_known in reading if is_known)
    if total_us and known_us >= MIN_KNOWN * total_us:
        return None
    share = share_text(total_us - known_us, total_us)
    reason = f"{share} of the time of products and attention is in operators whose bytes are not known here"
    return CannotTell(RULE, reason, "")


def _read_bytes(step: Step, peaks: Peaks) -> int:
    """Bytes of the products that memory bounds, and of keys and values; 0 if most products are bound by their FLOPs."""
    bound, other = 0, 0
    for _, work in product_works(step):
        if (peaks.product_us(work.flops, work.dtype) or 0.0) < peaks.memory_us(work.bytes):
            bound += work.bytes
        else:
            other += work.bytes
    return bound + cache_bytes(step) if bound > other else 0


RULE = Rule(
    name="memory-rate",
    title="A token is far from the memory's rate",
    looks_for="In a loop that produces one token per step, the rule compares the GPU's time with the time "
    "that reading takes. The bytes to read are the keys and values for attention, and the factors of matrix products "
    "with few rows, mostly weights. The rate is the datasheet's rate of the GPU's memory. If a CUDA graph replays the "
    "tokens, the rule takes the weights from the prompt's operators.",
    threshold=f"The GPU works more than {MAX_TIMES_READING} times as long as reading takes, and at least "
    f"{MIN_BUSY:.0%} of the step. If the GPU works less, reduce launches first.",
    source=MEMORY_RATE,
    advice="Fuse the kernels between products (torch.compile; 'max-autotune' also fuses conversions of weights), "
    "join products that read the same input (q, k and v; gate and up), and let attention split the keys. Then read "
    "fewer bytes: use weights in fp8 or int8, or more sequences for the same weights.",
    find=find,
    confidence="low",
    mistaken="The GPU has other work, such as sampling or a second model, or its clocks are lowered on purpose.",
)
