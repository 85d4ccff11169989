"""Figures and source values inside a sentence: `#!fig mlp.eager.kernels_per_step` and `#!src M3`.

pymdownx.inlinehilite calls the two formatters. An unknown name fails the build.
"""

from __future__ import annotations

from html import escape

from pymdownx.inlinehilite import InlineHiliteException

from kinetoscope.trace.text import visible
from snippets.lab.experiment import UnknownName
from snippets.lab.finding.book import doubt, figure, find_claim
from snippets.lab.finding.device import Device
from snippets.lab.finding.figure import Figure
from snippets.lab.finding.mismatch import Mismatch, reading
from snippets.lab.finding.views import Noted
from snippets.lab.page.disturbed import UNTIMED, disturbed_runs, disturbed_text
from snippets.lab.page.kept import kept
from snippets.lab.page.kernel_name import with_kernel_names
from snippets.lab.page.sample import SAMPLE_TEXT, shown_devices
from snippets.lab.recording.device import default_device, recordings_root, sample_chapter
from snippets.lab.recording.schema import NotRecorded, NotTimed

LONG = 24
"""Characters above which a figure may break into lines; on a phone a line has about 40."""


def figure_html(figure: Figure, name: str, attributes: str = "", doubt: str = "", disturbed: str = "") -> str:
    """A figure inside a sentence, with origin and spread on hover and as a description for screen readers.

    Args:
        figure: the figure.
        name: its name.
        attributes: more attributes of its element, as HTML.
        doubt: why the claim that it belongs to is inconclusive; also on hover.
        disturbed: which recordings of it were disturbed, and why; also on hover.
    """
    claim = f"the claim is inconclusive: {doubt}" if doubt else ""
    title = "; ".join(part for part in (figure.origin, figure.spread_text, claim, disturbed) if part)
    mark = " inconclusive" if disturbed or not figure.conclusive else ""
    mark += " long" if len(figure.text) > LONG else ""
    return (
        f'<data class="fig{mark}" value="{escape(str(figure.value))}" data-figure="{escape(name)}" '
        f'title="{escape(title)}"{attributes}>{with_kernel_names(figure.text)}</data>'
    )


def fig_formatter(source: str, language: str, class_name: str, md: object) -> str:
    """`#!fig NAME`: prints `not recorded` for a missing recording; an unknown name fails the build.

    If several devices are recorded, the sentence has a value for each and shows only that of the chosen device.
    """
    name = source.strip()
    return kept(("fig", name), lambda: _of_all_devices(name))


def _of_all_devices(name: str) -> str:
    root = recordings_root()
    devices = shown_devices(root, name.partition(".")[0], sample_chapter())
    if len(devices) == 1:
        return _inline(name, devices[0])
    opened = default_device(root)
    hidden = {device: "" if device.name == opened else " hidden data-search-exclude" for device in devices}
    return "".join(_inline(name, device, f' data-device="{escape(device.name)}"{hidden[device]}') for device in devices)


def _inline(name: str, device: Device, attributes: str = "") -> str:
    try:
        with reading(device) as noted:
            html = _measured(name, noted, attributes)
    except NotRecorded as error:
        return _left_out(name, "not recorded", error, attributes)
    except NotTimed as error:
        return _left_out(name, "not timed", error, attributes)
    except Mismatch as error:
        return _left_out(name, "not measured here", error, attributes)
    except Exception as error:  # inlinehilite catches every other exception and shows the source
        place = "".join(f" ({note.strip()})" for note in getattr(error, "__notes__", ()))
        raise InlineHiliteException(f"#!fig {name}: {type(error).__name__}: {error}{place}") from error
    if device.is_sample:
        return f'<span class="lab-sample" title="{SAMPLE_TEXT}">{html} <small>(sample)</small></span>'
    return html


def _measured(name: str, device: Noted, attributes: str) -> str:
    found = figure(name, device)
    disturbed = disturbed_text(disturbed_runs(device) if found.unit not in UNTIMED else {})
    return visible(figure_html(found, name, attributes, doubt(name, device), disturbed))


def _left_out(name: str, text: str, error: Exception, attributes: str) -> str:
    why = f'data-figure="{escape(name)}" title="{escape(visible(str(error)))}"{attributes}'
    return f'<data class="fig missing" value="" {why}>{text}</data>'


def src_formatter(source: str, language: str, class_name: str, md: object) -> str:
    """`#!src L8`: the value from a claim's source; an unknown claim fails the build."""
    name = source.strip()
    return kept(("src", name), lambda: _source_value(name))


def _source_value(name: str) -> str:
    try:
        _, claim = find_claim(name)
    except UnknownName as error:
        raise InlineHiliteException(f"#!src {name}: {error}") from error
    if claim.source is None:
        raise InlineHiliteException(f"#!src {name}: this claim is ours and has no source")
    title = f"{claim.source.who}, on an {claim.source.device}" if claim.source.device else claim.source.who
    value = escape(claim.source.value)
    return f'<data class="src" value="{value}" title="{escape(title)}">{value}</data>'
