"""TODO."""

from __future__ import annotations

from html import escape

from pymdownx.inlinehilite import InlineHiliteException

from snippets.lab.finding.book import all_claims
from snippets.lab.finding.figure import Figure, is_mismatch
from snippets.lab.finding.quantities import figure
from snippets.lab.page.kernel_name import with_kernel_names
from snippets.lab.recording.device import DEFAULT_DEVICE, recorded_devices, showing, shown_device
from snippets.lab.recording.schema import NotRecorded


def as_html(shown: Figure, name: str, attributes: str = "") -> str:
    """A figure inside a sentence; its origin and spread on hover and for a screen reader's description."""
    title = "; ".join(part for part in (shown.origin, shown.spread_text) if part)
    mark = "" if shown.conclusive else " inconclusive"
    return (
        f'<data class="fig{mark}" value="{escape(str(shown.value))}" data-figure="{escape(name)}" '
        f'title="{escape(title)}"{attributes}>{with_kernel_names(shown.text)}</data>'
    )


def fig_formatter(source: str, language: str, class_name: str, md: object) -> str:
    """`#!fig NAME` for pymdownx.inlinehilite: a missing recording shows as such, an unknown name ends the build.

    Where several devices are recorded, the sentence holds a value for each; all are hidden but that of the chosen tab.
    """
    name = source.strip()
    devices = recorded_devices() or (DEFAULT_DEVICE,)
    if len(devices) == 1:
        return _inline(name, devices[0])
    opened = shown_device()
    hidden = {device: "" if device == opened else " hidden" for device in devices}
    return "".join(_inline(name, device, f' data-device="{escape(device)}"{hidden[device]}') for device in devices)


def _inline(name: str, device: str, attributes: str = "") -> str:
    with showing(device):
        try:
            return as_html(figure(name, device), name, attributes)
        except NotRecorded as error:
            return _left_out(name, "not recorded", error, attributes)
        except Exception as error:  # inlinehilite would swallow any other and show the source
            if is_mismatch(error, device):
                return _left_out(name, "not measured here", error, attributes)
            raise InlineHiliteException(f"#!fig {name}: {type(error).__name__}: {error}") from error


def _left_out(name: str, word: str, error: Exception, attributes: str) -> str:
    why = f'data-figure="{escape(name)}" title="{escape(str(error))}"{attributes}'
    return f'<data class="fig missing" value="" {why}>{word}</data>'


def src_formatter(source: str, language: str, class_name: str, md: object) -> str:
    """`#!src L8` for pymdownx.inlinehilite: the value that a claim's source gave; an unknown claim ends the build."""
    name = source.strip()
    _, claim = all_claims().get(name, ("", None))
    if claim is None or claim.source is None:
        raise InlineHiliteException(f"#!src {name}: no claim of that id with a source")
    title = f"{claim.source.who}, on an {claim.source.device}"
    value = escape(claim.source.value)
    return f'<data class="src" value="{value}" title="{escape(title)}">{value}</data>'
