"""Devices by name, and where their recordings are: <root>/<device>/<chapter>/<experiment>.{json,trace.json.gz}."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import lru_cache
from pathlib import Path

from snippets.lab.recording.schema import NotRecorded

PROJECT = Path(__file__).resolve().parents[3]
DEFAULT_DEVICE = "nvidia-h200"
"""The device that pages open with on a machine without a recorded GPU of its own; its recordings are committed."""
SAMPLE_DEVICE = "nvidia-sample"
"""The device of recordings that nobody measured: a chapter's tests make them, for themselves and for a preview."""


def recordings_root() -> Path:
    """The folder of all recordings: docs/recordings, or `RECORDINGS` of the environment, as a preview sets it.

    Commands, fences and inline figures ask once and hand the answer down.
    """
    return Path(os.environ.get("RECORDINGS") or PROJECT / "docs" / "recordings")


def sample_chapter() -> str:
    """The chapter that a preview shows from sample recordings: `SAMPLE` of the environment, set by `make serve`.

    Fences and inline figures ask, as they do for `recordings_root`.
    """
    return os.environ.get("SAMPLE", "")


def chapter_folder(root: Path, device: str, chapter: str) -> Path:
    """Where the recordings of a chapter on a device are."""
    return root / device / chapter


def recorded_devices(root: Path) -> tuple[str, ...]:
    """Recorded devices, the default one first."""
    if not root.is_dir():
        return ()
    names = sorted(path.name for path in root.iterdir() if path.is_dir() and any(path.glob("*/*.json")))
    return tuple(sorted(names, key=lambda name: (name != DEFAULT_DEVICE, name)))


def recorded_names(root: Path, device: str, chapter: str) -> tuple[str, ...]:
    """Names of the experiments of a chapter that are recorded on a device."""
    names = (path.name.removesuffix(".json") for path in chapter_folder(root, device, chapter).glob("*.json"))
    return tuple(sorted(name for name in names if not name.endswith(".trace")))


def default_device(root: Path) -> str:
    """The device that pages open with: `DEVICE` of the environment, else this machine's GPU where it is recorded.

    Raises `NotRecorded` when `DEVICE` names a device without recordings.
    """
    known = recorded_devices(root)
    chosen = os.environ.get("DEVICE", "")
    if chosen and chosen not in known:
        raise NotRecorded(f"DEVICE={chosen} is not recorded; recorded are {', '.join(known) or 'none'}")
    here = chosen or this_device()
    return here if here is not None and here in known else DEFAULT_DEVICE


def slug(device_name: str) -> str:
    """Folder name of a device: `NVIDIA A100-SXM4-80GB` -> `nvidia-a100-sxm4-80gb`."""
    return re.sub(r"[^a-z0-9]+", "-", device_name.lower()).strip("-") or "unknown"


def short_name(device: str) -> str:
    """A device as a page calls it: `nvidia-a100-sxm4-80gb` -> `A100 SXM4 80GB`."""
    return device.removeprefix("nvidia-").replace("-", " ").upper()


@lru_cache(maxsize=1)
def this_device() -> str | None:
    """The slug of this machine's first GPU as nvidia-smi names it; None where there is none."""
    if shutil.which("nvidia-smi") is None:
        return None
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    try:
        reply = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    names = reply.stdout.strip().splitlines()
    return slug(names[0]) if names else None
