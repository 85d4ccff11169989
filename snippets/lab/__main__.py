"""The command line of the lab: python -m snippets.lab COMMAND, or profiling-pytorch COMMAND.

Each command is a module with `HELP`, `DESCRIPTION`, `add_arguments(parser)` and `command(arguments)`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

from kinetoscope.terminal import (
    DEBUG,
    DEBUG_HELP,
    CommandError,
    Parser,
    describe_os_error,
    discard,
    flush_or_discard,
    print_error,
    require_outputs,
    split_debug,
)
from kinetoscope.trace.events import TraceError
from snippets.lab.experiment import ExperimentError, NeedsGpu, UnknownName, WrongAnswer
from snippets.lab.recording.schema import RecordingError

DESCRIPTION = """\
The instrument behind the book. It reads any trace of the PyTorch profiler, without a GPU and without torch:

  python -m snippets.lab report trace.json.gz                what is slow, why, what mending it saves: one HTML file
  python -m snippets.lab report rank*.json.gz -o ranks.html  the ranks of a job side by side
  python -m snippets.lab diff before.json.gz after.json.gz   what changed, kernel by kernel; --gate for CI
  python -m snippets.lab doctor trace.json.gz                what is wrong in it; without a trace: in this machine
  python -m snippets.lab summary trace.json.gz               one table
  python -m snippets.lab open trace.json.gz                  the trace in Perfetto, served from this machine
  python -m snippets.lab decode nvjet_sm90_tst_128x64        the parts of a kernel's name, decoded

It records experiments on a GPU, and computes every number on a page from the recordings under docs/recordings:

  python -m snippets.lab list                                every experiment: recorded, stale or missing
  python -m snippets.lab run mlp/compiled --batch 16         profile one experiment here, GPU or CPU
  python -m snippets.lab record                              record what is stale or missing (needs a GPU)
  python -m snippets.lab claims                              every claim with its verdict
"""
COMMANDS = {
    "list": "snippets.lab.tools.listing",
    "record": "snippets.lab.tools.record",
    "import": "snippets.lab.tools.archive",
    "run": "snippets.lab.tools.run",
    "summary": "kinetoscope.trace.summary",
    "report": "kinetoscope.report.command",
    "diff": "kinetoscope.compare.diff",
    "doctor": "kinetoscope.doctor.command",
    "open": "kinetoscope.viewer",
    "decode": "kinetoscope.trace.kernel_names",
    "claims": "snippets.lab.tools.claims",
    "chapter": "snippets.lab.tools.scaffold",
    "serve": "snippets.lab.tools.serve",
    "prepare": "snippets.lab.tools.prepare",
}
"""Command -> its module."""


UNUSABLE = (ExperimentError, NeedsGpu, UnknownName, RecordingError, TraceError)
"""What was given or recorded cannot be used."""


def build_parser(names: Sequence[str]) -> Parser:
    """The parser for these commands only: importing all of them takes longer than most commands run."""
    form = argparse.RawDescriptionHelpFormatter
    parser = Parser(prog="python -m snippets.lab", description=DESCRIPTION, epilog=DEBUG_HELP, formatter_class=form)
    commands = parser.add_subparsers(dest="name", required=True, metavar="COMMAND")
    for name in names:
        module = import_module(COMMANDS[name])
        own = commands.add_parser(
            name, help=module.HELP, description=module.DESCRIPTION, epilog=DEBUG_HELP, formatter_class=form
        )
        module.add_arguments(own)
        own.set_defaults(command=module.command)
    return parser


def run_command(argv: Sequence[str]) -> int:
    """Parse and run one command, and flush what it printed: here, a closed pipe still raises."""
    known = [argv[0]] if argv and argv[0] in COMMANDS else list(COMMANDS)
    try:
        arguments = build_parser(known).parse_args(argv)
        code: int = arguments.command(arguments)
    except SystemExit:  # of argparse, after help or a usage error
        sys.stdout.flush()
        raise
    sys.stdout.flush()
    return code


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; 0: success, 1: failure, 2: usage error, 130: Ctrl-C. The one place that reports errors."""
    arguments, debug = split_debug(sys.argv[1:] if argv is None else argv)
    try:
        require_outputs()
        return run_command(arguments)
    except BrokenPipeError:
        discard(sys.stdout)
        return 0
    except KeyboardInterrupt:
        print("\nstopped; every recording is whole, the old or the new one", file=sys.stderr)
        return 130
    except Exception as error:
        code, message = describe(error)
        flush_or_discard()
        print_error(message, debug)
        return code


def describe(error: Exception) -> tuple[int, str]:
    """The exit code and the line for an error."""
    if isinstance(error, UNUSABLE):
        return 2, str(error)
    if isinstance(error, CommandError):
        return error.exit_code, str(error)
    if isinstance(error, WrongAnswer):
        return 1, str(error)
    if isinstance(error, OSError):
        return 1, describe_os_error(error)
    if isinstance(error, ModuleNotFoundError):
        return 1, f"{error}; install what is missing: make setup"
    if isinstance(error, MemoryError):
        return 1, "not enough memory; give a smaller file, or end other programs"
    return 1, f"{type(error).__name__}: {error}; run the command again with {DEBUG} to see where"


if __name__ == "__main__":
    sys.exit(main())
