"""The command line of the lab: python -m snippets.lab COMMAND, or profiling-pytorch COMMAND.

Each command is a module with `HELP`, `DESCRIPTION`, `add_arguments(parser)` and `command(arguments)`.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from snippets.lab.experiment import ExperimentError, NeedsGpu, UnknownName, WrongAnswer
from snippets.lab.recording.schema import RecordingError
from snippets.lab.trace.events import TraceError

DESCRIPTION = """\
The instrument behind the book: it records experiments on a GPU, and computes every number on a page from the
recordings under docs/recordings.

  python -m snippets.lab list                                every experiment: recorded, stale or missing
  python -m snippets.lab run mlp/compiled --batch 16         profile one experiment here, GPU or CPU
  python -m snippets.lab record                              record what is stale or missing (needs a GPU)
  python -m snippets.lab summary trace.json.gz               any PyTorch trace in one table
  python -m snippets.lab report trace.json.gz                what is slow in it, and why: one HTML file
  python -m snippets.lab diff before.json.gz after.json.gz   what changed, kernel by kernel; --gate for CI
  python -m snippets.lab doctor                              is this machine able to record? what is wrong in a trace?
  python -m snippets.lab open trace.json.gz                  the same trace in Perfetto, served from this machine
  python -m snippets.lab decode nvjet_sm90_tst_128x64        the parts of a kernel's name, decoded
  python -m snippets.lab claims                              every claim with its verdict
"""
COMMANDS = {
    "list": "snippets.lab.tools.listing",
    "record": "snippets.lab.tools.record",
    "import": "snippets.lab.tools.archive",
    "run": "snippets.lab.tools.run",
    "summary": "snippets.lab.trace.summary",
    "report": "snippets.lab.report.command",
    "diff": "snippets.lab.report.diff",
    "doctor": "snippets.lab.tools.doctor",
    "open": "snippets.lab.tools.viewer",
    "decode": "snippets.lab.trace.kernel_names",
    "claims": "snippets.lab.tools.claims",
    "chapter": "snippets.lab.tools.scaffold",
    "serve": "snippets.lab.tools.serve",
    "prepare": "snippets.lab.tools.prepare",
}
"""Command -> its module."""


def build_parser(names: Sequence[str]) -> argparse.ArgumentParser:
    """The parser for these commands only: importing all of them takes longer than most commands run."""
    parser = argparse.ArgumentParser(
        prog="python -m snippets.lab", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="name", required=True, metavar="COMMAND")
    for name in names:
        module = import_module(COMMANDS[name])
        own = commands.add_parser(
            name,
            help=module.HELP,
            description=module.DESCRIPTION,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(own)
        own.set_defaults(command=module.command)
    return parser


def run_command(argv: Sequence[str]) -> int:
    """Parse and run one command. The caller reports errors."""
    known = [argv[0]] if argv and argv[0] in COMMANDS else list(COMMANDS)
    arguments = build_parser(known).parse_args(argv)
    code: int = arguments.command(arguments)
    return code


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; 0: success, 1: failure, 2: usage error."""
    try:
        try:
            return run_command(sys.argv[1:] if argv is None else argv)
        finally:
            sys.stdout.flush()  # here, where a closed pipe still raises BrokenPipeError
    except (ExperimentError, NeedsGpu, UnknownName, RecordingError, TraceError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except WrongAnswer as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("\nstopped; earlier recordings are unchanged", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
