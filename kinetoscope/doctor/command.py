"""The command `doctor`: check whether this machine can record, or what is missing or wrong in a trace."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from kinetoscope.doctor.checks import Check, DoctorDocument, checks_text, is_ok
from kinetoscope.doctor.machine_checks import check_machine, machine_verdict
from kinetoscope.doctor.machine_facts import MachineFacts, probe_machine
from kinetoscope.doctor.trace_checks import check_ranks, check_trace, trace_verdict
from kinetoscope.exit_codes import NO, OK
from kinetoscope.ranks.joined import is_merged, read_ranks
from kinetoscope.terminal import called, quoted
from kinetoscope.trace.documents import document_text
from kinetoscope.trace.errors import TraceError
from kinetoscope.trace.kineto import read_trace

DESCRIPTION = """\
Without a trace: is this machine able to record? Checks torch, driver, permissions, CUPTI and other profilers, and
records a tiny profile where there is a GPU. With a trace: what is missing or wrong in it. Each line is ok, a warning or
failed, with its cure. Exits with 1 if a line failed.

  %(prog)s
  %(prog)s trace.json.gz --json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `doctor`."""
    parser.add_argument("trace", nargs="*", type=Path, metavar="TRACE", help="a trace; without, this machine")
    parser.add_argument("--json", action="store_true", help="print JSON")


def command(arguments: argparse.Namespace) -> int:
    """Check this machine, or a trace."""
    if not arguments.trace:
        return print_machine(probe_machine(), arguments.json)
    if len(arguments.trace) > 1:
        raise TraceError(
            f"give one trace at a time: {called()} doctor {quoted(str(arguments.trace[0]))}; of ranks, the file that "
            "merge writes"
        )
    path = arguments.trace[0]
    checks = _check_ranks(path) if is_merged(path) else check_trace(read_trace(path))
    return _print(doctor_document(checks, trace_verdict(checks), path.name), arguments.json)


def _check_ranks(path: Path) -> list[Check]:
    """The checks of a merged file; no more than one rank of it is in memory."""
    return check_ranks({trace.rank or 0: check_trace(trace) for trace in read_ranks(path)})


def print_machine(facts: MachineFacts, as_json: bool = False) -> int:
    """Print the checks of a machine; return 0 if it can record, else 1."""
    checks = check_machine(facts)
    return _print(doctor_document(checks, machine_verdict(checks, facts)), as_json)


def doctor_document(checks: Sequence[Check], verdict: str, file: str = "") -> DoctorDocument:
    """The document of checks of a trace's file with this name, or of a machine."""
    return DoctorDocument(
        subject="trace" if file else "machine", file=file, verdict=verdict, ok=is_ok(checks), checks=tuple(checks)
    )


def _print(document: DoctorDocument, as_json: bool) -> int:
    print(document_text(document) if as_json else checks_text(document.checks, document.verdict))
    return OK if document.ok else NO
