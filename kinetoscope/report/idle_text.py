"""Sentences about the GPU's idle time: its main cause, and the pauses between steps."""

from __future__ import annotations

from kinetoscope.diagnosis.idle import Idle
from kinetoscope.html import Html, note
from kinetoscope.report.diagnosed import DiagnosedTrace
from kinetoscope.report.waiting import gpu_busy_us, share
from kinetoscope.trace.text import shortened, without_address
from kinetoscope.trace.units import format_value

MOSTLY_IDLE = 0.25
"""Below this share of GPU work in a step, having found no fault explains nothing."""
PARTLY_IDLE = 0.6
"""Below this share, a cause is named that no rule weighs against what the profiler itself costs."""
_WEIGHED = ("launching", "Python")
MIN_PAUSES = 0.25
"""From this share of the time on, pauses between the steps are named, if they are most of the idle time."""
CAUSE_NAMES = {"Python": "Python between the operators", "nothing recorded": "time in which the trace shows nothing"}
_MOST, _HARDLY = 0.5, 0.1
_OUTLIER = 3.0
_SEVERAL = 3
"""Of so many steps, a single one with most of the idle time is an exception."""


def unexplained_idle(diagnosed: DiagnosedTrace) -> str:
    """The main place or cause of idle time, for a trace in which no rule fired; empty if the GPU works enough."""
    if pauses := idle_between_steps(diagnosed):
        return f"No rule found why: {pauses[:1].lower()}{pauses[1:]}"
    idle, waits = diagnosed.idle, diagnosed.waits
    busy_share = share(gpu_busy_us(waits), waits)
    if idle is None or busy_share >= PARTLY_IDLE:
        return ""
    cause, us = idle.main_cause
    if not us or (cause in _WEIGHED and busy_share >= MOSTLY_IDLE):
        return ""
    part = us / idle.total_us
    amount = "most" if part > _MOST else f"{100 * part:.0f} %"
    text = f"No rule found why: {amount} of the GPU's idle time is {CAUSE_NAMES.get(cause, cause)}"
    steps, (name, in_step_us) = len(diagnosed.facts.steps), idle.longest_step
    if steps >= _SEVERAL and in_step_us > _MOST * idle.total_us:
        text += f"; {100 * in_step_us / idle.total_us:.0f} % of it is in one of {steps:,} steps, {shortened(name, 80)}"
    return f"{text}."


def idle_between_steps(diagnosed: DiagnosedTrace) -> str:
    """Where the GPU is idle, if that is between the steps for most of its idle time and much of all time; else
    empty."""
    idle, waits = diagnosed.idle, diagnosed.waits
    if idle is None or idle.between_steps_us <= _MOST * idle.total_us:
        return ""
    if idle.between_steps_us < MIN_PAUSES * waits.step_us * len(diagnosed.facts.steps):
        return ""
    part = f"{100 * idle.between_steps_us / idle.total_us:.0f} %"
    return f"Most of the GPU's idle time ({part}) is between the steps, {_during(idle)}."


def idle_in_one_step(diagnosed: DiagnosedTrace) -> str:
    """Which step has most of the GPU's idle time, if a single one has, and that is much of all time; else
    empty."""
    idle, waits, steps = diagnosed.idle, diagnosed.waits, len(diagnosed.facts.steps)
    if idle is None or steps < 2:
        return ""
    name, us = idle.longest_step
    is_alone = us > max(_MOST * idle.total_us, _OUTLIER * idle.second_longest_us)
    if not is_alone or us < MIN_PAUSES * waits.step_us * steps:
        return ""
    cause, cause_us = idle.main_cause
    if cause == "launching":  # under the profiler, its time varies from step to step
        return ""
    why = f"; most of it is {CAUSE_NAMES.get(cause, cause)}" if cause_us > _MOST * idle.total_us else ""
    part = f"{100 * us / idle.total_us:.0f} %"
    return f"Most of the GPU's idle time ({part}) is in one of {steps:,} steps, {shortened(name, 80)}{why}."


def _during(idle: Idle) -> str:
    """What the CPU does between the steps, as a clause."""
    name, us = idle.longest_between_steps
    shown = shortened(without_address(name), 80)
    if name and us > _MOST * idle.between_steps_us:
        return f"most of it during {shown}"
    if name and idle.recorded_us > _MOST * idle.between_steps_us:
        return f"while the CPU does other work; {shown} takes the longest"
    is_empty = not name or idle.recorded_us <= _HARDLY * idle.between_steps_us
    return f"where the trace shows {'nothing' if is_empty else 'hardly anything'}"


def idle_between_steps_html(diagnosed: DiagnosedTrace) -> Html:
    """A note on the idle time between the steps; empty if it is hardly a part of all idle time."""
    idle, steps = diagnosed.idle, len(diagnosed.facts.steps)
    if idle is None or idle.between_steps_us <= _HARDLY * idle.total_us:
        return Html("")
    part = f"{100 * idle.between_steps_us / idle.total_us:.0f} %"
    lasts = format_value(idle.between_steps_us / steps, "us")
    return note(f"Between the steps the GPU is idle for {lasts} per step, {part} of its idle time, {_during(idle)}.")
