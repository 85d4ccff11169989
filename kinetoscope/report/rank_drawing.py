"""Drawing of ranks: a row for each rank, with positions in percent, so that text keeps its size on any screen.

Ink is own work, green is communication, hatched is time in which nothing gets done.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from kinetoscope.html import Html
from kinetoscope.ranks.late import us_text
from kinetoscope.timeline.canvas import fitted, ticks_us
from kinetoscope.trace.text import shortened

KINDS: Mapping[str, str] = {
    "own": "own work: kernels and copies that do not communicate",
    "hidden": "communication during own work: hidden",
    "transfer": "transfer without own work: exposed",
    "waiting": "waiting without own work: exposed",
    "waiting-hidden": "waiting during own work: hidden",
    "idle": "idle: nothing runs",
}
"""Class of a drawn time -> its name in the legend."""
HATCHED = ("waiting", "waiting-hidden", "idle", "hidden")
PHONE_PX, PAGE_PX = 290, 450
"""Least width of a drawing on a phone, and from 641 px on."""
PATTERNS = Html(
    '<svg class="rank-patterns" width="0" height="0" aria-hidden="true"><defs>'
    + "".join(
        f'<pattern id="rank-{kind}" class="{kind}" width="7" height="7" patternUnits="userSpaceOnUse"'
        f' patternTransform="rotate(45)"><rect width="7" height="7"/><path d="M0 0V7"/></pattern>'
        for kind in ("waiting", "waiting-hidden", "idle")
    )
    + '<pattern id="rank-hidden" class="hidden" width="4" height="4" patternUnits="userSpaceOnUse">'
    '<rect width="4" height="4"/><circle cx="2" cy="2" r="1.1"/></pattern>'
    '<marker id="rank-arrow" viewBox="0 0 8 8" refX="0" refY="4" markerWidth="8" markerHeight="8" '
    'markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0 8 4 0 8z"/></marker></defs></svg>'
)
"""Once on a page."""


def rect(kind: str, percent: float, width: float, y: float = 0, height: float = 24) -> str:
    """A rectangle; position and width in percent of the drawing, the rest in pixels."""
    fill = f' fill="url(#rank-{kind})"' if kind in HATCHED else ""
    return (
        f'<rect class="{kind}" x="{percent:.2f}%" y="{y:g}" width="{max(width, 0.05):.2f}%" height="{height:g}"{fill}/>'
    )


def label(text: str, kind: str, percent: float, width: float, y: float = 16) -> str:
    """Text in the middle of a rectangle; omitted where it does not fit, on a phone or everywhere."""
    if not fitted((text, ""), width / 100 * PAGE_PX):
        return ""
    css = "" if fitted((text, ""), width / 100 * PHONE_PX) else " roomy"
    return f'<text class="on-{kind}{css}" x="{percent + width / 2:.2f}%" y="{y:g}">{escape(text)}</text>'


def row(name: str, drawing: str, described: str, *, height: float = 24, tag: str = "") -> str:
    """A named row of a figure. `described` is its text alternative; `tag` stands beside the name, such as `late`."""
    tagged = f' <strong class="tag">{escape(tag)}</strong>' if tag else ""
    return (
        f'<div class="rank-row"><span>{escape(name)}{tagged}</span><svg width="100%" height="{height:g}" role="img" '
        f'aria-label="{escape(described)}">{drawing}</svg></div>'
    )


def axis(length_us: float, percent: float = 100.0, *, is_wide: bool = False) -> str:
    """A row with the times of an axis that begins at 0; `percent` of the drawing is `length_us` long.

    It is `is_wide` below a drawing without names beside it.
    """
    if length_us <= 0:
        return ""
    marks = "".join(
        f'<line x1="{at:.2f}%" x2="{at:.2f}%" y2="5"/>'
        f'<text class="{"first" if not us else ""}" x="{at:.2f}%" y="18">{escape(_tick_text(us))}</text>'
        for us in ticks_us(0.0, length_us)
        for at in [percent * us / length_us]
    )
    return (
        f'<div class="rank-row{" wide" * is_wide} axis" aria-hidden="true"><span></span>'
        f'<svg width="100%" height="22">{marks}</svg></div>'
    )


def _tick_text(us: float) -> str:
    if us >= 1000:
        return f"{us / 1000:g} ms"
    return f"{us:g} µs" if us else "0"


def figure(caption: str, about: str, body: str, kinds: Iterable[str] = ()) -> Html:
    """A figure with its caption, a line about it, and a legend of the given kinds."""
    told = f'<p class="about">{escape(about)}</p>' if about else ""
    shown = set(kinds)
    entries = "".join(_legend_entry(kind) for kind in KINDS if kind in shown)
    listed = f'<ul class="legend">{entries}</ul>' if entries else ""
    return Html(f'<figure class="ranks"><figcaption>{escape(caption)}</figcaption>{told}{body}{listed}</figure>')


def _legend_entry(kind: str) -> str:
    sample = f'<svg width="22" height="12" aria-hidden="true">{rect(kind, 0, 100, 0, 12)}</svg>'
    return f"<li>{sample}{escape(KINDS[kind])}</li>"


def range_text(times_us: Sequence[float]) -> str:
    """The least and the most of some times: `1.05 ms to 1.23 ms`."""
    least, most = us_text(min(times_us)), us_text(max(times_us))
    return most if least == most else f"{least} to {most}"


def group_text(name: str, members: Iterable[int]) -> str:
    """A group by its name, shortened, and its ranks, as far as the traces tell."""
    listed = members_text(members)
    return " ".join(filter(None, [shortened(name, 16), "" if listed == "[]" else listed]))


def members_text(members: Iterable[int]) -> str:
    """The ranks of a group: `[0, 1]`, `[0 to 63]` or `[0, 8, 16, ... 56]`."""
    ranks = list(members)
    if len(ranks) > 4 and ranks == list(range(ranks[0], ranks[-1] + 1)):
        return f"[{ranks[0]} to {ranks[-1]}]"
    if len(ranks) > 8:
        return f"[{', '.join(map(str, ranks[:3]))}, … {ranks[-1]}]"
    return f"[{', '.join(map(str, ranks))}]"
