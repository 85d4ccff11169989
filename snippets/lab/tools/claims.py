"""The command `claims`: every claim with its verdict, and whether the verdict is accepted."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from kinetoscope.terminal import CommandError
from kinetoscope.trace.text import json_text, printable
from snippets.lab.finding.accepted import accept_statuses, accepted_statuses
from snippets.lab.finding.book import Verdict, findings, judge, judge_all
from snippets.lab.finding.claim import STATUSES, Status
from snippets.lab.finding.device import Device, all_devices
from snippets.lab.page.kept import keep, kept, look
from snippets.lab.page.ledger import verdict_data
from snippets.lab.recording.device import recordings_root
from snippets.lab.recording.schema import RecordingError
from snippets.lab.tools.listing import known_device

DESCRIPTION = """\
Print every claim of the book with its verdict on every recorded device: holds, differs, is inconclusive,
cannot be tested or is not measured. With a chapter, print its claims only.

  python -m snippets.lab claims mlp
  python -m snippets.lab claims --device nvidia-h200 --json

The statuses accepted for a device are in docs/recordings/<device>/accepted.json. --check compares with them. A device
without this file is new: it differs where it differs, and --check passes. After you record, read the text beside each
claim that changed, then accept:

  python -m snippets.lab claims --check
  python -m snippets.lab claims --accept --device nvidia-h200
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `claims`."""
    parser.add_argument("chapter", nargs="?", default="", metavar="CHAPTER", help="only this chapter, for example mlp")
    parser.add_argument("--device", help="only this device, for example nvidia-h200")
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--json", action="store_true", help="print JSON")
    instead.add_argument("--accept", action="store_true", help="accept each verdict, and print which ones changed")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a verdict is not the accepted one")


def command(arguments: argparse.Namespace) -> int:
    """Print the ledger or accept it; with `--check`, return 1 if a verdict differs from the accepted verdict.

    Raises `UnknownName` for an unknown chapter, `CommandError` for a chapter with `--accept`.
    """
    if arguments.chapter and arguments.accept:
        raise CommandError("--accept accepts all chapters of a device; leave out the chapter", exit_code=2)
    root = recordings_root()
    devices = (known_device(root, arguments.device),) if arguments.device else all_devices(root)
    if arguments.json:
        print(claims_json(root, devices, arguments.chapter))
        if not arguments.check:
            return 0
    ledger = {device: list(_judged(device, arguments.chapter)) for device in devices}
    if arguments.accept:
        for device in devices:
            _accept(device, ledger[device])
    elif not arguments.json:
        _print_lines(ledger)
    return _check(ledger) if arguments.check else 0


def _judged(device: Device, chapter: str) -> Iterable[Verdict]:
    """The verdicts of a chapter, or of all. Raises `UnknownName`."""
    return (judge(claim, chapter, device) for claim in findings(chapter).claims) if chapter else judge_all(device)


def claims_json(root: Path, devices: Sequence[Device], chapter: str = "") -> str:
    """Every claim, or those of a chapter, with its verdict on each of these devices, as JSON; a build keeps it."""

    def judged() -> str:
        verdicts = (verdict for device in devices for verdict in _judged(device, chapter))
        return json_text([verdict_data(verdict) for verdict in verdicts], indent=1)

    look(root)
    text = kept(("claims", chapter, *(device.name for device in devices)), judged)
    keep()
    return text


def _print_lines(ledger: Mapping[Device, Sequence[Verdict]]) -> None:
    """A line for each verdict, then the counts of each device."""
    width = max(len(device.name) for device in ledger)
    for device, judged in ledger.items():
        for verdict in judged:
            measured = printable(verdict.measured.text if verdict.measured else verdict.reason)
            claim = verdict.claim
            print(f"{device.name:{width}}  {claim.id:5} {verdict.status:13} {measured:24}  {claim.sentence}")
    for device, judged in ledger.items():
        print(f"{device.name}: {_counts(verdict.status for verdict in judged)}")


def _counts(statuses: Iterable[Status]) -> str:
    """`255 holds, 44 differs, 6 inconclusive, 2 not measured`."""
    counts = Counter(statuses)
    shown = (status for status in STATUSES if counts[status] or status != "cannot be tested")
    return ", ".join(f"{counts[status]} {status}" for status in shown)


def _accept(device: Device, ledger: Sequence[Verdict]) -> None:
    """Write the device's file; print each change, then the counts. A new claim enters the file when it is measured."""
    try:
        before = accepted_statuses(device) or {}
    except RecordingError:  # this command is the cure
        before = {}
    now: dict[str, Status] = {
        verdict.claim.id: verdict.status
        for verdict in ledger
        if verdict.claim.id in before or verdict.status != "not measured"
    }
    for claim_id in sorted(before.keys() | now.keys()):
        old, new = before.get(claim_id, "new"), now.get(claim_id, "no such claim any more")
        if old != new:
            print(f"{device.name}  {claim_id}: {old} -> {new}")
    accept_statuses(device, now)
    print(f"{device.name}: accepted {_counts(now.values())}")


def _check(ledger: Mapping[Device, Sequence[Verdict]]) -> int:
    """Return 1 if verdicts of a device differ from its accepted verdicts; a device without any never fails."""
    is_red = False
    for device, judged in ledger.items():
        cure = f"python -m snippets.lab claims --accept --device {device.name}"
        try:
            accepted = accepted_statuses(device)
        except RecordingError as error:
            print(printable(str(error)), file=sys.stderr)
            is_red = is_red or device.is_default
            continue
        if accepted is None:
            if any(verdict.measured for verdict in judged):
                print(f"{device.name} is new: no verdict was accepted yet. To accept them: {cure}", file=sys.stderr)
            continue
        problems = list(_problems(judged, accepted))
        for problem in problems:
            print(printable(problem), file=sys.stderr)
        if problems:
            print(f"Read the text beside these claims again. If it is right: {cure}", file=sys.stderr)
        is_red = is_red or bool(problems)
    return 1 if is_red else 0


def _problems(judged: Sequence[Verdict], accepted: Mapping[str, Status]) -> Iterator[str]:
    """A line for each verdict that differs from the accepted verdict; a new claim need not be accepted before it is
    measured."""
    for verdict in judged:
        before: Status | None = accepted.get(verdict.claim.id)
        name = f"{verdict.claim.id} on {verdict.device.name}"
        why = f" ({verdict.reason})" if verdict.reason else ""
        if before is None and verdict.status == "not measured":
            continue
        if before is None:
            yield f"{name}: {verdict.status}{why}, and was never accepted; see {verdict.chapter}'s page"
        elif verdict.status != before:
            yield f"{name}: {verdict.status}{why}, but {before} was accepted; see {verdict.chapter}'s page and findings"
