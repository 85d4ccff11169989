"""The first screen: what a step takes, how much of it the GPU works, and what costs most."""

from __future__ import annotations

from collections import Counter

from snippets.lab.diagnosis.rule import Finding
from snippets.lab.html import Html
from snippets.lab.report.subject import Subject
from snippets.lab.report.waiting import gpu_busy_us, share
from snippets.lab.report.work_tables import kernel_times
from snippets.lab.trace.kernel_names import decode_kernel_name
from snippets.lab.trace.units import format_value


def headline(subject: Subject) -> str:
    """One sentence, in plain text."""
    return f"{_step(subject)} {_cost(subject)}"


def _step(subject: Subject) -> str:
    parts = subject.waits
    takes = f"A step takes {format_value(parts.step_us, 'us')}"
    if not subject.has_gpu:
        return f"{takes}; the trace shows no work on a GPU."
    return f"{takes} and the GPU works {100 * share(gpu_busy_us(parts), parts):.0f} % of it."


def _cost(subject: Subject) -> str:
    """The largest finding, else the longest kernel."""
    found = subject.diagnosis.findings
    if found:
        return _largest(found[0], subject.step_us)
    times = kernel_times(subject.trace)
    if times and (total := sum(each.total_us for each in times)):
        name = decode_kernel_name(times[0].name).short
        return f"No fault was found; {100 * times[0].total_us / total:.0f} % of the GPU's time is {name}."
    return "No fault was found."


def _largest(finding: Finding, step_us: float) -> str:
    percentage = 100 * finding.ceiling_us_per_step / step_us if step_us else 0.0
    percent = f"{percentage:.0f} %" if percentage >= 1 else "less than 1 %"
    title = finding.title.rstrip(".")
    if finding.ceiling_us_per_step <= 0:
        return f"{title}."
    saves = f"mending it saves at most {format_value(finding.ceiling_us_per_step, 'us')} per step ({percent})"
    return f"{title}: {saves}."


def tiles_html(subject: Subject) -> Html:
    """Four measures with a line of explanation each."""
    parts, trace, found = subject.waits, subject.trace, subject.diagnosis.findings
    steps = len(trace.steps)
    tiles = [
        (
            "time of a step",
            format_value(parts.step_us, "us"),
            f"mean of {steps:,}, until the GPU is done" if steps > 1 else "until the GPU is done",
            f"; CPU done after {format_value(subject.facts.step_us, 'us')} in the median step",
        )
    ]
    if subject.has_gpu:
        percent = f"{100 * share(gpu_busy_us(parts), parts):.0f} %"
        idle = format_value(parts.gpu_idle_us, "us")
        tiles.append(("GPU busy", percent, f"{format_value(gpu_busy_us(parts), 'us')} per step", f"; idle {idle}"))
        step = subject.facts.step
        mean = sum(each.duration_us for each in step.kernels) / max(1, len(step.kernels))
        text = f"mean duration {format_value(mean, 'us')}" if step.kernels else "only copies and fills"
        tiles.append(("kernels", f"{len(step.kernels):,}", text, "; in the median step"))
    severities = Counter(finding.severity(subject.step_us) for finding in found)
    listed = ", ".join(f"{severities[level]} {level}" for level in ("high", "medium", "low") if severities[level])
    unknown = len(subject.diagnosis.cannot_tell)
    questions = f"; {unknown} that it cannot tell" if unknown else ""
    tiles.append(("findings", f"{len(found):,}", listed or "no fault found", questions))
    items = "".join(
        f'<li><span class="name">{name}</span><strong>{value}</strong><small>{line}{more}</small></li>'
        for name, value, line, more in tiles
    )
    return Html(f'<ul class="tiles">{items}</ul>')
