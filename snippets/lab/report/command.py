"""The command `report`: write a trace's report, or print it as JSON."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from snippets.lab.report.document import report_html
from snippets.lab.report.headline import headline
from snippets.lab.report.subject import Subject, read_subject, report_data
from snippets.lab.trace.events import TraceError
from snippets.lab.trace.text import printable

HELP = "any trace as one HTML file: what is slow, why, and what mending it could buy"
DESCRIPTION = """\
Write a report of a PyTorch trace: a diagnosis with its evidence, who waits for whom, the median step as a timeline,
kernels, operators and, where recorded, source lines, memory and collectives. One HTML file that makes no request.

  python -m snippets.lab report trace.json.gz
  python -m snippets.lab report trace.json.gz -o slow.html
  python -m snippets.lab report trace.json.gz --json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `report`."""
    parser.add_argument("trace", type=Path, metavar="TRACE", help="a .json or .json.gz of the PyTorch profiler")
    parser.add_argument(
        "-o", "--output", metavar="FILE.html", help="where to write; - prints it (default: TRACE's name.report.html)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON; writes a file only with -o")


def command(arguments: argparse.Namespace) -> int:
    """Report on a trace."""
    return report_trace(arguments.trace, arguments.output, as_json=arguments.json)


def report_trace(trace: Path, output: str | None, *, as_json: bool) -> int:
    """Report on one trace; 1 if the file cannot be written. Raises `TraceError` for a file that is not a trace."""
    if as_json and output == "-":
        print("error: --json and -o - both print; give -o a file", file=sys.stderr)
        return 2
    path = None if output == "-" or (as_json and output is None) else output_path(trace, output)
    subject = read_subject(trace)
    if as_json:
        print(json.dumps(report_data(subject), indent=2))
    if output == "-":
        _print(report_html(subject))
    if path is None:
        return 0
    try:
        _write(path, report_html(subject).encode("utf-8"))
    except OSError as error:
        reason = error.strerror or error
        print(f"error: cannot write {printable(str(path))} ({reason}); choose another file with -o", file=sys.stderr)
        return 1
    if not as_json:
        print(report_line(subject, path))
    return 0


def output_path(trace: Path, output: str | None) -> Path:
    """Where the report goes: `output`, or `NAME.report.html` beside `NAME.json.gz`.

    Raises `TraceError` if that would replace the trace or another one.
    """
    name = trace.name.removesuffix(".gz").removesuffix(".json")
    path = trace.with_name(f"{name}.report.html") if output is None else Path(output)
    is_same = path.exists() and trace.exists() and path.samefile(trace)
    if is_same or path.suffix.lower() in (".json", ".gz"):
        raise TraceError(f"{path}: a report would replace a trace; give -o a name that ends in .html")
    if path.is_dir():
        raise TraceError(f"{path}: is a folder; give -o a file in it, such as {path / 'report.html'}")
    return path


def report_line(subject: Subject, path: Path) -> str:
    """The line that the command prints: headline, number of findings, file."""
    count = len(subject.diagnosis.findings)
    findings = f"{count} finding{'' if count == 1 else 's'}"
    return printable(f"{headline(subject)} {findings}: {path}")


def _print(html: str) -> None:
    """Print UTF-8 bytes, whatever the terminal's encoding."""
    sys.stdout.flush()
    sys.stdout.buffer.write(html.encode("utf-8"))
    sys.stdout.buffer.flush()


def _write(path: Path, content: bytes) -> None:
    """Replace `path` atomically: a reader sees the old file or the new one, and a full disk leaves the old one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
