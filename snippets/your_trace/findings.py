"""The page on a reader's own trace: three published reports, what mending their findings saved, all rules."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from html import escape
from typing import Any

from kinetoscope.compare.comparison import comparison, comparison_parts
from kinetoscope.diagnosis.pages import PAGES
from kinetoscope.diagnosis.rule import HIGH, MEDIUM, Finding, Rule
from kinetoscope.diagnosis.rules import RULES
from kinetoscope.exit_codes import CHECKS, EXIT_CODES
from kinetoscope.html import Cell, Html, code, details, table, with_code
from kinetoscope.report.diagnosed import read_diagnosed
from kinetoscope.report.findings import with_links
from kinetoscope.report.headline import headline
from kinetoscope.report.trace_report import report_data
from kinetoscope.report.waiting import gpu_busy_us, share
from kinetoscope.schema import schema
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
    "python train.py                     # your loop, which records a trace",
    "pip install WHEEL",
    "kinetoscope doctor trace.json.gz    # is the trace whole?",
    "kinetoscope report trace.json.gz    # what is slow? --open shows the report",
)
WITHOUT_INSTALLING = (
    "uvx --from WHEEL kinetoscope report trace.json.gz",
    "pipx run --spec WHEEL kinetoscope report trace.json.gz",
)

EXAMPLE_FAULT, EXAMPLE_RULE = "training_step/tensor_cores_before", "no-tensor-cores"
"""A recording, and the rule that finds its fault."""
SEARCHED = ("Looks for", "What to do")
"""Parts of a rule that the search finds: each page loads its index."""


def first_lines(device: Device) -> Html:
    """From a loop to the first finding; the same for every device."""
    return shell_lines(FIRST_LINES)


def without_installing(device: Device) -> Html:
    """The report by uv or pipx, and the wheel as a file; the same for every device."""
    return Html(
        f"{shell_lines(WITHOUT_INSTALLING)}<p>To install the tool on a machine without a network, copy "
        f"{wheel_link()} and a wheel of msgspec to the machine, and give pip the paths of the two wheels.</p>"
    )


def examples(device: Device) -> Html:
    """The published reports: what each says first, with a link."""
    rows: list[list[Cell]] = []
    for title, experiment in EXAMPLES.items():
        address = f"../{report_address(device, experiment)}"
        link = Html(f'<a href="{escape(address)}">{escape(title)}</a>')
        report_page(device, experiment)  # raises where the link would lead nowhere
        rows.append([link, headline(report_of(device, experiment))])
    return table("Three reports", ["report", "headline of the report"], rows, text_columns=2, is_searched=True)


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
    head = ["finding, and its fix", "ceiling", "time that the fix saved"]
    return table("Two ceilings, and the time that the fixes saved", head, rows)


def compared(device: Device) -> Html:
    """The eager MLP and the compiled one, kernel by kernel, as `report` compares two traces."""
    before, after = (device[experiment].trace for experiment in MLP[1:])
    *_, by_kernel = comparison_parts(comparison(before, after), ("eager", "compiled"))
    return by_kernel.html


def rules(device: Device) -> Html:
    """Every rule of the diagnosis, from its own source; the same for every device."""
    high, medium = (f"{100 * share:.0f} %" for share in (HIGH, MEDIUM))
    text = (
        f"There are {len(RULES)} rules. A finding is high if its ceiling is at least {high} of a step, medium if "
        f"its ceiling is at least {medium}, and low otherwise."
    )
    listed = "".join(map(_rule, sorted(RULES, key=lambda rule: rule.title)))
    return Html(f'<p>{text}</p><div class="rules">{listed}</div>')


def _rule(rule: Rule) -> str:
    lines = {
        "Looks for": with_code(rule.looks_for),
        "Condition": with_code(rule.threshold),
        "What to do": with_code(rule.advice),
        "When it is no fault": with_code(rule.mistaken),
        "Source of the rule": with_links(rule.source),
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


def example_finding(device: Device) -> Html:
    """The finding of a recorded fault as `report --json` prints it, with one of its events."""
    found = read_diagnosed(device.root / device[EXAMPLE_FAULT].trace_path)
    rows = [row for row in report_data(found)["findings"] if row["rule"] == EXAMPLE_RULE]
    if not rows:
        raise TraceError(f"{EXAMPLE_RULE} finds nothing in {EXAMPLE_FAULT} on {device.name}")
    shown = {**rows[0], "events": rows[0]["events"][:1]}
    lines = ",\n".join(f" {json.dumps(key)}: {json.dumps(value)}" for key, value in shown.items())
    text = escape(f"{{\n{lines}\n}}", quote=False)
    lines = f'<pre tabindex="0" aria-label="A finding"><code>{text}</code></pre>'
    return Html(f'<div class="language-text highlight">{lines}</div>')


def document_keys(device: Device, command: str, kind: str) -> Html:
    """The keys of one kind of JSON document of a command, and folded those of its rows; the same for every device."""
    described = schema(command)
    definitions: Mapping[str, Any] = described["$defs"]
    top, *others = sorted(definitions, key=lambda name: not _is_kind(definitions[name], kind))
    shown = _key_table(f"Keys of the document {kind}", definitions[top])
    reached = [name for name in others if name in _reached(definitions, top)]
    more = "".join(_key_table(f"{name}, in a document {kind}", definitions[name]) for name in reached)
    return Html(shown + details(f"The keys of {len(reached)} kinds of rows", more))


def exit_codes(device: Device) -> Html:
    """The exit codes of all commands, and the checks that can fail; the same for every device."""
    codes: list[list[Cell]] = [[str(number), with_code(text)] for number, text in EXIT_CODES.items()]
    checks: list[list[Cell]] = [[code(f"kinetoscope {asked}"), text] for asked, text in CHECKS.items()]
    return Html(
        table("Exit codes of all commands", ["code", "meaning"], codes, text_columns=2)
        + table("What can fail", ["check", "passes if"], checks, text_columns=2)
    )


def _is_kind(definition: Mapping[str, Any], kind: str) -> bool:
    return "schema_version" in definition["properties"] and definition["properties"]["kind"]["enum"] == [kind]


def _reached(definitions: Mapping[str, Any], name: str) -> set[str]:
    """The types of the rows of a document, at any depth."""
    names = set(re.findall(r"#/\$defs/(\w+)", json.dumps(definitions[name])))
    return names.union(*(_reached(definitions, each) for each in names))


def _key_table(caption: str, definition: Mapping[str, Any]) -> Html:
    rows: list[list[Cell]] = [
        [Html(code(key).replace("_", "_<wbr>")), type_text(value), with_code(value.get("description", ""))]
        for key, value in definition["properties"].items()
    ]
    return table(caption, ["key", "type", "meaning"], rows, text_columns=3)


def type_text(spec: Mapping[str, Any]) -> str:
    """The type of a key in words: `list of FindingRow`, `number or null`."""
    if "$ref" in spec:
        return str(spec["$ref"].rpartition("/")[2])
    if "anyOf" in spec:
        return " or ".join(map(type_text, spec["anyOf"]))
    if "enum" in spec:
        return " or ".join(map(str, spec["enum"]))
    if "additionalProperties" in spec:
        return f"map to {type_text(spec['additionalProperties'])}"
    if spec["type"] != "array":
        return str(spec["type"])
    if "prefixItems" in spec:
        return f"{spec['maxItems']} times {type_text(spec['prefixItems'][0])}"
    return f"list of {type_text(spec['items'])}"


FIGURES: Mapping[str, Measure] = {
    "attention_saved": lambda device: _saved_share(device, *ATTENTION),
    "mlp_saved": lambda device: _saved_share(device, *MLP),
}
