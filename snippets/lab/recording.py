"""docs/recordings/<device>/<chapter>/<experiment>.{json,trace.json.gz}: the boundary between measuring and showing.

Above it a GPU is needed; below it neither a GPU nor torch. A recording holds data, never rendered output: the trace
and its circumstances. Saved only after success and atomically; loaded only if every field is what it should be.
"""

from __future__ import annotations

import ast
import gzip
import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from snippets.lab import kineto
from snippets.lab.trace import Trace

ROOT = Path(__file__).resolve().parents[2]
RECORDINGS = ROOT / "docs" / "recordings"
BUILDER = "nvidia-h200"
"""The device whose recordings are committed: what a page shows on a machine without a recorded GPU of its own."""
SCHEMA = 1
PROTOCOL = 1
"""Part of every source digest: raise it when `capture`, `worker` or `timing` change what they measure."""
TRACE_LIMIT_BYTES = 1_000_000
HASHED_FILES = ("model.py", "kernels.py", "experiments.py")


class RecordingError(Exception):
    """A recording that is missing or unusable; the message ends in the command that cures it."""


class RecordingMissing(RecordingError):
    """No recording of this experiment on this device."""


class Timing(msgspec.Struct, frozen=True):
    """Time of one step over many repeats. `samples_us[i]` of two experiments of one session are a pair."""

    median_us: float
    q1_us: float
    q3_us: float
    samples_us: tuple[float, ...]


class Timings(msgspec.Struct, frozen=True):
    """The same step timed in four ways."""

    warm: Timing
    """On the GPU, launch-free: CUDA graph replays that rotate `input_sets` input sets."""
    cold: Timing
    """On the GPU, launch-free: one graph replay after the L2 cache was overwritten."""
    launched: Timing
    """Wall clock per step of a Python loop, until the GPU is done: what a user waits for."""
    enqueue: Timing
    """Wall clock per step of the same loop until the last launch has returned: the CPU's share."""
    input_sets: int
    rotated_bytes: int
    """Inputs and outputs of all sets together; above the L2 size, or as near as `timing.MOST_SETS` allows."""


class Point(msgspec.Struct, frozen=True):
    """An experiment at one set of parameters."""

    parameters: dict[str, int | str]
    flops: int
    bytes: int
    relative_error: float
    """Frobenius norm of (output - reference) over that of the reference."""
    reference_dtype: str
    peak_memory_bytes: int
    """Most memory that one step held above what was allocated before it."""
    timings: Timings | None


class Ceiling(msgspec.Struct, frozen=True):
    """A rate this device reached in the same session: nothing here can be expected to be faster."""

    what: str
    """`copy`, `matmul 8192x8192x8192`, or a bare matmul at a shape of the experiment, M x K x N."""
    bytes: int
    flops: int
    timing: Timing


class Circumstances(msgspec.Struct, frozen=True):
    """Where and when. Shown beside every result, never hashed."""

    date: str
    commit: str
    device: str
    compute_capability: str
    multiprocessors: int
    memory_bytes: int
    l2_bytes: int
    driver: str
    cuda: str
    versions: dict[str, str]
    """python, torch, triton and the kernel libraries, as installed."""
    clocks: dict[str, float]
    """sm_mhz, memory_mhz, power_w, temperature_c under load, as nvidia-smi read them just after timing."""


class Recording(msgspec.Struct, frozen=True):
    """One experiment on one device."""

    schema: int
    chapter: str
    experiment: str
    label: str
    digest: str
    """Of the source that was run; differs from `source_digest(chapter)` when the code has changed since."""
    session: str
    """Start of the process that recorded it: timings of one session were taken in turns and may be compared."""
    circumstances: Circumstances
    capture_s: float
    schedule: tuple[int, int, int]
    first_steps: int
    points: tuple[Point, ...]
    ceilings: tuple[Ceiling, ...]
    data: dict[str, Any]
    """What `measure` returned; empty for a profiled experiment."""
    has_trace: bool

    @property
    def id(self) -> str:
        """`chapter/experiment`."""
        return f"{self.chapter}/{self.experiment}"


def folder(device: str, chapter: str, root: Path = RECORDINGS) -> Path:
    """Where the recordings of a chapter on a device live."""
    return root / device / chapter


def devices(root: Path = RECORDINGS) -> tuple[str, ...]:
    """Recorded devices, the builder first."""
    if not root.is_dir():
        return ()
    found = sorted(path.name for path in root.iterdir() if path.is_dir() and any(path.glob("*/*.json")))
    return tuple(sorted(found, key=lambda name: (name != BUILDER, name)))


