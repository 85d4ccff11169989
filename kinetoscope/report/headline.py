"""The first screen: the time of a step, the GPU's share of it, and the largest cost."""

from __future__ import annotations

from collections import Counter

from kinetoscope.diagnosis.rule import Finding
from kinetoscope.html import Html
from kinetoscope.report.cpu_time import dominant
from kinetoscope.report.diagnosed import DiagnosedTrace
from kinetoscope.report.memory import nearly_full
from kinetoscope.report.waiting import gpu_busy_us, share
from kinetoscope.report.work_tables import kernel_times
from kinetoscope.trace.kernel_names import decode_kernel_name
from kinetoscope.trace.units import format_value

MOSTLY_IDLE = 0.25
"""Below this share of GPU work in a step, having found no fault explains nothing."""
CAUSE_NAMES = {"Python": "Python between the operators", "nothing recorded": "time in which the trace shows nothing"}
WHOLE = "the whole trace"
"""`Trace.steps_from` of a trace in which nothing marks steps."""


def headline(diagnosed: DiagnosedTrace) -> str:
    """A sentence or two, in plain text; one more where a GPU's memory is nearly full."""
    return " ".join(filter(None, (_step(diagnosed), _cost(diagnosed), nearly_full(diagnosed.memory))))


def _step(diagnosed: DiagnosedTrace) -> str:
    waits = diagnosed.waits
    is_whole = diagnosed.trace.steps_from == WHOLE
    takes = f"{'The whole trace' if is_whole else 'A step'} takes {format_value(diagnosed.step_us, 'us')}"
    if not diagnosed.has_gpu:
        return f"{takes}; it shows no work on a GPU." if is_whole else f"{takes}; the trace shows no work on a GPU."
    works = _percent(share(gpu_busy_us(waits), waits))
    if ends_later(diagnosed):
        mean = f"{format_value(waits.step_us, 'us')} in the mean until the GPU is done"
        return f"{takes}, {mean}, and the GPU works {works} of that."
    return f"{takes} and the GPU works {works} of it."


def ends_later(diagnosed: DiagnosedTrace) -> bool:
    """Whether the mean step, until the GPU is done, is clearly longer than the median step."""
    return diagnosed.waits.step_us > 1.02 * diagnosed.step_us


def _percent(part: float) -> str:
    """A share in percent, without decimals: `less than 1 %` for a small one."""
    return "less than 1 %" if 0 < part < 0.01 else f"{100 * part:.0f} %"


def _cost(diagnosed: DiagnosedTrace) -> str:
    """The largest finding, else the longest kernel."""
    found = diagnosed.diagnosis.findings
    if found:
        return _largest(found[0], diagnosed.step_us)
    if unexplained := unexplained_idle(diagnosed) or cpu_alone(diagnosed):
        return unexplained
    times = kernel_times(diagnosed.trace)
    if times and (total := sum(each.total_us for each in times)):
        name = decode_kernel_name(times[0].name).short
        return f"No fault was found; {100 * times[0].total_us / total:.0f} % of the GPU's time is {name}."
    return "No fault was found."


def unexplained_idle(diagnosed: DiagnosedTrace) -> str:
    """The main idle cause if no rule fired and the GPU is mostly idle; else empty."""
    waits, causes = diagnosed.waits, diagnosed.facts.gaps_us
    if not diagnosed.has_gpu or share(gpu_busy_us(waits), waits) >= MOSTLY_IDLE or not any(causes.values()):
        return ""
    cause = max(causes, key=lambda each: causes[each])
    return f"No rule found why: most of the GPU's idle time is {CAUSE_NAMES.get(cause, cause)}."


def cpu_alone(diagnosed: DiagnosedTrace) -> str:
    """The largest part of a step if no rule fired and there is no GPU work; else empty."""
    most = "" if diagnosed.has_gpu else dominant(diagnosed.facts)
    return f"No rule found a fault: {most}." if most else ""


def _largest(finding: Finding, step_us: float) -> str:
    if finding.rule.is_once:
        return f"{finding.title}."
    if finding.saving_us_per_step <= 0:
        return f"{finding.rule.title}."
    saves = format_value(finding.saving_us_per_step, "us")
    title, part = finding.rule.title, finding.saving_us_per_step / step_us if step_us else 0.0
    if part > 1:
        return f"{title}: mending it saves at most {saves} per step, more than the step itself takes."
    return f"{title}: mending it saves at most {saves} per step ({_percent(part)})."


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
    tiles = [("time of a step", format_value(diagnosed.step_us, "us"), marks, done if ends_later(diagnosed) else "")]
    if diagnosed.has_gpu:
        percent = _percent(share(gpu_busy_us(parts), parts)).replace("less than", "<")
        idle = format_value(parts.gpu_idle_us, "us")
        tiles.append(("GPU busy", percent, f"{format_value(gpu_busy_us(parts), 'us')} per step", f"; idle {idle}"))
        step = diagnosed.facts.step
        mean = sum(each.duration_us for each in step.kernels) / max(1, len(step.kernels))
        text = f"mean duration {format_value(mean, 'us')}" if step.kernels else "only copies and fills"
        tiles.append(("kernels", f"{len(step.kernels):,}", text, "; in the median step"))
    severities = Counter(finding.severity(diagnosed.step_us) for finding in found)
    listed = ", ".join(f"{severities[level]} {level}" for level in ("high", "medium", "low") if severities[level])
    unknown = len(diagnosed.diagnosis.cannot_tell)
    questions = f"; {unknown} that it cannot tell" if unknown else ""
    tiles.append(("findings", f"{len(found):,}", listed or "no fault found", questions))
    items = "".join(
        f'<li><span class="name">{name}</span><strong>{value}</strong><small>{line}{more}</small></li>'
        for name, value, line, more in tiles
    )
    return Html(f'<ul class="tiles">{items}</ul>')
