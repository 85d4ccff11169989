"""The first screen: the time of a step, the GPU's share of it, and the largest cost."""

from __future__ import annotations

from collections import Counter

from kinetoscope.diagnosis.rule import Finding
from kinetoscope.html import Html
from kinetoscope.report.cpu_time import dominant
from kinetoscope.report.diagnosed import DiagnosedTrace
from kinetoscope.report.drift import drift_text
from kinetoscope.report.gpus import busy_tile, percent, work_clause
from kinetoscope.report.idle_text import idle_between_steps, idle_in_one_step, unexplained_idle
from kinetoscope.report.memory import nearly_full
from kinetoscope.report.memory_growth import memory_growth_text
from kinetoscope.trace.kernel_names import decode_kernel_name
from kinetoscope.trace.marks import GRAPH_REPLAYS, ITERATIONS, TOKENS
from kinetoscope.trace.missing_gpu import Dropped, unread_work
from kinetoscope.trace.queries import durations_sum_us
from kinetoscope.trace.steps import BETWEEN
from kinetoscope.trace.text import shortened
from kinetoscope.trace.tokens import sequences
from kinetoscope.trace.units import format_value

MIN_OUTSIDE = 0.05
"""Share of the GPU's time in no step from which the headline tells it."""
SPAN = "the time from the first step until its work is done"
"""The time of which the GPU's share is told if that is clearly longer than the steps: with pauses or later work."""
WHOLE = "the whole trace"
"""`Trace.steps_from` of a trace in which nothing marks steps."""


def headline(diagnosed: DiagnosedTrace) -> str:
    """The time of a step, whether it grows, whether kernels are missing, and the largest cost, in plain text; and
    whether a GPU's memory grows or is nearly full."""
    lost = _lost(diagnosed)
    if lost and not diagnosed.diagnosis.findings:
        return f"{_step(diagnosed)} {lost} Record the trace again."
    drift = "" if lost else drift_text(diagnosed.facts)
    memory = memory_growth_text(diagnosed.facts), nearly_full(diagnosed.memory)
    parts = _step(diagnosed), drift, lost, _cost(diagnosed), *memory
    return " ".join(filter(None, parts))


def _lost(diagnosed: DiagnosedTrace) -> str:
    """How many kernels are missing, if so many that the GPU's share of a step is wrong; else empty."""
    dropped = Dropped(diagnosed.summary.launches, diagnosed.summary.launches_without_kernel)
    if not dropped.is_too_much:
        return ""
    return f"The GPU works more than that: {percent(dropped.share)} of the launches have no kernel in the trace."


def _step(diagnosed: DiagnosedTrace) -> str:
    waits = diagnosed.waits
    is_whole = diagnosed.trace.steps_from == WHOLE
    name = "The whole trace" if is_whole else _name(diagnosed)
    kinds = _kinds(diagnosed)
    takes = kinds or f"{name} takes {format_value(diagnosed.step_us, 'us')}"
    if unread := unread_work(diagnosed.trace):
        return f"{takes}; {unread}."
    if not diagnosed.has_gpu:
        return f"{takes}; it shows no work on a GPU." if is_whole else f"{takes}; the trace shows no work on a GPU."
    outside = _outside(diagnosed)
    of = "the time" if kinds else SPAN if ends_later(diagnosed) else "it"
    works = work_clause(diagnosed.facts.gpu_use, waits, of)
    if kinds:
        return f"{takes}; {works}{outside}."
    return f"{takes} and {works}{outside}."


def _kinds(diagnosed: DiagnosedTrace) -> str:
    """`A trace of two kinds of step: 3 take 16.1 ms, 9 take 1.59 ms`; empty if all steps are of one kind."""
    kinds = diagnosed.summary.kinds_of_step
    listed = ", ".join(f"{kind.count:,} take {format_value(kind.step_us, 'us')}" for kind in kinds)
    return f"A trace of {'two' if len(kinds) == 2 else 'three'} kinds of step: {listed}" if kinds else ""


def _name(diagnosed: DiagnosedTrace) -> str:
    """`A step`, with what marks it if GPU work is in no step; `An iteration`; `A token` of a token loop."""
    if diagnosed.trace.steps_from == ITERATIONS:
        return "An iteration"
    if not diagnosed.facts.is_token_loop:
        return f"A step ({shortened(diagnosed.trace.steps_from, 60)})" if _outside(diagnosed) else "A step"
    count = sequences(diagnosed.facts.step.ops)
    return f"A token of each of {count:,} sequences" if count is not None and count > 1 else "A token"


def _outside(diagnosed: DiagnosedTrace) -> str:
    """The share of the GPU's time in no step, if annotations mark steps: they may be a part of a step. Of a token loop,
    the share between tokens, where the prompts of further requests are."""
    trace = diagnosed.trace
    us, total_us = durations_sum_us(trace.unattributed), durations_sum_us(trace.activities)
    if trace.steps_from in (TOKENS, GRAPH_REPLAYS):
        between = (group.activities for group in trace.uncounted if group.reason == BETWEEN)
        us = sum(map(durations_sum_us, between))
        steps = "tokens, as in prompts" if diagnosed.facts.is_token_loop else "the steps"
        return f"; {percent(us / total_us)} of the GPU's time is between {steps}" if us > MIN_OUTSIDE * total_us else ""
    if not trace.steps_from.startswith(("annotation", "iterations of")) or us <= MIN_OUTSIDE * total_us:
        return ""
    return f"; {percent(us / total_us)} of the GPU's time is in no step"


