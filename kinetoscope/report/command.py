"""The command `report`: write a trace's report, or print it as JSON."""

from __future__ import annotations

import argparse
import sys
import webbrowser
from collections.abc import Sequence
from pathlib import Path

from kinetoscope.exit_codes import OK
from kinetoscope.files import write_output
from kinetoscope.ranks.joined import is_merged
from kinetoscope.report.diagnosed import DiagnosedTrace, read_diagnosed
from kinetoscope.report.document import report_html, several_html
from kinetoscope.report.fail_on import exit_code
from kinetoscope.report.headline import headline
from kinetoscope.report.output import output_path
from kinetoscope.report.several import MultiReport, is_several, reduce_to_digest, report_several
from kinetoscope.report.site import VARIABLE, default_site, site_address
from kinetoscope.report.trace_report import trace_report
from kinetoscope.trace.documents import add_top, document_text
from kinetoscope.trace.events import TraceError
from kinetoscope.trace.kineto import no_collection
from kinetoscope.trace.progress import Progress, notice
from kinetoscope.trace.text import printable

DESCRIPTION = """\
Write a report of a PyTorch trace: a diagnosis with its evidence, who waits for whom, the median step as a timeline,
kernels, operators and, where recorded, source lines, memory and collectives. One HTML file that makes no request.

  %(prog)s trace.json.gz
  %(prog)s trace.json.gz --open
  %(prog)s trace.json.gz -o slow.html
  %(prog)s trace.json.gz --json
  %(prog)s trace.json.gz --json --top all
  %(prog)s trace.json.gz --fail-on high

JSON is brief, unless --top says how many rows a list has. With --fail-on, exit with 1 if a finding has this severity or
a higher one: high may save a fifth of a step, medium a twentieth. Findings that cost their time once, such as a cold
first step, do not count.

Of several traces: the ranks of one job side by side, with who is late and what it costs, if all ranks are known and
different, and their world sizes equal and not 1, or if two files without a rank were recorded at one time and
communicate; otherwise two traces compared. A digest holds what that needs of a trace, about 200 KB, and takes its
place; digests of ranks merge, in any order and any tree.

  %(prog)s before.json.gz after.json.gz -o compared.html
  %(prog)s rank3.json.gz --digest-only -o 3.digest.json
  %(prog)s *.digest.json --digest-only -o all.digest.json
  %(prog)s *.digest.json -o ranks.html
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `report`."""
    parser.add_argument(
        "traces", type=Path, nargs="+", metavar="TRACE", help="a .json or .json.gz of the PyTorch profiler, or a digest"
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE.html",
        help="where to write; - prints it (default: NAME.report.html next to the trace)",
    )
    parser.add_argument("--open", action="store_true", help="show the report in the browser")
    parser.add_argument("--json", action="store_true", help="print JSON; writes a file only with -o")
    add_top(parser, "brief")
    parser.add_argument(
        "--fail-on",
        choices=("high", "medium", "low"),
        metavar="SEVERITY",
        help="exit with 1 if a finding is high, medium or low, or above; with 3 if the file is damaged",
    )
    parser.add_argument(
        "--site",
        type=site_address,
        default=default_site(),
        metavar="URL",
        help=f"address of the book, to whose pages findings lead (default: {VARIABLE}, else the package's, if any)",
    )
    parser.add_argument("--digest-only", action="store_true", help="write only a digest, to -o FILE")
    parser.add_argument(
        "--capture",
        type=Path,
        metavar="CAPTURE",
        help="a trace of the capture of TRACE's CUDA graphs, or without graphs: names the operators of replays",
    )
    parser.add_argument("--rank", type=int, metavar="N", help="with --digest-only: the rank, if the trace has none")


def command(arguments: argparse.Namespace) -> int:
    """Report on one trace or several: write or print it, after checking that its output is possible."""
    traces, output = arguments.traces, arguments.output
    if arguments.digest_only:
        return _write_digest(traces, output, arguments.rank)
    if arguments.rank is not None:
        raise TraceError("--rank goes with --digest-only")
    if arguments.capture is not None and is_several(traces):
        raise TraceError("--capture goes with one trace")
    if output is None and not arguments.json and is_several(traces) and not (len(traces) == 1 and is_merged(traces[0])):
        raise TraceError("give -o FILE.html: several traces have no name of their own")
    if arguments.json and output == "-":
        raise TraceError("--json and -o - both print; give -o a file")
    path = None if output == "-" or (arguments.json and output is None) else output_path(traces[0], output)
    if arguments.open and path is None:
        raise TraceError("--open shows a file; give -o FILE.html")
    with Progress(traces[0].name) as progress, no_collection():
        report = (
            report_several(traces, arguments.site)
            if is_several(traces)
            else read_diagnosed(traces[0], capture=arguments.capture, progress=progress, book=arguments.site)
        )
        code = OK if arguments.fail_on is None else exit_code(report, arguments.fail_on)
        html = "" if path is None and output != "-" else _html(report, progress)
    for warning in report.warnings if isinstance(report, MultiReport) else ():
        print(printable(f"note: {warning}"), file=sys.stderr)
    if arguments.json:
        document = report.document if isinstance(report, MultiReport) else trace_report(report)
        print(document_text(document, arguments.top))
    if output == "-":
        _print(html)
    if path is not None:
        write_output(path, html.encode("utf-8"), is_named=output is not None)
        if not arguments.json:
            notice(report_line(report, path))
    if arguments.open and path is not None:
        _open(path)
    return code


def _html(report: MultiReport | DiagnosedTrace, progress: Progress) -> str:
    return several_html(report) if isinstance(report, MultiReport) else report_html(report, progress)


def _write_digest(traces: Sequence[Path], output: str | None, rank: int | None) -> int:
    if output is None or output == "-":
        raise TraceError("--digest-only needs -o FILE")
    ranks = reduce_to_digest(traces, Path(output), rank).ranks
    notice(f"digest of {len(ranks)} rank{'' if len(ranks) == 1 else 's'}: {output}")
    return 0


def report_line(report: MultiReport | DiagnosedTrace, path: Path) -> str:
    """The command's output line: headline, of one trace the number of findings, file."""
    if isinstance(report, MultiReport):
        return printable(f"{report.headline} {path}")
    count = len(report.diagnosis.findings)
    return printable(f"{headline(report)} {count} finding{'' if count == 1 else 's'}: {path}")


def _open(path: Path) -> None:
    address = path.resolve().as_uri()
    if not webbrowser.open(address):
        print(f"no browser here; open the report in one: {address}")


def _print(html: str) -> None:
    """Print UTF-8 bytes in any terminal encoding."""
    sys.stdout.flush()
    sys.stdout.buffer.write(html.replace("##[", "#&#35;[").encode("utf-8"))  # a command in GitHub's logs
    sys.stdout.buffer.flush()
