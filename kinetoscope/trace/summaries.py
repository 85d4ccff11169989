"""The types of a trace's summary, and the JSON document of the command `summary`."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, structs

from kinetoscope.trace.device_rows import CounterSummary, WaitSummary
from kinetoscope.trace.documents import SCHEMA_VERSION, Cut
from kinetoscope.trace.events import Damage, Triple


class KernelSummary(Struct, frozen=True):
    """All launches of one kernel with one shape, over the active steps."""

    name: str
    calls: int
    total_us: float
    mean_us: float
    op: str | None
    """The operator that launched it most often."""
    grid: Triple | None
    block: Triple | None
    registers: int | None
    """Per thread."""
    shared_memory_bytes: int | None
    overlap_us: float = 0.0
    """Of `total_us`, while the kernel before on its stream was still running."""


class OperatorSummary(Struct, frozen=True):
    """An operator, an annotation or a CUDA call; `ProfilerStep*` is code between them."""

    name: str
    calls: int
    self_cpu_us: float
    """Without the operators inside, over the whole trace."""
    cpu_us: float
    """With the operators inside, over the whole trace."""


class DeviceSummary(Struct, frozen=True):
    """One of several GPUs; means over the steps that have work on it."""

    device: int
    name: str | None
    kernels_per_step: int
    kernel_time_us_per_step: float
    gpu_busy_us_per_step: float


class UncountedSummary(Struct, frozen=True):
    """GPU activities outside all steps, for one reason."""

    reason: str
    activities: int
    kernel_time_us: float


class KindSummary(Struct, frozen=True):
    """Steps of one kind, where a trace has several: prefill and decode, or training and validation."""

    count: int
    step_us: float
    """The low median; at least its GPU work."""
    gpu_busy_us_per_step: float
    name: str
    """Of the marks; empty if they differ."""


class Summary(Struct, frozen=True, kw_only=True):
    """Counts are per step (the low median if steps differ); times are means over the active steps."""

    device: str | None
    """Name of the GPU; null if the file does not tell."""
    steps: int
    """The active steps."""
    steps_agree: bool
    """Whether all steps run the same work; if not, counts are the low median of a step."""
    kernels_per_step: int
    """Kernels that a step launches."""
    memcpy_per_step: int
    """Copies by the GPU."""
    memset_per_step: int
    """Fills by the GPU."""
    launches_per_step: int
    """Calls that start GPU work; no queries or waits."""
    kernel_time_us_per_step: float
    """A sum: overlapping kernels count twice."""
    overlap_us_per_step: float
    """Of `kernel_time_us_per_step`, while the kernel before on the same stream was still running."""
    gpu_busy_us_per_step: float
    """Time in which the GPU works, overlapping work counted once."""
    gpu_idle_us_per_step: float
    """Idle time between the first and the last GPU work of a step."""
    unattributed: int
    """GPU activities outside all steps."""
    steps_from: str
    """What marks the steps: `ProfilerStep`, an annotation, graph replays, `the whole trace`."""
    uncounted: tuple[UncountedSummary, ...]
    """The activities of `unattributed`, by reason."""
    step_us: float
    """A step on the CPU: the low median."""
    syncs_per_step: int
    """Calls that make the CPU wait for the GPU."""
    h2d_us_per_step: float
    """Copies from host to device, a sum."""
    d2h_us_per_step: float
    """Copies from device to host, a sum."""
    collectives_us_per_step: float
    """A sum."""
    exposed_collectives_us_per_step: float
    """Of it, while no other kernel ran on that GPU."""
    devices: tuple[DeviceSummary, ...]
    """Each of several GPUs; empty where all work is on one GPU."""
    processes: tuple[str, ...]
    """The processes that were merged into the file; empty where it is of one process."""
    is_cut: bool
    """Whether the file ends in the middle."""
    stream_waits: tuple[WaitSummary, ...] = ()
    """Waits by kind and stream, over the whole trace; no work of a GPU."""
    counters: tuple[CounterSummary, ...] = ()
    """Counters of hardware or of other tools, over the whole trace."""
    launches: int = 0
    """Launches of kernels in the whole trace, without those captured into a CUDA graph."""
    launches_without_kernel: int = 0
    """Of `launches`, those whose kernel the file lacks."""
    damaged: tuple[Damage, ...] = ()
    """Events with missing or impossible values, and what was done with them."""
    notes: tuple[str, ...]
    """Limits of these numbers, a sentence each."""
    kernels: tuple[KernelSummary, ...]
    """Kernels of the active steps by name and launch shape, the longest total first."""
    kinds_of_step: tuple[KindSummary, ...] = ()
    """The kind with most time first; empty where all steps are of one kind."""
    operators: tuple[OperatorSummary, ...] = ()
    """Operators by their own CPU time, where the trace has no GPU work."""


class SummaryDocument(Summary, frozen=True, kw_only=True, tag_field="kind", tag="summary"):
    """The JSON of `summary`."""

    schema_version: Literal[1] = SCHEMA_VERSION
    """Raised when a key is renamed, removed or changes its meaning; keys that are added leave it."""
    file: str
    """Name of the trace's file, without its folder."""
    truncated: tuple[Cut, ...] = ()
    """The lists that are cut."""


def summary_document(summary: Summary, file: str) -> SummaryDocument:
    """The document of the summary of a file with this name."""
    return SummaryDocument(**structs.asdict(summary), file=file)
