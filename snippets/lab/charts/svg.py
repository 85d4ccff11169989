"""Matplotlib figures as inline SVG: text stays text, colors become CSS variables, ids get a prefix.

We draw with placeholder colors that no chart uses and replace them by CSS variables, so that one drawing works in both
color schemes. The first chart imports matplotlib, because little else needs it.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from kinetoscope.html import Html
from kinetoscope.timeline.canvas import PATTERNS, pattern
from kinetoscope.trace.text import shortened
from kinetoscope.trace.units import format_value
from snippets.lab.cache import cached, code_key

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


WIDTH = 350
"""Width in units. On a phone, even in a fold within a fold, text of `TEXT` units is 11 px high."""
TEXT = 14
LETTER = 0.58 * TEXT
"""Approximate width of a letter in a wide font; the page's font is narrower, so text that fits here fits there."""
INK, PAPER, GRID, BAND = "#010001", "#010002", "#010003", "#010004"
WORK_KINDS = ("gemm", "pointwise", "copy", "other", "call", "gpu")
MEMORY_KINDS = ("parameters", "states", "gradients", "activations", "temporaries", "others", "used", "free")
KINDS = (*WORK_KINDS, *MEMORY_KINDS)
"""The kind of a color. Kernels and bytes differ by pattern as well, as in a timeline; the GPU as a whole is ink."""
FILLS: Mapping[str, str] = {kind: f"#0200{position:02}" for position, kind in enumerate(KINDS)}
EDGES: Mapping[str, str] = {kind: f"#0300{position:02}" for position, kind in enumerate(KINDS)}
MEMORY_PATTERNS: Mapping[str, str] = {
    "states": PATTERNS["pointwise"],
    "activations": PATTERNS["copy"],
    "temporaries": PATTERNS["other"],
    "free": PATTERNS["idle"],
}
"""Hatch over the color of a kind of bytes, as in `PATTERNS`."""
VARIABLES: Mapping[str, str] = {
    INK: "--chart-ink",
    PAPER: "--md-default-bg-color",
    GRID: "--chart-grid",
    BAND: "--chart-band",
    **{color: "--gpu" if kind == "gpu" else f"--{kind}-kind" for kind, color in FILLS.items()},
    **{color: "--gpu" if kind == "gpu" else f"--{kind}-edge" for kind, color in EDGES.items()},
}
"""Placeholder -> CSS variable: the kinds' in assets/css/drawing.css and colors.css, the others in charts.css."""
_STYLE = {
    "axes.axisbelow": True,
    "axes.facecolor": "none",
    "axes.labelcolor": INK,
    "axes.spines.left": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.spines.bottom": False,
    "figure.facecolor": "none",
    "font.size": TEXT,
    "grid.color": GRID,
    "svg.fonttype": "none",
    "text.color": INK,
    "text.parse_math": False,  # kernel names may contain $
    "xtick.color": INK,
    "xtick.major.size": 0,
    "ytick.color": INK,
    "ytick.major.size": 0,
}
_LEFT_OUT = {"metadata", "style", "clipPath"}
_UNSAID = {"font-family", "stroke-dashoffset", "stroke-linecap", "stroke-linejoin"}
_DEFAULTS = {("font-size", f"{TEXT}px"), ("text-anchor", "start"), ("fill", INK)}
"""Attributes of text that charts.css sets for all text."""


def draw(
    height: float,
    paint: Callable[[Figure], None],
    *,
    ident: str,
    title: str,
    description: str,
    data: object = None,
) -> Html:
    """Let `paint` fill a figure of `WIDTH` x `height` units and return it as one `<svg role="img">`.

    Args:
        height: in units.
        paint: draws into an empty figure.
        ident: prefix of all ids in it; unique on the page.
        title: its name for a screen reader.
        description: a description for a screen reader.
        data: all inputs of `paint`, with a complete `repr`; the next build then reuses the drawing. Drawing all
            charts of the book takes 3 s, a third of a build (2 cores).
    """
    if data is None:
        return _drawn(height, paint, ident, title, description)
    code = code_key(Path(__file__).parent, Path(format_value.__code__.co_filename))
    key = ("svg", version("matplotlib"), code, height, ident, title, description, data)
    return Html(cached(key, lambda: _drawn(height, paint, ident, title, description)))


def _drawn(height: float, paint: Callable[[Figure], None], ident: str, title: str, description: str) -> Html:
    from matplotlib import style
    from matplotlib.figure import Figure

    buffer = io.BytesIO()
    with style.context(_STYLE, after_reset=True), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # the page's fonts may have it
        figure = Figure(figsize=(WIDTH / 72, height / 72))
        paint(figure)
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return _inlined(buffer.getvalue(), ident, title, description)


def plot(figure: Figure, left: float, top: float, width: float, height: float) -> Axes:
    """Axes at a position in units from the top left corner."""
    across, down = (size * 72 for size in figure.get_size_inches())
    return figure.add_axes((left / across, 1 - (top + height) / down, width / across, height / down))


def canvas(figure: Figure, top: float, height: float) -> Axes:
    """A full-width strip without axes; its coordinates are units from its top left corner."""
    strip = plot(figure, 0, top, WIDTH, height)
    strip.set(xlim=(0, WIDTH), ylim=(height, 0))
    strip.set_axis_off()
    return strip


def columns(axes: Axes, ticks: Sequence[tuple[float, str]], title: str) -> None:
    """Draw vertical lines at `ticks`, (position, label); shift labels that would leave the drawing."""
    axes.set_xticks([position for position, _ in ticks], [text for _, text in ticks])
    axes.set_xlabel(title)
    axes.grid(axis="x", linewidth=1)
    (low, high), box = axes.get_xlim(), axes.get_position()
    for mark, (position, text) in zip(axes.get_xticklabels(), ticks, strict=True):
        at = (box.x0 + box.width * (position - low) / (high - low)) * WIDTH
        half = len(text) * LETTER / 2
        mark.set_horizontalalignment("left" if at < half else "right" if at > WIDTH - half else "center")


