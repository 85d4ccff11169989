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
    """The operator that launched this kernel most often."""
    grid: Triple | None
    block: Triple | None
    registers: int | None
    """Registers per thread."""
    shared_memory_bytes: int | None
    overlap_us: float = 0.0
    """The part of `total_us` in which the kernel before on the same stream was still running."""


class OperatorSummary(Struct, frozen=True):
    """An operator, an annotation or a CUDA call; `ProfilerStep*` is code between them."""

    name: str
    calls: int
    self_cpu_us: float
    """CPU time over the whole trace, without the operators that this operator calls."""
    cpu_us: float
    """CPU time over the whole trace, with the operators that this operator calls."""


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
    """The low median of the steps' times; at least the time of their GPU work."""
    gpu_busy_us_per_step: float
    name: str
    """Name of the marks around these steps; empty if the names differ."""


class Summary(Struct, frozen=True, kw_only=True):
    """Counts are per step (the low median if steps differ); times are means over the active steps."""

    device: str | None
    """Name of the GPU; null if the file does not contain the name."""
    steps: int
    """Number of active steps."""
    steps_agree: bool
    """Whether all steps run the same work; if they do not, counts are low medians over the steps."""
    kernels_per_step: int
    """Number of kernels that a step launches."""
    memcpy_per_step: int
    """Number of copies by the GPU."""
    memset_per_step: int
    """Number of memory fills by the GPU."""
    launches_per_step: int
    """Number of calls that start GPU work, without queries and waits."""
    kernel_time_us_per_step: float
    """Sum of the times of all kernels; time in which two kernels overlap counts twice."""
    overlap_us_per_step: float
    """The part of `kernel_time_us_per_step` in which the kernel before on the same stream was still running."""
    gpu_busy_us_per_step: float
    """Time in which the GPU works; overlapping work counts once."""
    gpu_idle_us_per_step: float
    """Idle time between the first and the last GPU work of a step."""
    unattributed: int
    """Number of GPU activities outside all steps."""
    steps_from: str
    """What marks the steps: `ProfilerStep`, an annotation, graph replays, or `the whole trace`."""
    uncounted: tuple[UncountedSummary, ...]
    """The activities that `unattributed` counts, by reason."""
    step_us: float
    """The low median of a step's time on the CPU."""
    syncs_per_step: int
    """Number of calls that make the CPU wait for the GPU."""
    h2d_us_per_step: float
    """Sum of the times of copies from host to device."""
    d2h_us_per_step: float
    """Sum of the times of copies from device to host."""
    collectives_us_per_step: float
    """Sum of the times of collectives."""
    exposed_collectives_us_per_step: float
    """The part of `collectives_us_per_step` in which no other kernel ran on the same GPU."""
    devices: tuple[DeviceSummary, ...]
    """One row for each GPU; empty if all work is on one GPU."""
    processes: tuple[str, ...]
    """The processes whose traces were merged into the file; empty if the file is of one process."""
    is_cut: bool
    """Whether the file is cut off before its end."""
    stream_waits: tuple[WaitSummary, ...] = ()
    """Waits by kind and stream, over the whole trace; a wait is not GPU work."""
    counters: tuple[CounterSummary, ...] = ()
    """Counters of hardware or of other tools, over the whole trace."""
    launches: int = 0
    """Number of kernel launches in the whole trace, without launches that are captured into a CUDA graph."""
    launches_without_kernel: int = 0
    """Number of `launches` whose kernel the file lacks."""
    damaged: tuple[Damage, ...] = ()
    """Events with missing or impossible values, and how kinetoscope treats these events."""
    notes: tuple[str, ...]
    """Limits of these numbers, in one sentence each."""
    kernels: tuple[KernelSummary, ...]
    """Kernels of the active steps by name and launch shape, the longest total first."""
    kinds_of_step: tuple[KindSummary, ...] = ()
    """Kinds of steps, the kind with the most time first; empty if all steps are of one kind."""
    operators: tuple[OperatorSummary, ...] = ()
    """Operators by their own CPU time; empty if the trace has GPU work."""


class SummaryDocument(Summary, frozen=True, kw_only=True, tag_field="kind", tag="summary"):
    """The JSON of `summary`."""

    schema_version: Literal[1] = SCHEMA_VERSION
    """Version of the schema. It rises when a key is renamed, removed or changes its meaning, not when one is added."""
    file: str
    """Name of the trace's file, without its folder."""
    truncated: tuple[Cut, ...] = ()
    """The lists that this document shortens."""


def summary_document(summary: Summary, file: str) -> SummaryDocument:
    """The document of the summary of a file with this name."""
    return SummaryDocument(**structs.asdict(summary), file=file)
