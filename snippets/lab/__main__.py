"""The command line of the book: python -m snippets.lab COMMAND. Any trace is read by a tool of its own, kinetoscope."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from kinetoscope.program import Command, Program

DESCRIPTION = """\
The instrument behind the book. It records experiments on a GPU, and computes every number on a page from the recordings
under docs/recordings:

  %(prog)s list                         every experiment: recorded, stale or missing
  %(prog)s run mlp/compiled --batch 16  profile one experiment here, GPU or CPU
  %(prog)s record                       record what is stale or missing (needs a GPU)
  %(prog)s claims                       every claim with its verdict

What is slow in a trace of your own: python -m kinetoscope --help
"""
COMMANDS = {
    "list": Command("snippets.lab.tools.listing", "experiments by device: recorded, stale, missing"),
    "record": Command("snippets.lab.tools.record", "record experiments on this machine's GPU"),
    "import": Command("snippets.lab.tools.archive", "unpack an archive of recordings after checking it"),
    "run": Command(
        "snippets.lab.tools.run",
        "profile one experiment on this machine, print the profiler's table, write its trace",
    ),
    "try": Command("snippets.lab.tools.trial", "run experiments for a few steps on this machine, and record nothing"),
    "claims": Command("snippets.lab.tools.claims", "the ledger: every claim with its verdict"),
    "chapter": Command("snippets.lab.tools.scaffold", "lay out a new chapter with a working example: make chapter"),
    "serve": Command(
        "snippets.lab.tools.serve", "preview the site while you write, rebuilding what you save: make serve"
    ),
    "prepare": Command("snippets.lab.tools.prepare", "the first step of make docs: record if there is a GPU"),
    "finish": Command(
        "snippets.lab.tools.finish", "the last step of make docs: what MkDocs built, completed and checked"
    ),
    "wheel": Command("snippets.lab.tools.wheel", "build the wheel and the sdist of kinetoscope: make wheel"),
}


def exit_code(error: Exception) -> int | None:
    """2 if what was given or recorded cannot be used, 1 for a wrong answer."""
    from kinetoscope.trace.errors import TraceError
    from snippets.lab.experiment import ExperimentError, NeedsGpu, UnknownName, WrongAnswer
    from snippets.lab.recording.schema import RecordingError  # inside: help needs no package

    if isinstance(error, ExperimentError | NeedsGpu | UnknownName | RecordingError | TraceError):
        return 2
    return 1 if isinstance(error, WrongAnswer) else None


BOOK = Program(
    "python -m snippets.lab",
    DESCRIPTION,
    COMMANDS,
    "make setup",
    exit_code,
    on_interrupt="stopped; every recording is whole, the old or the new one",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; its exit code."""
    return BOOK.main(argv)


if __name__ == "__main__":
    sys.exit(main())
