"""The command `merge`: the traces of a job's ranks as one file."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from kinetoscope.ranks.joining import merge_ranks
from kinetoscope.ranks.rank_files import notes
from kinetoscope.terminal import called
from kinetoscope.trace.progress import notice
from kinetoscope.trace.text import printable

DESCRIPTION = """\
Merge the traces of a job's ranks into one file, which Perfetto shows on one time axis. Process ids, flows and
correlations get the digits of their rank, processes its name, and no event is lost.

  %(prog)s rank*.json.gz -o job.json.gz

The command open shows the file, and report reads it like the ranks' own files. A rank is that of distributedInfo in the
trace, else of the file's name, such as rank3.json.gz. Digests are merged by report.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `merge`."""
    parser.add_argument(
        "traces", type=Path, nargs="+", metavar="TRACE", help="a .json or .json.gz of the PyTorch profiler, one a rank"
    )
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="FILE", help="where to write: a .json.gz, or a .json"
    )


def command(arguments: argparse.Namespace) -> int:
    """Merge the ranks, and print what was merged, on standard error what is missing or damaged."""
    files = merge_ranks(arguments.traces, arguments.output)
    for note in notes(files):
        print(printable(f"note: {note}"), file=sys.stderr)
    events = sum(file.events for file in files)
    notice(f"{len(files)} ranks, {events:,} events: {arguments.output}")
    notice(f"to look at it: {called()} open {arguments.output}")
    return 0
