"""The report as one HTML file that makes no request and can be read without scripts."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator
from html import escape
from importlib.resources import files
from typing import TypeVar

from kinetoscope.html import Html
from kinetoscope.report.counted import counted_html, made_html
from kinetoscope.report.cpu_time import cpu_time_html
from kinetoscope.report.device_rows import counters_html, stream_waits_html
from kinetoscope.report.diagnosed import DiagnosedTrace
from kinetoscope.report.findings import evidence_anchors, findings_html, unknown_html
from kinetoscope.report.gpus import gpus_html
from kinetoscope.report.headline import headline, tiles_html
from kinetoscope.report.idle_text import idle_between_steps_html
from kinetoscope.report.memory import memory_html
from kinetoscope.report.output import source_tag
from kinetoscope.report.places import places_html
from kinetoscope.report.several import MultiReport
from kinetoscope.report.timeline import step_timeline
from kinetoscope.report.waiting import gaps_html, waiting_html
from kinetoscope.report.work_tables import collectives_html, kernels_html, operators_html
from kinetoscope.terminal import called, quoted
from kinetoscope.trace.averages import key_averages
from kinetoscope.trace.progress import Progress
from kinetoscope.trace.text import shortened, visible

T = TypeVar("T")
_SECTIONS = 12
"""The most sections that a report has: its progress counts them."""


def report_html(diagnosed: DiagnosedTrace, progress: Progress | None = None) -> str:
    """The report on one trace."""
    device = shortened(diagnosed.trace.device or "", 80)
    kicker = f"PyTorch trace · {device}" if device else "PyTorch trace"
    first = Html(f"{tiles_html(diagnosed)}{_notes(diagnosed)}")
    sections = _reported(_sections(diagnosed), progress) if progress else _sections(diagnosed)
    return document(shortened(diagnosed.name, 120), kicker, headline(diagnosed), first, sections, source=diagnosed.name)


def several_html(report: MultiReport) -> str:
    """The report on ranks, or on two traces compared."""
    sections = ((f"part-{index}", part.heading, part.html) for index, part in enumerate(report.parts, start=1))
    title = shortened(report.title, 120)
    style = _asset("rank_drawing.css") + _asset("ranks.css")
    return document(title, report.kicker, report.headline, report.lead, sections, more_style=style)


def document(
    title: str,
    kicker: str,
    head: str,
    tiles: Html,
    parts: Iterable[tuple[str, str, str]],
    *,
    source: str = "",
    more_style: str = "",
) -> str:
    """The whole file; its text has visible characters only.

    `parts`: id, title and HTML of each section; `source`: the name of the trace's file.
    """
    style, script = _asset("drawing.css") + _asset("style.css") + more_style, report_script()
    sections = [(ident, heading, html) for ident, heading, html in parts if html]
    links = "".join(f'<li><a href="#{ident}">{heading}</a></li>' for ident, heading, _ in sections)
    body = "".join(
        f'<section id="{ident}" aria-labelledby="{ident}-title"><h2 id="{ident}-title">{heading}</h2>{html}</section>'
        for ident, heading, html in sections
    )
    name, head_tags = escape(title), f"\n{source_tag(source)}" if source else ""
    html = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_policy(script)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">{head_tags}
<title>{name}: report</title>
<style>{style}</style>
</head>
<body>
<header>
<p class="kicker">{escape(kicker)}</p>
<h1>{name}</h1>
<p class="headline">{escape(head)}</p>
{tiles}
</header>
<nav aria-label="Contents"><ul>{links}</ul></nav>
<main>
{body}
</main>
<footer>
<p>Made with <cite>Profiling PyTorch</cite>, an executed book.</p>
</footer>
<script>{script}</script>
</body>
</html>
"""
    return visible(html)


def report_script() -> str:
    """The script of every report: what a page that frames reports has to let run, by its hash."""
    return _asset("timeline.js")


def _sections(diagnosed: DiagnosedTrace) -> Iterator[tuple[str, str, str]]:
    """Id, title and content of each section, in reading order, without empty sections."""
    trace, facts = diagnosed.trace, diagnosed.facts
    anchors = evidence_anchors(diagnosed.diagnosis.findings)
    drawing, drawn = step_timeline(facts.step, trace.activities, anchors, is_one_of_several=len(trace.steps) > 1)
    yield "diagnosis", "Diagnosis", findings_html(diagnosed, anchors, drawn)
    yield "cannot-tell", "What this trace cannot tell", unknown_html(diagnosed)
    if diagnosed.has_gpu:
        yield "waiting", "Who waits for whom", _waiting(diagnosed)
    else:
        yield "cpu-time", "What the CPU does", cpu_time_html(facts)
    yield "timeline", "Timeline of a step", Html(drawing + _perfetto(diagnosed))
    if diagnosed.has_gpu:
        yield "kernels", "Kernels", kernels_html(diagnosed.kernel_times, len(trace.steps))
    yield "collectives", "Collectives", collectives_html(trace, diagnosed.summary)
    yield "counters", "Counters", counters_html(diagnosed.summary)
    yield "operators", "Operators", operators_html(diagnosed.averages or key_averages(trace))
    yield "places", "Modules and source lines", places_html(trace)
    yield "memory", "Memory", memory_html(trace, diagnosed.memory)
    yield "counted", "What was counted", counted_html(diagnosed)
    yield "made", "How this report was made", made_html(diagnosed)


def _waiting(diagnosed: DiagnosedTrace) -> Html:
    facts = diagnosed.facts
    parts = waiting_html(diagnosed.waits, len(facts.steps)) + gpus_html(facts) + gaps_html(facts)
    return Html(parts + idle_between_steps_html(diagnosed) + stream_waits_html(diagnosed.summary))


def _reported(sections: Iterable[T], progress: Progress) -> Iterator[T]:
    progress.stage("writing the report on")
    for count, section in enumerate(sections, start=1):
        progress.stage("writing the report on", count, _SECTIONS)
        yield section


def _perfetto(diagnosed: DiagnosedTrace) -> str:
    begin = f"{diagnosed.facts.step.start_us / 1000:,.3f} ms"
    name = diagnosed.name
    command = f"{called()} open {quoted(f'./{name}' if name.startswith('-') else name)}"
    return (
        f"<p>The whole trace in Perfetto, where this step begins at {begin}:</p>"
        f'<pre tabindex="0" aria-label="Command"><code>{escape(command)}</code></pre>'
    )


def _notes(diagnosed: DiagnosedTrace) -> str:
    """Notes for a reader of the numbers, such as that the file is cut off."""
    items = "".join(f"<li>{escape(shortened(text, 600))}</li>" for text in diagnosed.summary.notes)
    return f'<ul class="notes">{items}</ul>' if items else ""


def _policy(script: str) -> str:
    """A policy that loads nothing and runs only this script, by its hash."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    rules = ["default-src 'none'", "style-src 'unsafe-inline'", f"script-src 'sha256-{digest}'"]
    return "; ".join([*rules, "base-uri 'none'", "form-action 'none'"])


def _asset(name: str) -> str:
    return files("kinetoscope.report").joinpath(name).read_text(encoding="utf-8")
