"""Texts as PyTorch printed them: the profiler's whole table, Dynamo's warning, Dynamo's reason for a graph break."""

from __future__ import annotations

from html import escape

from kinetoscope.html import Html, details
from snippets.lab.finding import Device, TraceError
from snippets.lab.page import show as show
from snippets.training_step.findings.compiling import breaks, lengths
from snippets.training_step.findings.probes import printed
from snippets.training_step.findings.rows import rows

CHAPTER = "training_step"


def limit_warning(device: Device) -> Html:
    """Dynamo's warning when it stops compiling. Raises `TraceError` without a warning about its limit."""
    run = device[f"{CHAPTER}/lengths"]
    texts = [text for text in run.data["before"]["warnings"] if "recompile_limit" in text]
    if not texts:
        raise TraceError(f"{run.id} on {device.name} has no warning of recompile_limit")
    return preformatted(texts[0])


def printed_text(device: Device) -> Html:
    """The complete output of the ten lines, folded; its long lines scroll."""
    text = device[f"{CHAPTER}/ten_lines"].data["printed"]
    return details(
        "The complete table, as printed", f'<pre data-search-exclude><code tabindex="0">{_trimmed(text)}</code></pre>'
    )


def printed_twice(device: Device) -> Html:
    """The output of the ten lines as a table that fits the page, and folded in its original form."""
    return Html(printed(device) + printed_text(device))


def lengths_and_warning(device: Device) -> Html:
    """Iterations of varying length, the row of a trace that shows a compilation, and Dynamo's warning."""
    warning = f"<p>Dynamo's warning:</p>{limit_warning(device)}"
    return Html(lengths(device) + rows(device, "recompile") + warning)


def breaks_and_reason(device: Device) -> Html:
    """A compiled loop with graph breaks and without, and Dynamo's reason in full."""
    reason = preformatted(device[f"{CHAPTER}/graph_breaks"].data["before"]["breaks"][0])
    return Html(f"{breaks(device)}<p>Dynamo's complete reason for the graph break:</p>{reason}")


def preformatted(text: str) -> Html:
    """A printed text whose long lines wrap."""
    return Html(
        f'<div class="language-text highlight" data-search-exclude><pre><code>{_trimmed(text)}</code></pre></div>'
    )


def _trimmed(text: str) -> str:
    """A text without blanks at the ends of its lines and blank lines at its own, escaped."""
    lines = (line.rstrip() for line in text.strip("\n").splitlines())
    return escape("\n".join(lines).rstrip())