def ends_later(diagnosed: DiagnosedTrace) -> bool:
    """Whether the mean step, until the GPU is done, is clearly longer than the median step, of one kind of step."""
    return not diagnosed.facts.kinds and diagnosed.waits.step_us > 1.02 * diagnosed.step_us


def _cost(diagnosed: DiagnosedTrace) -> str:
    """The largest finding, else the longest kernel."""
    found = diagnosed.diagnosis.findings
    if found:
        unit = "token" if diagnosed.facts.is_token_loop else "step"
        largest = _largest(found[0], diagnosed.mean_step_us, diagnosed.step_us, unit)
        return " ".join(filter(None, (_pauses(diagnosed, found[0]), largest)))
    if unexplained := unexplained_idle(diagnosed) or cpu_alone(diagnosed):
        return unexplained
    times = diagnosed.kernel_times
    if times and (total := sum(each.total_us for each in times)):
        name = decode_kernel_name(times[0].name).short
        return f"No fault was found; {100 * times[0].total_us / total:.0f} % of the GPU's time is {name}."
    return "No fault was found."


def _pauses(diagnosed: DiagnosedTrace, largest: Finding) -> str:
    """The idle time between the steps, or in a single step, if it is more than mending the largest finding saves; else
    empty."""
    idle = diagnosed.idle
    saving_us = 0.0 if largest.rule.is_once else largest.saving_us_per_step
    saved_us = 2 * saving_us * len(diagnosed.facts.steps)
    if idle is None:
        return ""
    if idle.between_steps_us > saved_us and (pauses := idle_between_steps(diagnosed)):
        return pauses
    return idle_in_one_step(diagnosed) if idle.longest_step[1] > saved_us else ""


def cpu_alone(diagnosed: DiagnosedTrace) -> str:
    """The largest part of a step if no rule fired and there is no GPU work; else empty."""
    most = "" if diagnosed.has_gpu else dominant(diagnosed.facts)
    on_cpu = " on the CPU" if most and unread_work(diagnosed.trace) else ""
    return f"No rule found a fault{on_cpu}: {most}." if most else ""


def _largest(finding: Finding, step_us: float, usual_us: float, unit: str) -> str:
    if finding.rule.is_once:
        return f"{finding.title}."
    if finding.saving_us_per_step <= 0:
        return f"{finding.rule.title}."
    saves = format_value(finding.saving_us_per_step, "us")
    doubt = f" {finding.doubt}" if finding.doubt else ""
    whole_us = finding.whole_us(step_us)
    of = percent(finding.saving_us_per_step / whole_us if whole_us else 0.0)
    if finding.beside_us:
        of += f" of a {unit} and the pause after it"
    elif finding.saving_us_per_step > usual_us:
        of += f" of the {format_value(step_us, 'us')} that a {unit} takes in the mean"
    return f"{finding.rule.title}: a fix saves at most {saves} per {unit} ({of}).{doubt}"


def tiles_html(diagnosed: DiagnosedTrace) -> Html:
    """Four measures, each with a line of explanation."""
    parts, trace, found = diagnosed.waits, diagnosed.trace, diagnosed.diagnosis.findings
    steps = len(trace.steps)
    marks = f"median of {steps:,}" if steps > 1 else "one step"
    if trace.steps_from == WHOLE:
        marks = "all of it as one step"
    done = f"; {format_value(parts.step_us, 'us')} in the mean" + (
        " until the GPU is done" if diagnosed.has_gpu else ""
    )
    unit = "token" if diagnosed.facts.is_token_loop else "step"
    if unit == "token" and (before_us := diagnosed.before_first_us):
        marks += f"; before the first, {format_value(before_us, 'us')} of GPU work"
    tiles = [(f"time of a {unit}", format_value(diagnosed.step_us, "us"), marks, done if ends_later(diagnosed) else "")]
    if kinds := diagnosed.summary.kinds_of_step:
        lengths = " or ".join(format_value(kind.step_us, "us") for kind in kinds)
        tiles = [("time of a step", lengths, f"{' and '.join(f'{kind.count:,}' for kind in kinds)} of {steps:,}", "")]
    if diagnosed.has_gpu:
        tiles.append(("GPU busy", *busy_tile(diagnosed.facts.gpu_use, parts)))
        step = diagnosed.facts.step
        mean = sum(each.duration_us for each in step.kernels) / max(1, len(step.kernels))
        text = f"mean duration {format_value(mean, 'us')}" if step.kernels else "only copies and fills"
        tiles.append(("kernels", f"{len(step.kernels):,}", text, "; in the median step"))
    severities = Counter(finding.severity(diagnosed.mean_step_us) for finding in found)
    listed = ", ".join(f"{severities[level]} {level}" for level in ("high", "medium", "low") if severities[level])
    unknown = len(diagnosed.diagnosis.cannot_tell)
    questions = f"; {unknown} that it cannot tell" if unknown else ""
    tiles.append(("findings", f"{len(found):,}", listed or "no fault found", questions))
    items = "".join(
        f'<li><span class="name">{name}</span><strong>{value}</strong><small>{line}{more}</small></li>'
        for name, value, line, more in tiles
    )
    return Html(f'<ul class="tiles">{items}</ul>')
