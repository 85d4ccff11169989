"""What a recording holds: data, never rendered output. Only this crosses from measuring to showing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import field

SCHEMA = 1
TRACE_LIMIT_BYTES = 1_000_000


class RecordingError(Exception):
    """A recording that is missing or unusable; the message ends in the command that cures it."""


class NotRecorded(RecordingError):
    """No recording of this experiment on this device."""


class NotTimed(RecordingError):
    """There is a recording, but not with this timing or ceiling."""


class Timing(msgspec.Struct, frozen=True):
    """Time of one step over many repeats. `samples_us[i]` of two experiments of one session are a pair."""

    median_us: float
    q1_us: float
    q3_us: float
    samples_us: tuple[float, ...]


class Timings(msgspec.Struct, frozen=True):
    """The same step timed in four ways."""

    interleaved: Timing = field(name="warm")
    """On the GPU, launch-free: CUDA graph replays that rotate `input_sets` input sets."""
    cold: Timing
    """On the GPU, launch-free: one graph replay after the L2 cache was overwritten."""
    from_python: Timing = field(name="launched")
    """Wall clock per step of a Python loop, until the GPU is done: what a user waits for."""
    enqueue: Timing
    """Wall clock per step of the same loop until the last launch has returned: the CPU's share."""
    input_sets: int
    rotated_bytes: int
    """Inputs and outputs of all sets together; above the L2 size, or as near as `timing.MAX_SETS` allows."""


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

    name: str = field(name="what")
    """`copy`, `matmul 8192x8192x8192`, or a bare matmul at a shape of the experiment, M x K x N."""
    bytes: int
    flops: int
    timing: Timing

    @property
    def rate(self) -> float:
        """FLOPs a second; of a ceiling that computes nothing, bytes a second."""
        return (self.flops or self.bytes) / self.timing.median_us * 1e6


class Environment(msgspec.Struct, frozen=True):
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
    environment: Environment = field(name="circumstances")
    capture_s: float
    schedule: tuple[int, int, int]
    first_steps: int
    points: tuple[Point, ...]
    ceilings: tuple[Ceiling, ...]
    data: dict[str, Any]
    """What the `probe` returned; empty for a profiled experiment."""
    has_trace: bool

    @property
    def id(self) -> str:
        """`chapter/experiment`."""
        return f"{self.chapter}/{self.experiment}"


UPGRADES: Mapping[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}
"""Schema -> what makes its JSON that of the next one. A field that is only added has a default and needs none."""


def parse_recording(content: bytes, name: str, cure: str = "record it again") -> Recording:
    """Check the bytes of a recording's JSON and return it. Raises `RecordingError` naming `name`."""
    try:
        data = msgspec.json.decode(content, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RecordingError(f"{name} is not a recording ({error}); {cure}") from error
    while data.get("schema") != SCHEMA:
        upgrade = UPGRADES.get(data.get("schema", 0))
        if upgrade is None:
            raise RecordingError(f"{name} has schema {data.get('schema')!r} and this version reads {SCHEMA}; {cure}")
        data = upgrade(data)
    try:
        return msgspec.convert(data, type=Recording)
    except msgspec.ValidationError as error:
        raise RecordingError(f"{name} is damaged: {error}; {cure}") from error
