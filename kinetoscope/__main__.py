"""The command line of the tool: kinetoscope COMMAND, or python -m kinetoscope COMMAND."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from kinetoscope.program import Command, Program
from kinetoscope.terminal import called
from kinetoscope.trace.errors import TraceError

DESCRIPTION = """\
Reads any trace of the PyTorch profiler, without a GPU and without torch:

  %(prog)s report trace.json.gz                what is slow, why, what a fix saves: one HTML file
  %(prog)s report rank*.json.gz -o ranks.html  the ranks of a job side by side
  %(prog)s merge rank*.json.gz -o job.json.gz   the ranks of a job as one trace
  %(prog)s diff before.json.gz after.json.gz   what changed, kernel by kernel; --gate for CI
  %(prog)s doctor trace.json.gz                what is wrong in it; without a trace: in this machine
  %(prog)s summary trace.json.gz               one table
  %(prog)s open trace.json.gz                  the trace in Perfetto, served from this machine
  %(prog)s decode nvjet_sm90_tst_128x64        the parts of a kernel's name, decoded
  %(prog)s schema report                       for programs: the keys of report --json
  %(prog)s skill                               for agents: which command when, and how to read it
"""
COMMANDS = {
    "report": Command(
        "kinetoscope.report.command", "any trace as one HTML file: what is slow, why, and what fixing it could buy"
    ),
    "summary": Command("kinetoscope.trace.summary", "kernels, launches and busy time of a Kineto trace, plain or gzip"),
    "diff": Command("kinetoscope.compare.diff", "what changed between two traces, kernel by kernel; --gate for CI"),
    "merge": Command("kinetoscope.ranks.command", "the traces of a job's ranks as one trace, for Perfetto and report"),
    "doctor": Command("kinetoscope.doctor.command", "why GPU events are missing: checks this machine, or a trace"),
    "open": Command("kinetoscope.viewer", "show a trace in Perfetto; it does not leave this machine"),
    "decode": Command("kinetoscope.trace.kernel_names", "what a kernel's name says, token by token"),
    "schema": Command("kinetoscope.schema", "the JSON Schema of what a command prints with --json"),
    "skill": Command("kinetoscope.skill", "how an agent uses these commands: a SKILL.md"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code."""
    return Program(
        called(),
        DESCRIPTION,
        COMMANDS,
        "pip install msgspec",
        lambda error: 2 if isinstance(error, TraceError) else None,
        file_command="report",
    ).main(argv)


if __name__ == "__main__":
    sys.exit(main())
