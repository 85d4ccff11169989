"""The command `claims`: the ledger, for people or as JSON."""

from __future__ import annotations

import argparse

from snippets.lab.page.ledger import print_claims
from snippets.lab.recording.device import recordings_root
from snippets.lab.tools.listing import known_device

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
    """Print the ledger."""
    root = recordings_root()
    device = known_device(root, arguments.device).name if arguments.device else None
    return print_claims(root, device, as_json=arguments.json, check=arguments.check)
