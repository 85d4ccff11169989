"""The fields of a recording: data, never rendered output. Pages read nothing else from a measurement."""

from __future__ import annotations

import itertools
import re
import statistics
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec import field

SCHEMA = 2
"""A new field with a default needs no other number."""
TRACE_LIMIT_BYTES, TRACE_JSON_LIMIT_BYTES = 1_000_000, 16_000_000
"""Compressed, decompressed, for each rank, of at most four. Those of the book have up to 22,462 and 312,701 bytes."""
JSON_LIMIT_BYTES = 4_000_000
"""The largest of the book has 49,244 bytes."""
MAX_NESTING = 32
"""Lists and objects within each other in the data of a probe; readers of JSON differ above some hundreds."""
MAX_GPUS = 64
_SHA256 = re.compile(r"[0-9a-f]{64}")


class RecordingError(Exception):
    """A recording is missing or unusable; the message ends with the command that fixes it."""


class NotRecorded(RecordingError):
    """No recording of this experiment on this device."""


class NotTimed(RecordingError):
    """The recording exists but lacks this timing or ceiling."""


class Timing(msgspec.Struct, frozen=True, omit_defaults=True):
    """Time of one step over many repeats. Within a session, `samples_us[i]` of two experiments form a pair."""

    median_us: float
    q1_us: float
    q3_us: float
    samples_us: tuple[float, ...]
    rounds: tuple[int, ...] = ()
    """Samples from each process, in order; empty if all are from one process."""
    clock_mhz: float = 0.0
    """Median clock of the multiprocessors, from NVML while the samples ran; 0 if NVML did not answer."""
    watts: float = 0.0
    """Median power draw, from NVML while the samples ran; 0 if NVML did not answer."""
    joules: float = 0.0
    """Energy of one step, from NVML's counter over steady blocks; 0 for other kinds, or if NVML did not answer."""
    throttle: tuple[str, ...] = ()
    """NVML's reasons for a lowered clock while the samples ran, such as `power cap`."""

    @classmethod
    def from_samples(cls, samples_us: Sequence[float], rounds: tuple[int, ...] = (), **sensors: Any) -> Timing:
        """Median and quartiles of at least two samples in microseconds, rounded as in files."""
        rounded = tuple(round(sample, 3) for sample in samples_us)
        q1, median, q3 = statistics.quantiles(rounded, n=4, method="inclusive")
        return cls(round(median, 3), round(q1, 3), round(q3, 3), rounded, rounds, **sensors)

    @property
    def agrees_with_samples(self) -> bool:
        """Whether median and quartiles are those of the samples, and `rounds` counts all of them."""
        if len(self.samples_us) < 2 or (self.rounds and sum(self.rounds) != len(self.samples_us)):
            return False
        quartiles = statistics.quantiles(self.samples_us, n=4, method="inclusive")
        given = (self.q1_us, self.median_us, self.q3_us)
        return all(abs(one - other) < 2e-3 for one, other in zip(quartiles, given, strict=True))

    @property
    def parts(self) -> tuple[tuple[float, ...], ...]:
        """The samples of each process; of one process, three consecutive thirds."""
        count = len(self.samples_us)
        lengths = self.rounds if len(self.rounds) > 1 else (count // 3, count // 3, count - count // 3 * 2)
        ends = tuple(itertools.accumulate(lengths))
        return tuple(self.samples_us[end - length : end] for end, length in zip(ends, lengths, strict=True) if length)

    @property
    def spread_us(self) -> tuple[float, float]:
        """The lowest and the highest median of a process; of one process, the quartiles."""
        if len(self.rounds) < 2:
            return self.q1_us, self.q3_us
        medians = [statistics.median(part) for part in self.parts]
        return min(medians), max(medians)


class Timings(msgspec.Struct, frozen=True, omit_defaults=True):
    """Five timings of the same step, each in processes that never profiled."""

    interleaved: Timing = field(name="warm")
    """GPU time without launches: CUDA graph replays that rotate `input_sets` input sets, variants A B B A."""
    cold: Timing
    """GPU time without launches: one graph replay after overwriting the L2 cache."""
    from_python: Timing = field(name="launched")
    """Wall time per step of a Python loop until the GPU is done: the latency for a user."""
    enqueue: Timing
    """Wall time per step of the same loop until the last launch returns: the CPU's share."""
    input_sets: int
    rotated_bytes: int
    """Inputs and outputs of all sets; above the L2 size, or as close to it as `timing.MAX_SETS` allows."""
    steady: Timing | None = None
    """GPU time without launches in blocks of 2 s for each variant, half of it kept; None for sweeps and below 10 us."""


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
    ceilings: tuple[Ceiling, ...] = ()
    """Timed in the same turns as this point."""
    disturbed: str = ""
    """Why its timings contradict each other after several tries; empty if they agree."""
    iteration: Timing | None = None
    """Of a loop: wall time per iteration, batches fetched and the GPU done; a sample is a block of iterations."""


class Ceiling(msgspec.Struct, frozen=True):
    """A rate that the device reached in the same turns: an upper limit for the experiments."""

    name: str = field(name="what")
    """`copy`, `matmul 8192x8192x8192`, or a bare matmul at a shape of the experiment, M x K x N. The names of other
    layouts and types end with them: `matmul 64x64x64, x @ w, float16`."""
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
    """sm_mhz, memory_mhz, power_w, temperature_c under load, directly after timing; max_sm_mhz, max_memory_mhz,
    application_sm_mhz, application_memory_mhz where NVML has them."""
    cpu: str = ""
    """Model name."""
    cpu_cores: int = 0
    """Logical cores of the machine."""
    cpu_affinity: int = 0
    """Logical cores that the process may use."""
    cpu_governor: str = ""
    """Frequency governor; empty if the machine does not say, as in most virtual machines."""
    virtualized: str = ""
    """`yes`, `no`, or empty if unknown."""
    power_limit_w: float = 0.0
    """Enforced power limit; 0 if unknown."""
    mig: str = ""
    """`enabled`, `disabled`, or empty if unknown; so are `ecc` and `persistence`."""
    ecc: str = ""
    persistence: str = ""
    throttle: dict[str, tuple[str, ...]] = {}
    """`before`, `during` and `after` timing: NVML's reasons for a lowered clock."""
    other_processes: tuple[str, ...] = ()
    """Names of other programs on the GPU; the timings are then disturbed."""
    gpus: int = 1
    """The GPUs that the experiment used, of the same kind; driver, clocks and power are those of rank 0's."""
    link: str = ""
    """Between several GPUs, as the first one's driver tells: `NVLink 4.0, 18 links, peer access`."""


class Recording(msgspec.Struct, frozen=True):
    """One experiment on one device."""

    schema: int
    chapter: str
    experiment: str
    label: str
    fingerprint: str = field(name="digest")
    """Of the code that it measured; differs from `fingerprint(experiment)` if the code has changed since."""
    session: str
    """Start time of the group's recording: timings of one session are interleaved and may be compared."""
    environment: Environment = field(name="circumstances")
    capture_s: float
    schedule: tuple[int, int, int]
    first_steps: int
    points: tuple[Point, ...]
    data: dict[str, Any]
    """The result of the `probe`; empty for a profiled experiment."""
    has_trace: bool
    trace_sha256: str = ""
    """Digest of the trace's file, written when both are saved; empty without a trace, and in recordings from before
    this field."""

    @property
    def id(self) -> str:
        """`chapter/experiment`."""
        return f"{self.chapter}/{self.experiment}"

    @property
    def ceilings(self) -> tuple[Ceiling, ...]:
        """Every ceiling of its points, each name once: a sweep times `copy` at every point, and this is the first."""
        named: dict[str, Ceiling] = {}
        for point in self.points:
            for ceiling in point.ceilings:
                named.setdefault(ceiling.name, ceiling)
        return tuple(named.values())

    @property
    def disturbed(self) -> str:
        """Why its timings cannot be trusted: contradictions at a point, or other programs on the GPU; else empty."""
        others = ", ".join(self.environment.other_processes)
        reasons = dict.fromkeys(point.disturbed for point in self.points if point.disturbed)
        return "; ".join([*([f"{others} used the GPU too"] if others else []), *reasons])


def trace_limits_bytes(gpus: int) -> tuple[int, int]:
    """The most bytes of a trace file of so many ranks, compressed and decompressed."""
    ranks = min(gpus, 4)
    return ranks * TRACE_LIMIT_BYTES, ranks * TRACE_JSON_LIMIT_BYTES


def parse_recording(content: bytes, name: str, cure: str = "record it again") -> Recording:
    """Check the bytes of a recording's JSON and return it. Raises `RecordingError` naming `name`."""
    if len(content) > JSON_LIMIT_BYTES:
        raise RecordingError(f"{name} is {len(content):,} bytes and the limit is {JSON_LIMIT_BYTES:,}; {cure}")
    try:
        data = msgspec.json.decode(content, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RecordingError(f"{name} is not a recording ({error}); {cure}") from error
    if (schema := data.get("schema")) != SCHEMA:
        raise RecordingError(f"{name} has schema {schema!r:.40} and this version reads {SCHEMA}; {cure}")
    try:
        recording = msgspec.convert(data, type=Recording)
    except (msgspec.ValidationError, RecursionError) as error:
        raise RecordingError(f"{name} is damaged: {error}; {cure}") from error
    for problem in _problems(recording):
        raise RecordingError(f"{name} is damaged: {problem}; {cure}")
    return recording


def _problems(recording: Recording) -> Iterator[str]:
    """Problems that the types of the fields do not show."""
    for place, timing in timings_of(recording):
        if not timing.agrees_with_samples:
            yield f"{place} contradicts its own samples"
    if not 1 <= recording.environment.gpus <= MAX_GPUS:
        yield f"it has {recording.environment.gpus} GPUs"
    if recording.trace_sha256 and not (recording.has_trace and _SHA256.fullmatch(recording.trace_sha256)):
        yield "trace_sha256 is not the digest of a trace"
    level: list[Any] = [recording.data]
    for _ in range(MAX_NESTING):
        level = [item for each in level for item in _items(each)]
    if level:
        yield f"its data is nested more than {MAX_NESTING} levels deep"


def _items(value: Any) -> Iterable[Any]:
    """The members of a list or an object."""
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def timings_of(recording: Recording) -> Iterator[tuple[str, Timing]]:
    """Every timing of a recording, and its place."""
    for index, point in enumerate(recording.points):
        for kind in ("interleaved", "cold", "from_python", "enqueue", "steady") if point.timings else ():
            timing = getattr(point.timings, kind)
            if timing is not None:
                yield f"{kind} of point {index}", timing
        if point.iteration is not None:
            yield f"iteration of point {index}", point.iteration
        yield from ((f"ceiling {ceiling.name} of point {index}", ceiling.timing) for ceiling in point.ceilings)
