"""The statuses accepted for a device: `<root>/<device>/accepted.json`, claim id -> status.

They are stored with the recordings, because a text is written for one device's results, and another device may differ.
The command `claims --accept` writes them.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

import msgspec

from kinetoscope.files import write_whole
from snippets.lab.finding.claim import Status
from snippets.lab.finding.device import Device
from snippets.lab.recording.device import DEFAULT_DEVICE
from snippets.lab.recording.schema import NotRecorded, RecordingError

NAME = "accepted.json"


def accepted_statuses(device: Device) -> Mapping[str, Status] | None:
    """Claim id -> accepted status; None if nothing was accepted for the device. Raises `RecordingError`."""
    path = device.root / device.name / NAME
    try:
        return _read(path, os.stat(path).st_mtime_ns)
    except (FileNotFoundError, NotADirectoryError):
        return None


def readable_statuses(device: Device) -> Mapping[str, Status] | None:
    """The same; None also if the file of a GPU other than the default cannot be read."""
    try:
        return accepted_statuses(device)
    except RecordingError:
        if device.is_default:
            raise
        return None


@lru_cache(maxsize=16)
def _read(path: Path, mtime_ns: int) -> Mapping[str, Status]:
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            raise OSError("it is not a regular file; delete it")
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Status])
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        cure = f"python -m snippets.lab claims --accept --device {path.parent.name}"
        raise RecordingError(f"{NAME} of {path.parent.name} is damaged: {error}; {cure}") from error


def accept_statuses(device: Device, statuses: Mapping[str, Status]) -> None:
    """Write the file atomically, sorted, a line for each claim. Raises `NotRecorded` if the device is not recorded."""
    if not (device.root / device.name).is_dir():
        raise NotRecorded(f"nothing is recorded for {device.name}; on a machine with this GPU run make record")
    content = json.dumps(dict(sorted(statuses.items())), indent=1, ensure_ascii=False) + "\n"
    write_whole(device.root / device.name / NAME, content.encode())


def status_of_text(claim_id: str, root: Path) -> Status | None:
    """The status that the book's text describes: the status accepted for the default device; None without one."""
    return (accepted_statuses(Device(root, DEFAULT_DEVICE)) or {}).get(claim_id)
