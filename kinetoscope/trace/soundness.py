"""What a file lost, as sentences, and whether times per step can be judged."""

from __future__ import annotations

from collections.abc import Iterator

from kinetoscope.trace.events import Trace
from kinetoscope.trace.missing_gpu import Dropped, dropped_kernels
from kinetoscope.trace.units import format_value

MIN_EARLY_US, MIN_EARLY = 10.0, 0.05
"""The clocks differ if more than this share of the activities starts earlier than this before their launch."""
DROPPED = "have no kernel in the trace"
"""A part of the sentence about missing kernels, which a digest keeps."""


def damage_texts(trace: Trace, dropped: Dropped | None = None) -> Iterator[str]:
    """A sentence for each way in which the file is not whole; `dropped`: its `dropped_kernels`, if they are known."""
    if trace.is_cut:
        yield "the file is cut off or damaged; the numbers are of the events before that"
    for damage in trace.damaged:
        yield damage.text
    dropped = dropped or dropped_kernels(trace)
    if dropped is not None and dropped.is_too_much:
        yield (
            f"{dropped.without_kernel:,} of {dropped.launches:,} launches ({dropped.share:.0%}) {DROPPED}: the GPU's "
            "busy time and the counts of kernels are too low; the command doctor names the cure"
        )


def is_whole(trace: Trace) -> bool:
    """Whether times per step can be judged: no event that they depend on is damaged, cut off or mostly dropped."""
    dropped = dropped_kernels(trace)
    is_dropped = dropped is not None and dropped.is_too_much
    return not (trace.is_cut or is_dropped or any(damage.work for damage in trace.damaged))


def clock_text(trace: Trace) -> str:
    """That many activities start clearly before their launch, which the clocks of CPU and GPU cannot both tell; else
    empty."""
    delays = [delay for activity in trace.activities if (delay := activity.launch_delay_us) is not None]
    early = [-delay for delay in delays if delay < -MIN_EARLY_US]
    if len(early) <= MIN_EARLY * len(delays):
        return ""
    return (
        f"{len(early):,} of {len(delays):,} activities start before their launch, by up to "
        f"{format_value(max(early), 'us')}: the clocks of CPU and GPU differ, so times between the two are wrong; "
        "trust durations only"
    )
