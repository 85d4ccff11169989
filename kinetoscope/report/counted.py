"""What the report counted and omitted, and how it was made."""

from __future__ import annotations

from html import escape

from kinetoscope import __version__
from kinetoscope.html import Cell, Html, table
from kinetoscope.report.diagnosed import DiagnosedTrace
from kinetoscope.terminal import called
from kinetoscope.trace.queries import kernel_time_us, steps_agree
from kinetoscope.trace.text import shortened
from kinetoscope.trace.units import format_value


def counted_html(diagnosed: DiagnosedTrace) -> Html:
    """What marks the steps, and the GPU work outside all steps, by reason."""
    trace = diagnosed.trace
    steps = f"{len(trace.steps):,} step{'s' if len(trace.steps) > 1 else ''}"
    inside = sum(len(step.activities) for step in trace.steps)
    agree = "They did the same GPU work" if steps_agree(trace) else "They differ in their GPU work"
    parts = [f"{steps}, marked by: {trace.steps_from}."]
    parts += [f"{agree}."] if len(trace.steps) > 1 and inside else []
    out = len(trace.unattributed)
    parts.append(f"{inside:,} of {inside + out:,} GPU activities belong to a step and are counted.")
    if diagnosed.captured:
        parts.append(
            f"{diagnosed.captured:,} activities of graph replays have the operators of the capture, by their order."
        )
    html = f"<p>{escape(' '.join(parts))}</p>"
    if diagnosed.summary.kinds_of_step:
        html += _kinds_html(diagnosed)
    rows = [
        [each.reason, f"{len(each.activities):,}", format_value(kernel_time_us(each.activities), "us")]
        for each in trace.uncounted
    ]
    if rows:
        html += table("GPU activities that are not counted, by reason", ["reason", "activities", "kernel time"], rows)
    return Html(html)


def _kinds_html(diagnosed: DiagnosedTrace) -> str:
    rows: list[list[Cell]] = [
        [kind.name or "", kind.count, *(format_value(us, "us") for us in (kind.step_us, kind.gpu_busy_us_per_step))]
        for kind in diagnosed.summary.kinds_of_step
    ]
    listed = table("Kinds of step, told apart by their own work", ["mark", "steps", "time", "GPU busy"], rows)
    text = "Other times per step are means over the kinds. The median step is of the first kind here."
    return f"{listed}<p>{text}</p>"


def made_html(diagnosed: DiagnosedTrace) -> Html:
    """File, device and versions, as a list of terms."""
    trace = diagnosed.trace
    names = [str(each["name"]) for each in trace.devices if each.get("name")] or [trace.device or "none recorded"]
    terms = {"trace": shortened(diagnosed.name, 200), "GPU": _counted(names)}
    if trace.rank is not None:
        terms["rank"] = f"{trace.rank}" + (f" of {trace.world_size}" if trace.world_size else "")
    terms["made with"] = f"{called()} report, version {__version__}"
    rows = "".join(f"<dt>{escape(term)}</dt><dd>{escape(value)}</dd>" for term, value in terms.items())
    text = "This file makes no request and holds no script from elsewhere: names and times in it come from the trace."
    return Html(f"<dl>{rows}</dl><p>{escape(text)}</p>")


def _counted(names: list[str]) -> str:
    distinct = dict.fromkeys(names)
    counts = [(names.count(name), name) for name in list(distinct)[:8]]
    return ", ".join(name if count == 1 else f"{count} x {name}" for count, name in counts)
