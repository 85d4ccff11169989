"""The command `claims`: every claim with its verdict."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter

from snippets.lab.finding.book import Verdict, verdicts
from snippets.lab.finding.claim import STATUSES
from snippets.lab.finding.device import all_devices
from snippets.lab.page.ledger import verdict_data
from snippets.lab.recording.device import recordings_root
from snippets.lab.tools.listing import known_device
from snippets.lab.trace.text import printable

HELP = "the ledger: every claim with its verdict"
DESCRIPTION = """\
Print every claim of the book with its verdict on every recorded device: holds, differs, inconclusive or not measured.

  python -m snippets.lab claims --device nvidia-h200 --json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `claims`."""
    parser.add_argument("--device", help="only this device, for example nvidia-h200")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a verdict is not the expected one")


def command(arguments: argparse.Namespace) -> int:
    """Print the ledger; with `--check`, return 1 if a verdict is not the expected one."""
    root = recordings_root()
    devices = (known_device(root, arguments.device),) if arguments.device else all_devices(root)
    ledger = [verdict for device in devices for verdict in verdicts(device)]
    if arguments.json:
        print(json.dumps([verdict_data(verdict) for verdict in ledger], indent=1, ensure_ascii=False))
    else:
        _print_lines(ledger)
    flipped = [verdict for verdict in ledger if not verdict.is_expected]
    for verdict in flipped if arguments.check else ():
        print(
            f"{verdict.claim.id} on {verdict.device.name}: {verdict.status}, but the prose was written for "
            f"{verdict.claim.expected_on(verdict.device.name)}; read {verdict.chapter}'s page and findings.py again",
            file=sys.stderr,
        )
    return 1 if arguments.check and flipped else 0


def _print_lines(ledger: list[Verdict]) -> None:
    for verdict in ledger:
        measured = printable(verdict.measured.text if verdict.measured else verdict.reason)
        name, claim = verdict.device.name, verdict.claim
        print(f"{name:14} {claim.id:5} {verdict.status:13} {measured:24}  {claim.sentence}")
    counts = Counter(verdict.status for verdict in ledger)
    print(", ".join(f"{counts[status]} {status}" for status in STATUSES))