def recorded(device: str, chapter: str, root: Path = RECORDINGS) -> tuple[str, ...]:
    """Names of the experiments of a chapter that are recorded on a device."""
    names = (path.name.removesuffix(".json") for path in folder(device, chapter, root).glob("*.json"))
    return tuple(sorted(name for name in names if not name.endswith(".trace")))


def load(experiment_id: str, device: str, root: Path = RECORDINGS) -> Recording:
    """Read one recording, checking every field. Raises `RecordingError`."""
    chapter, _, name = experiment_id.partition("/")
    path = folder(device, chapter, root) / f"{name}.json"
    again = f"on a machine with this GPU run make record CHAPTER={chapter}"
    return _load(path, path.stat().st_mtime_ns if path.is_file() else None, experiment_id, device, again)


@lru_cache(maxsize=512)
def _load(path: Path, mtime_ns: int | None, experiment_id: str, device: str, again: str) -> Recording:
    if mtime_ns is None:
        raise RecordingMissing(f"no recording {experiment_id!r} for {device}; {again}")
    found = decode(path.read_bytes(), path.name, again)
    if found.id != experiment_id:
        raise RecordingError(f"{path.name} is a recording of {found.id!r}, not of {experiment_id!r}; {again}")
    return found


def decode(content: bytes, name: str, again: str = "record it again") -> Recording:
    """Check the bytes of a recording's JSON and return it. Raises `RecordingError` naming `name`."""
    try:
        schema = msgspec.json.decode(content, type=dict[str, Any]).get("schema")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RecordingError(f"{name} is no recording ({error}); {again}") from error
    if schema != SCHEMA:
        raise RecordingError(f"{name} has schema {schema!r} and this version reads {SCHEMA}; {again}")
    try:
        return msgspec.json.decode(content, type=Recording)
    except msgspec.ValidationError as error:
        raise RecordingError(f"{name} is damaged: {error}; {again}") from error


def trace_path(recording: Recording, device: str, root: Path = RECORDINGS) -> Path:
    """The compressed trace of a recording, for reading or for download."""
    return folder(device, recording.chapter, root) / f"{recording.experiment}.trace.json.gz"


def trace(experiment_id: str, device: str, root: Path = RECORDINGS) -> Trace:
    """The typed trace of a recording. Raises `RecordingError` where it has none."""
    found = load(experiment_id, device, root)
    path = trace_path(found, device, root)
    if not found.has_trace or not path.is_file():
        raise RecordingMissing(f"{experiment_id} has no trace for {device}; make record CHAPTER={found.chapter}")
    return _trace(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=128)
def _trace(path: Path, mtime_ns: int) -> Trace:
    return kineto.read(path)


def save(recording: Recording, trace_json: bytes | None, device: str, root: Path = RECORDINGS) -> None:
    """Write a recording so that a reader never sees half of one: complete new files, then two renames.

    Raises `RecordingError` when the compressed trace is larger than `TRACE_LIMIT_BYTES`; `OSError` when the disk
    is full or read-only. The old recording is intact in either case.
    """
    target = folder(device, recording.chapter, root)
    packed = None if trace_json is None else pack_trace(recording, trace_json)
    target.mkdir(parents=True, exist_ok=True)
    content = msgspec.json.format(msgspec.json.encode(recording, order="deterministic"), indent=1) + b"\n"
    trace_file, json_file = target / f"{recording.experiment}.trace.json.gz", target / f"{recording.experiment}.json"
    new_trace = None if packed is None else _write_new(trace_file, packed)
    new_json = None
    try:
        new_json = _write_new(json_file, content)
        _swap(new_trace, trace_file, new_json, json_file)
    finally:
        for left in (new_trace, new_json):
            if left is not None:
                left.unlink(missing_ok=True)


def pack_trace(recording: Recording, trace_json: bytes) -> bytes:
    """Compress a trace, the same bytes for the same trace. Raises `RecordingError` above `TRACE_LIMIT_BYTES`."""
    packed = gzip.compress(trace_json, compresslevel=9, mtime=0)
    if len(packed) > TRACE_LIMIT_BYTES:
        raise RecordingError(
            f"the trace of {recording.id} is {len(packed):,} bytes and the limit is {TRACE_LIMIT_BYTES:,}: "
            "profile fewer steps or a smaller step"
        )
    return packed


