"""Disturbed measurements: a line below every piece that reads one, and a banner on each page that shows one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from html import escape

from kinetoscope.html import Html, code
from snippets.lab.finding.views import Noted
from snippets.lab.recording.schema import Recording

UNTIMED = ("", "bytes", "flop")
"""Units of figures that are no times: a disturbed recording counts and adds up as any other."""


LINE = '<p class="lab-disturbed">'
SAID = " was disturbed: "
"""In the text of a figure or a verdict."""
BANNER = '<div class="disturbed-banner">'
_BANNER = re.compile(rf"{BANNER}.*?</p></div></div>", re.DOTALL)


def disturbed_runs(device: Noted) -> dict[str, str]:
    """The experiments and points among those read whose times are unreliable, and why."""
    return {name: reason for name in device.runs if (reason := device.unnoted[name].disturbed)}


def disturbed_line(device: Noted) -> str:
    """A line below a table or a chart; empty if it read nothing disturbed."""
    runs = disturbed_runs(device)
    return f"{LINE}<strong>Disturbed</strong>: don't trust {_listed(runs)}.</p>" if runs else ""


def disturbed_text(runs: Mapping[str, str]) -> str:
    """The same as plain text, for a figure in a sentence."""
    return "; ".join(f"{name}{SAID}{reason}" for name, reason in runs.items())


def disturbed_banner(recordings: Iterable[Recording]) -> str:
    """The disturbed recordings of a chapter, as the content of a warning; empty without any."""
    runs = {recording.id: recording.disturbed for recording in recordings if recording.disturbed}
    return (
        f"Another program used the GPU, or times contradict each other. Don't trust {_listed(runs)}. Claims "
        "about these times are inconclusive."
        if runs
        else ""
    )


def without_idle_banner(page: str) -> str:
    """A page's HTML, without the banner if nothing on the page reads a disturbed recording: a chapter has several
    pages."""
    return page if LINE in page or SAID in page else _BANNER.sub("", page)


def _listed(runs: Mapping[str, str]) -> Html:
    """`the times of a, b (reason) and of c (reason)`: experiments by reason."""
    by_reason: dict[str, list[str]] = {}
    for name, reason in runs.items():
        by_reason.setdefault(reason, []).append(code(name))
    texts = [f"of {', '.join(names)} ({escape(reason)})" for reason, names in by_reason.items()]
    return Html(f"the times {' and '.join(texts)}")
