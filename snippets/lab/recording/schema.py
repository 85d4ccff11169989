"""The fields of a recording: data, never rendered output. Pages read nothing else from a measurement."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import field

SCHEMA = 1
TRACE_LIMIT_BYTES = 1_000_000


class RecordingError(Exception):
    """A recording is missing or unusable; the message ends with the command that fixes it."""


class NotRecorded(RecordingError):
    """No recording of this experiment on this device."""


class NotTimed(RecordingError):
    """The recording exists but lacks this timing or ceiling."""


class Timing(msgspec.Struct, frozen=True):
    """Time of one step over many repeats. Within a session, `samples_us[i]` of two experiments form a pair."""

    median_us: float
    q1_us: float
    q3_us: float
    samples_us: tuple[float, ...]


class Timings(msgspec.Struct, frozen=True):
    """Four timings of the same step."""

    interleaved: Timing = field(name="warm")
    """GPU time without launches: CUDA graph replays that rotate `input_sets` input sets."""
    cold: Timing
    """GPU time without launches: one graph replay after overwriting the L2 cache."""
    from_python: Timing = field(name="launched")
    """Wall time per step of a Python loop until the GPU is done: the latency for a user."""
    enqueue: Timing
    """Wall time per step of the same loop until the last launch returns: the CPU's share."""
    input_sets: int
    rotated_bytes: int
    """Inputs and outputs of all sets; above the L2 size, or as close to it as `timing.MAX_SETS` allows."""


class Point(msgspec.Struct, frozen=True):
    """An experiment at one set of parameters."""

    parameters: dict[str, int | str]
    flops: int
    bytes: int
    relative_error: float
    """Frobenius norm of (output - reference) divided by the norm of the reference."""
    reference_dtype: str
    peak_memory_bytes: int
    """Peak memory of one step, minus the memory allocated before it."""
    timings: Timings | None


class Ceiling(msgspec.Struct, frozen=True):
    """A rate that the device reached in the same session: an upper limit for the experiments."""

    name: str = field(name="what")
    """`copy`, `matmul 8192x8192x8192`, or a bare matmul at a shape of the experiment, M x K x N."""
    bytes: int
    flops: int
    timing: Timing

    @property
    def rate(self) -> float:
        """FLOP/s, or bytes/s for a ceiling without FLOPs."""
        return (self.flops or self.bytes) / self.timing.median_us * 1e6


class Environment(msgspec.Struct, frozen=True):
    """Machine, versions, clocks and time. Shown beside every result, never hashed."""

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
    """sm_mhz, memory_mhz, power_w, temperature_c under load, from nvidia-smi directly after timing."""


class Recording(msgspec.Struct, frozen=True):
    """One experiment on one device."""

    schema: int
    chapter: str
    experiment: str
    label: str
    digest: str
    """Digest of the measured source; differs from `source_digest(chapter)` if the code has changed since."""
    session: str
    """Start time of the recording process: timings of one session are interleaved and may be compared."""
    environment: Environment = field(name="circumstances")
    capture_s: float
    schedule: tuple[int, int, int]
    first_steps: int
    points: tuple[Point, ...]
    ceilings: tuple[Ceiling, ...]
    data: dict[str, Any]
    """The result of the `probe`; empty for a profiled experiment."""
    has_trace: bool

    @property
    def id(self) -> str:
        """`chapter/experiment`."""
        return f"{self.chapter}/{self.experiment}"


UPGRADES: Mapping[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}
"""Schema -> function that upgrades its JSON to the next schema. A new field with a default needs no upgrade."""


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