def _swap(new_trace: Path | None, trace_file: Path, new_json: Path, json_file: Path) -> None:
    """Put two files in place, or neither: the old trace is kept until the JSON beside it is new."""
    aside = _write_new(trace_file.with_suffix(".old"), trace_file.read_bytes()) if trace_file.is_file() else None
    try:
        if new_trace is None:
            trace_file.unlink(missing_ok=True)
        else:
            os.replace(new_trace, trace_file)
        os.replace(new_json, json_file)
    except BaseException:
        if aside is None:
            trace_file.unlink(missing_ok=True)
        else:
            os.replace(aside, trace_file)
        raise
    finally:
        if aside is not None:
            aside.unlink(missing_ok=True)


def write(path: Path, content: bytes) -> None:
    """Replace one file so that a reader never sees half of it; the old one is intact when the disk is full."""
    os.replace(_write_new(path, content), path)


def _write_new(path: Path, content: bytes) -> Path:
    """Write `content` beside `path`; nothing is left behind when the disk is full."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def source_digest(chapter: str, sources: Path = ROOT / "snippets") -> str:
    """Hash of what a chapter measures: its code without comments, docstrings and formatting, and the protocol.

    The same under every Python version: only node names and non-empty fields of the syntax tree count.
    """
    paths = [path for name in HASHED_FILES if (path := sources / chapter / name).is_file()]
    return code_digest(f"protocol {PROTOCOL}", {path.name: path.read_text("utf-8") for path in paths})


def code_digest(protocol: str, sources: Mapping[str, str]) -> str:
    """Hash of `protocol` and of the code in `sources`, by name, without comments, docstrings and formatting."""
    digest = hashlib.sha256(protocol.encode())
    for name, text in sources.items():
        digest.update(f"\n{name} {_code_shape(text)}".encode())
    return digest.hexdigest()[:16]


@lru_cache(maxsize=64)
def _code_shape(text: str) -> str:
    """Remembered, because every recording of a chapter asks for the digest of the same files."""
    return _shape(ast.parse(text))


def _shape(node: object) -> str:
    """A syntax tree as text: (Name (id x)) with positions, contexts and empty fields left out."""
    if isinstance(node, ast.AST):
        fields = [(name, _code(value)) for name, value in ast.iter_fields(node) if name not in ("ctx", "kind")]
        shapes = [f"{name}={_shape(value)}" for name, value in fields if value not in (None, [])]
        return f"({' '.join([type(node).__name__, *shapes])})"
    if isinstance(node, list):
        return f"[{' '.join(_shape(item) for item in node)}]"
    return repr(node)


def _code(value: object) -> object:
    """A body without bare strings: docstrings and notes."""
    if not isinstance(value, list):
        return value
    return [item for item in value if not (isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant))]


def is_stale(recording: Recording) -> bool:
    """Whether the chapter's code has changed since the recording was made."""
    return recording.digest != source_digest(recording.chapter)


_ABSOLUTE_PATH = re.compile(
    r"(?:file://|(?<![\w./]))(?:/(?:home|Users)/[\w.+@%=-]+(?![\w.+@%=/-])|~?/(?:[\w.+@%=-]+/)+)"
)
"""Directories with their last slash; a home by itself, which is named after its owner."""


def scrubbed(value: Any, hosts: tuple[str, ...] = ()) -> Any:
    """Data without the machine's privacy: directories cut from absolute paths, host names replaced by `host`."""
    if isinstance(value, str):
        for host in hosts:
            value = re.sub(rf"(?<![\w-]){re.escape(host)}(?![\w-])", "host", value)
        return _ABSOLUTE_PATH.sub("", value)
    if isinstance(value, dict):
        return {scrubbed(key, hosts): scrubbed(item, hosts) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [scrubbed(item, hosts) for item in value]
    return value


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


_showing: ContextVar[str] = ContextVar("showing", default="")


@contextmanager
def showing(device: str) -> Iterator[None]:
    """Make `device` the shown one while its tab of a page is computed."""
    token = _showing.set(device)
    try:
        yield
    finally:
        _showing.reset(token)


def shown_device(root: Path = RECORDINGS) -> str:
    """The device a page shows, or opens with: this machine's GPU when it has been recorded, else the builder."""
    if _showing.get():
        return _showing.get()
    chosen = os.environ.get("DEVICE", "")
    if chosen:
        if chosen not in devices(root):
            known = ", ".join(devices(root)) or "none"
            raise RecordingMissing(f"DEVICE={chosen} is not recorded; recorded are {known}")
        return chosen
    here = this_device()
    return here if here in devices(root) and here is not None else BUILDER


def every(device: str, root: Path = RECORDINGS) -> Iterator[Recording]:
    """All recordings of a device, by chapter and name."""
    for path in sorted((root / device).glob("*/*.json")):
        yield load(f"{path.parent.name}/{path.stem}", device, root)
