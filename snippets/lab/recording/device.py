"""Device names and recording paths: <root>/<device>/<chapter>/<experiment>.{json,trace.json.gz}."""

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
"""Pages open with this device unless the machine's own GPU is recorded; its recordings are committed."""
SAMPLE_DEVICE = "nvidia-sample"
"""The device of made-up recordings: a chapter's tests create them, for the tests and for previews."""


def recordings_root() -> Path:
    """The folder of all recordings: docs/recordings, or the environment variable `RECORDINGS`, which previews set.

    Commands, fences and inline figures call this once and pass the result on.
    """
    return Path(os.environ.get("RECORDINGS") or PROJECT / "docs" / "recordings")


def sample_chapter() -> str:
    """The chapter that a preview shows from sample recordings: the variable `SAMPLE`, set by `make serve`.

    Fences and inline figures call this, as they call `recordings_root`.
    """
    return os.environ.get("SAMPLE", "")


def chapter_folder(root: Path, device: str, chapter: str) -> Path:
    """The folder of a chapter's recordings on a device."""
    return root / device / chapter


def recorded_devices(root: Path) -> tuple[str, ...]:
    """Recorded devices, the default one first."""
    if not root.is_dir():
        return ()
    names = sorted(path.name for path in root.iterdir() if path.is_dir() and any(path.glob("*/*.json")))
    return tuple(sorted(names, key=lambda name: (name != DEFAULT_DEVICE, name)))


def recorded_names(root: Path, device: str, chapter: str) -> tuple[str, ...]:
    """Names of a chapter's experiments that are recorded on a device."""
    names = (path.name.removesuffix(".json") for path in chapter_folder(root, device, chapter).glob("*.json"))
    return tuple(sorted(name for name in names if not name.endswith(".trace")))


def default_device(root: Path) -> str:
    """The device that pages open with: the variable `DEVICE`, else this machine's GPU if recorded, else the default.

    Raises `NotRecorded` if `DEVICE` names a device without recordings.
    """
    known = recorded_devices(root)
    chosen = os.environ.get("DEVICE", "")
    if chosen and chosen not in known:
        raise NotRecorded(f"DEVICE={chosen} is not recorded; recorded are {', '.join(known) or 'none'}")
    device = chosen or this_device()
    return device if device is not None and device in known else DEFAULT_DEVICE


def slug(device_name: str) -> str:
    """Folder name of a device: `NVIDIA A100-SXM4-80GB` -> `nvidia-a100-sxm4-80gb`."""
    return re.sub(r"[^a-z0-9]+", "-", device_name.lower()).strip("-") or "unknown"


def short_name(device: str) -> str:
    """The name of a device on pages: `nvidia-a100-sxm4-80gb` -> `A100 SXM4 80GB`."""
    return device.removeprefix("nvidia-").replace("-", " ").upper()


@lru_cache(maxsize=1)
def this_device() -> str | None:
    """The slug of this machine's first GPU, from nvidia-smi; None without a GPU."""
    if shutil.which("nvidia-smi") is None:
        return None
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    try:
        reply = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    names = reply.stdout.strip().splitlines()
    return slug(names[0]) if names else None
