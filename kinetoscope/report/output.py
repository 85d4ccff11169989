"""Where a report is written. Two traces never get one file, unless somebody names it."""

from __future__ import annotations

from html import escape
from pathlib import Path

from kinetoscope.files import require_plain
from kinetoscope.terminal import CommandError
from kinetoscope.trace.events import TraceError
from kinetoscope.trace.text import visible

_HEAD_BYTES = 8192
"""The first bytes of a report, with the name of its trace: at most 255 bytes, escaped."""


def output_path(trace: Path, output: str | None) -> Path:
    """The file for the report: `output`, or one next to the trace.

    Raises `TraceError` if it would replace the trace or another trace, or if the trace is a folder; `CommandError` if
    what lies next to the trace is another file.
    """
    if trace.is_dir():
        raise TraceError(f"{trace}: is a folder; give a trace in it, a .json or .json.gz")
    path = _path_beside(trace) if output is None else Path(output)
    is_same = path.exists() and trace.exists() and path.samefile(trace)
    if is_same or path.suffix.lower() in (".json", ".gz"):
        raise TraceError(f"{path}: a report would replace a trace; give -o a name that ends in .html")
    if path.is_dir():
        raise TraceError(f"{path}: is a folder; give -o a file in it, such as {path / 'report.html'}")
    return path


def source_tag(name: str) -> str:
    """The line in a report that names its trace."""
    return visible(f'<meta name="source" content="{escape(name)}">')


def _path_beside(trace: Path) -> Path:
    """`a.report.html` next to `a.json.gz`, or `a.json.gz.report.html` if the first is a report on another trace."""
    name = trace.name.removesuffix(".gz").removesuffix(".json")
    for path in (trace.with_name(f"{name}.report.html"), trace.with_name(f"{trace.name}.report.html")):
        require_plain(path)
        if not path.exists() or _is_report_on(trace.name, path):
            return path
    raise CommandError(f"{path} is not a report on {trace.name}; name a file with -o")


def _is_report_on(name: str, path: Path) -> bool:
    with path.open("rb") as file:
        return source_tag(name).encode() in file.read(_HEAD_BYTES)
