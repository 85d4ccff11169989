"""Device names and recording paths: <root>/<device>/<chapter>/<experiment>.{json,trace.json.gz}."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import lru_cache
from pathlib import Path

from snippets.lab.cache import once
from snippets.lab.recording.schema import NotRecorded, RecordingError

PROJECT = Path(__file__).resolve().parents[3]
DEFAULT_DEVICE = "nvidia-h200"
"""Pages open with this device unless the machine's own GPU is recorded; its recordings are committed."""
SAMPLE_DEVICE = "nvidia-sample"
"""The device of made-up recordings: a chapter's tests create them, for the tests and for previews."""
MAX_DEVICES = 12
"""Recorded devices that a build can bear: each makes a build up to half a minute longer where nothing is kept."""
FOLDER = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
"""The name of a device's folder, as `slug` makes it: pages have it in ids and links."""
_FILE = re.compile(rf"{FOLDER.pattern}/(accepted\.json|[a-z0-9_]+/[a-z0-9_]+\.(json|trace\.json\.gz))")


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


@once
def recorded_devices(root: Path) -> tuple[str, ...]:
    """Recorded devices, the default device first."""
    if not root.is_dir():
        return ()
    folders = (path for path in root.iterdir() if FOLDER.fullmatch(path.name) and path.is_dir())
    names = sorted(path.name for path in folders if any(path.glob("*/*.json")))
    return tuple(sorted(names, key=lambda name: (name != DEFAULT_DEVICE, name)))


def require_only_recordings(root: Path) -> None:
    """Raise `RecordingError` for a link, a pipe or a file of another name: the site would publish it as its own.

    Hidden files are no part of the site.
    """
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        is_plain = path.is_file() and not path.is_symlink() and _FILE.fullmatch(name)
        is_folder = path.is_dir() and not path.is_symlink()
        if not (is_plain or is_folder or "/." in f"/{name}"):
            raise RecordingError(f"{path} is not a recording, but a link or a file of another kind; delete it")


def require_showable(root: Path, device: str) -> None:
    """Raise `RecordingError` if the site cannot show this device beside the recorded devices: for a name that the book
    or another device has, or if there are too many."""
    recorded = recorded_devices(root)
    if device in (SAMPLE_DEVICE, slug("")):
        raise RecordingError(f"the book uses the name {device} itself, and no GPU may have it")
    for other in {*recorded, DEFAULT_DEVICE} - {device}:
        if short_name(other) == short_name(device):
            raise RecordingError(f"pages would show {device} under the name of {other}, {short_name(other)}")
    if device not in recorded and len(recorded) >= MAX_DEVICES:
        raise RecordingError(
            f"{len(recorded)} devices are recorded, the most that a build can bear; delete the folder of one in {root}"
        )


@once
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
    """The slug of the GPU that CUDA would use, from nvidia-smi and CUDA_VISIBLE_DEVICES; None without a GPU."""
    name = visible_gpu(_nvidia_smi("-L")[0], os.environ.get("CUDA_VISIBLE_DEVICES", "0"))
    return slug(name) if name else None


AMD_GPU = Path("/dev/kfd")
"""How Linux shows AMD's GPUs to ROCm."""
AMD_ONLY = (
    "this machine's GPU is AMD's, and the experiments need an NVIDIA GPU; a report reads traces of AMD's GPUs, too: "
    "python -m kinetoscope report TRACE"
)
NO_SLICE = (
    "this machine's GPU is in MIG mode and has no slice, so CUDA cannot use it: make a slice of the whole GPU "
    "(sudo nvidia-smi mig -cgi 0 -C), or leave the mode (sudo nvidia-smi -mig 0)"
)


def why_no_device() -> str:
    """Why CUDA has no GPU although nvidia-smi should list one, and the cure; else empty."""
    listing, fault = _nvidia_smi("-L")
    if fault:
        return f"nvidia-smi fails ({fault}): repair or reload the NVIDIA driver"
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None and "GPU " in listing and not visible_gpu(listing, chosen):
        return f"CUDA_VISIBLE_DEVICES={chosen!r} hides this machine's GPU: unset it, or name one of nvidia-smi -L"
    if "GPU " in listing and "  MIG " not in listing:
        modes, _ = _nvidia_smi("--query-gpu=mig.mode.current", "--format=csv,noheader")
        if "Enabled" in modes:
            return NO_SLICE
    if not listing and AMD_GPU.exists():
        return AMD_ONLY
    return ""


def _nvidia_smi(*query: str) -> tuple[str, str]:
    """The output of nvidia-smi, and its error if it fails; both empty if it is not installed or finds no GPU."""
    if shutil.which("nvidia-smi") is None:
        return "", ""
    try:
        reply = subprocess.run(["nvidia-smi", *query], capture_output=True, timeout=30, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        return "", type(error).__name__
    listing = reply.stdout.decode(errors="replace")
    if reply.returncode == 0:
        return listing, ""
    first = next(iter(listing.splitlines()), f"exit code {reply.returncode}")
    return "", "" if first.startswith("No devices") else first.rstrip(".")


def visible_gpu(listing: str, visible: str) -> str:
    """The name of the first GPU in CUDA_VISIBLE_DEVICES, from the output of `nvidia-smi -L`; empty if there is none.

    A MIG slice is named as torch names it: `NVIDIA A100-SXM4-40GB MIG 1g.5gb`.
    """
    chosen = visible.split(",")[0].strip()
    card, index = "", ""
    named: dict[str, str] = {}
    for line in listing.splitlines():
        if match := re.match(r"GPU (\d+): (.+) \(UUID: (\S+)\)", line):
            index, card = match[1], match[2]
            named |= {index: card, match[3]: card}
        elif match := re.match(r"\s+(MIG \S+)\s.*\(UUID: (\S+)\)", line):
            named[match[2]] = f"{card} {match[1]}"
            if named[index] == card:  # CUDA sees only slices of a card that is divided; the first one has its index
                named[index] = named[match[2]]
    if chosen.isdigit():
        return named.get(chosen, "")
    return next((name for key, name in named.items() if chosen and key.startswith(chosen)), "")