def rows(axes: Axes, ticks: Sequence[tuple[float, str]]) -> None:
    """Draw horizontal lines at `ticks`, (position, label)."""
    axes.set_yticks([position for position, _ in ticks], [text for _, text in ticks])
    axes.grid(axis="y", linewidth=1)


def plain(value: float, unit: str) -> str:
    """Format a round amount without trailing zeros: `10 µs`, `2.5 ms`."""
    digits, _, name = format_value(float(value), unit).partition(" ")
    return f"{digits.rstrip('0').rstrip('.') if '.' in digits else digits} {name}"


def label(text: str, width: int = 60) -> str:
    """Text on one line, without control characters, shortened in the middle to `width` characters."""
    line = "".join(sign if sign.isprintable() else " " for sign in text)
    return shortened(line, width)


def _inlined(content: bytes, ident: str, title: str, description: str) -> Html:
    drawn = ElementTree.fromstring(content)
    names = {name: f"{ident}-{position}" for position, name in enumerate(_referenced(drawn), 1)}
    root = Element(
        "svg",
        {
            "viewBox": drawn.attrib["viewBox"],
            "role": "img",
            "aria-labelledby": f"{ident}-title {ident}-desc",
            "stroke-linejoin": "round",
        },
    )
    for tag, text in (("title", title), ("desc", description)):
        ElementTree.SubElement(root, tag, {"id": f"{ident}-{tag}"}).text = label(text, len(text))
    root.extend(_together(child for element in drawn for child in _kept(element, names)))
    return _patterned(ElementTree.tostring(root, encoding="unicode"), ident)


def _patterned(drawing: str, ident: str) -> Html:
    """The drawing with the pattern of each kind over its color."""
    defs = ""
    for kind, strokes in (*PATTERNS.items(), *MEMORY_PATTERNS.items()):
        plain = f"fill:var(--{kind}-kind)"
        if plain in drawing:
            drawing = drawing.replace(plain, f"fill:url(#{ident}-{kind})")
            defs += pattern(ident, kind, strokes)
    return Html(drawing.replace("</desc>", f"</desc><defs>{defs}</defs>", 1) if defs else drawing)


def _referenced(drawn: Element) -> Iterator[str]:
    """The ids that the drawing references, without repeats, in order of first use."""
    seen = set()
    for element in drawn.iter():
        for key, value in element.attrib.items():
            references = re.findall(r"url\(#(\w+)\)", value) if not key.endswith("href") else [value[1:]]
            for name in references:
                if name not in seen and key != "clip-path":
                    seen.add(name)
                    yield name


def _kept(element: Element, names: Mapping[str, str]) -> list[Element]:
    """Strip attributes that only matplotlib needs; replace a group without attributes by its content."""
    tag = _local(element.tag)
    children = [kept for child in element for kept in _kept(child, names)]
    attributes = _attributes(tag, element.attrib, names)
    if tag in _LEFT_OUT or (tag in ("g", "defs") and not children) or attributes.get("style") == "fill:none":
        return []
    if tag == "g" and not attributes:
        return children
    kept = Element(tag, attributes)
    kept.text = element.text if tag == "text" else None
    kept.extend(children)
    return [kept]


def _attributes(tag: str, given: Mapping[str, str], names: Mapping[str, str]) -> dict[str, str]:
    attributes: dict[str, str] = {}
    style: dict[str, str] = {}
    for key, value in ((_local(key), value) for key, value in given.items()):
        if key == "style":
            style |= dict(part.split(": ", 1) for part in value.split("; "))
        elif key == "fill":
            style[key] = value
        elif key == "href":
            attributes[key] = f"#{names[value[1:]]}"
        elif key == "id" and value in names:
            attributes[key] = names[value]
        elif key not in ("id", "clip-path") and not value.startswith("rotate(-0"):
            attributes[key] = _rounded(value)
    declarations = [f"{key}:{_of_page(value, names)}" for key, value in style.items() if _is_declared(tag, key, value)]
    return attributes | ({"style": ";".join(declarations)} if declarations else {})


def _is_declared(tag: str, key: str, value: str) -> bool:
    """Whether a property must be written: not a default, and not a stroke that the marker sets itself."""
    if tag == "use" and not key.startswith("fill"):
        return False
    return key not in _UNSAID and not (tag == "text" and (key, value) in _DEFAULTS)


def _together(elements: Iterable[Element]) -> Iterator[Element]:
    """Group neighbors of the same style and write the style once, on the group."""
    for style, run in groupby(elements, key=lambda element: element.get("style")):
        members = list(run)
        if style is None or len(members) == 1:
            yield from members
            continue
        group = Element("g", {"style": style})
        for element in members:
            del element.attrib["style"]
            group.append(element)
        yield group


def _of_page(value: str, names: Mapping[str, str]) -> str:
    if value in VARIABLES:
        return f"var({VARIABLES[value]})"
    return re.sub(r"url\(#(\w+)\)", lambda match: f"url(#{names[match[1]]})", value)


def _rounded(value: str) -> str:
    """Round coordinates to 0.1 unit, which is invisible, and drop extra spaces: a third of the bytes."""
    short = re.sub(r"-?\d+\.\d+", lambda match: f"{float(match[0]):.1f}".removesuffix(".0"), value)
    return re.sub(r"\s*([MLCQzZ])\s*", r"\1", " ".join(short.split()))


def _local(name: str) -> str:
    return name.rpartition("}")[2]
