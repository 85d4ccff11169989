"""A sentence about steps that several threads annotate at the same time."""

from __future__ import annotations

from itertools import chain
from statistics import median

from kinetoscope.trace.annotations import Group, pattern
from kinetoscope.trace.events import Trace
from kinetoscope.trace.gpu_marks import with_gpu_annotations
from kinetoscope.trace.marks import WHOLE
from kinetoscope.trace.overlapping import find_overlap
from kinetoscope.trace.process_events import Part
from kinetoscope.trace.text import shortened, without_numbers
from kinetoscope.trace.units import format_value

_SHOWN = 3


def overlapping_text(trace: Trace) -> str:
    """Why a trace names no single step, and how long each thread's steps take; empty if it is for another reason."""
    if trace.steps_from != WHOLE or trace.processes:
        return ""
    part = Part("", trace.cpu_ops, trace.calls, trace.activities)
    groups = find_overlap(with_gpu_annotations(part, trace.gpu_annotations) or part).groups
    if not groups:
        return ""
    names = {without_numbers(group[0].name) for group in groups}
    shown = [_takes(list(chain.from_iterable(groups)))] if len(names) == 1 else list(map(_takes, groups[:_SHOWN]))
    more = len(groups) - _SHOWN if len(names) > 1 else 0
    listed = ", ".join([*shown, f"and those of {more:,} more"] if more > 0 else shown)
    return f"Steps of {len(groups):,} threads overlap, so the trace is not divided into steps: {listed}."


def _takes(group: Group) -> str:
    lasts = format_value(median(span.duration_us for span in group), "us")
    return f"{shortened(repr(pattern(group)), 60)} takes {lasts} on the CPU (median of {len(group):,})"
