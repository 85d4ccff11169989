"""The page on a reader's own trace: three published reports, what mending their findings saved, all rules."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from kinetoscope.compare.comparison import comparison, comparison_parts
from kinetoscope.diagnosis.pages import PAGES
from kinetoscope.diagnosis.rule import HIGH, MEDIUM, Finding, Rule
from kinetoscope.diagnosis.rules import RULES
from kinetoscope.html import Cell, Html, table, with_code
from kinetoscope.report.findings import with_links
from kinetoscope.report.headline import headline
from kinetoscope.report.waiting import gpu_busy_us, share
from snippets.lab.charts.numbers import figure_cell
from snippets.lab.finding import Device, Figure, Measure, TraceError, paired_difference, percent
from snippets.lab.page import show as show
from snippets.lab.page.glossary import section_title
from snippets.lab.page.install import shell_lines, wheel_link
from snippets.lab.recording.device import PROJECT
from snippets.your_trace.reports import EXAMPLES, report_address, report_of, report_page

ATTENTION = ("unfused-attention", "attention/naive", "attention/flash")
MLP = ("unfused-elementwise", "mlp/eager", "mlp/compiled")
"""Rule, recording in which it finds its fault, and the recording of the same work without the fault."""

FIRST_LINES = (
    "python train.py                     # yours, with the lines below",
    "pip install WHEEL",
    "kinetoscope doctor trace.json.gz    # is the trace whole?",
    "kinetoscope report trace.json.gz    # the first finding; --open shows them all",
)
WITHOUT_INSTALLING = (
    "uvx --from WHEEL kinetoscope report trace.json.gz",
    "pipx run --spec WHEEL kinetoscope report trace.json.gz",
)

SEARCHED = ("Looks for", "What to do")
"""Parts of a rule that the search finds: each page loads its index."""


def first_lines(device: Device) -> Html:
    """From a loop to the first finding; the same for every device."""
    return shell_lines(FIRST_LINES)


def without_installing(device: Device) -> Html:
    """The report by uv or pipx, and the wheel as a file; the same for every device."""
    return Html(
        f"{shell_lines(WITHOUT_INSTALLING)}<p>On a machine without a network, copy {wheel_link()} and a wheel of "
        "msgspec there, and give pip their paths.</p>"
    )


def examples(device: Device) -> Html:
    """The published reports: what each says first, with a link."""
    rows: list[list[Cell]] = []
    for title, experiment in EXAMPLES.items():
        address = f"../{report_address(device, experiment)}"
        link = Html(f'<a href="{escape(address)}">{escape(title)}</a>')
        report_page(device, experiment)  # raises where the link would lead nowhere
        rows.append([link, headline(report_of(device, experiment))])
    return table("Three reports", ["report", "what it says first"], rows, text_columns=2, is_searched=True)


def finding(device: Device, experiment: str, rule: str) -> Finding:
    """A rule's finding in a recording. Raises `TraceError` if there is none."""
    found = report_of(device, experiment).diagnosis.findings
    for each in found:
        if each.rule.name == rule:
            return each
    raise TraceError(f"{rule} finds nothing in {experiment} on {device.name}")


def ceiling(device: Device, rule: str, experiment: str) -> Figure:
    """The most that mending a finding can save, by the report."""
    origin = f"{device[experiment].origin}, {rule} in the report on its trace"
    return Figure(finding(device, experiment, rule).saving_us_per_step, "us", origin=origin)


def saved(device: Device, experiment: str, mended: str) -> Figure:
    """The time that the fix saved, interleaved and without a profiler."""
    return paired_difference(device[experiment], device[mended])


def _saved_share(device: Device, rule: str, experiment: str, mended: str) -> Figure:
    most, less = ceiling(device, rule, experiment), saved(device, experiment, mended)
    low, high = less.bounds
    share = Figure(less.number / most.number, "x", (low / most.number, high / most.number), less.origin)
    return percent(share)


def traced_step(device: Device) -> Figure:
    """The time of a step of the eager MLP until the GPU is done, by the report on its trace."""
    step_us = report_of(device, "mlp/eager").waits.step_us
    return Figure(step_us, "us", origin=f"{device['mlp/eager'].origin}, in its trace")


def traced_busy(device: Device) -> Figure:
    """How much of that the GPU works."""
    waits = report_of(device, "mlp/eager").waits
    return percent(Figure(share(gpu_busy_us(waits), waits), "x", origin=f"{device['mlp/eager'].origin}, in its trace"))


def ceilings(device: Device) -> Html:
    """Ceilings of findings, and the time that the fixes saved."""
    rows: list[list[Cell]] = []
    for rule, experiment, mended in (ATTENTION, MLP):
        most, less = ceiling(device, rule, experiment), saved(device, experiment, mended)
        title = finding(device, experiment, rule).rule.title
        named = Html(f"{escape(title)}<small>{escape(experiment)} → {escape(mended)}</small>")
        rows.append([named, figure_cell(most), figure_cell(less)])
    head = ["finding, and how it was mended", "saves at most", "saved"]
    return table("Two ceilings, and what mending saved", head, rows)


def compared(device: Device) -> Html:
    """The eager MLP and the compiled one, kernel by kernel, as `report` compares two traces."""
    before, after = (device[experiment].trace for experiment in MLP[1:])
    *_, by_kernel = comparison_parts(comparison(before, after), ("eager", "compiled"))
    return by_kernel.html


def rules(device: Device) -> Html:
    """Every rule of the diagnosis, from its own source; the same for every device."""
    high, medium = (f"{100 * share:.0f} %" for share in (HIGH, MEDIUM))
    text = (
        f"There are {len(RULES)} rules. A finding is high if its ceiling is at least {high} of a step, medium from "
        f"{medium} on, else low."
    )
    listed = "".join(map(_rule, sorted(RULES, key=lambda rule: rule.title)))
    return Html(f'<p>{text}</p><div class="rules">{listed}</div>')


def _rule(rule: Rule) -> str:
    lines = {
        "Looks for": with_code(rule.looks_for),
        "Reported": with_code(rule.threshold),
        "What to do": with_code(rule.advice),
        "Whose rule": with_links(rule.source),
        "In this book": _section(rule.name),
    }
    inner = "".join(
        f"<p{'' if name in SEARCHED else ' data-search-exclude'}><strong>{name}:</strong> {text}</p>"
        for name, text in lines.items()
        if text
    )
    summary = f"{escape(rule.title)} <code>{escape(rule.name)}</code>"
    return f'<details class="lab-details" id="rule-{escape(rule.name)}"><summary>{summary}</summary>{inner}</details>'


def _section(rule_name: str) -> str:
    """A link to the section that shows the fault; empty if there is none. Raises `ValueError` if it does not exist."""
    page, _, anchor = PAGES.get(rule_name, "").partition("/#")
    if not page:
        return ""
    title = section_title(PROJECT / "docs", page, anchor)
    if not title:
        raise ValueError(f"diagnosis/pages.py: {rule_name} leads to {page}.md#{anchor}, which does not exist")
    return f'<a href="../{escape(page)}/#{escape(anchor)}">{escape(title)}</a>'


FIGURES: Mapping[str, Measure] = {
    "attention_saved": lambda device: _saved_share(device, *ATTENTION),
    "mlp_saved": lambda device: _saved_share(device, *MLP),
}
