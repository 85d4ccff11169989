"""The events and fields of a Kineto file that kinetoscope uses; decoding.py decodes them."""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar, Literal, Union, cast

import msgspec
from msgspec import Meta, Raw, Struct, field as key

from kinetoscope.trace.events import Kind

NO_TEXT = Raw(b"")
MAX_BYTES = 2**60
Size = Annotated[int, Meta(ge=0, le=MAX_BYTES)]
Change = Annotated[int, Meta(ge=-MAX_BYTES, le=MAX_BYTES)]
Count = Annotated[int, Meta(ge=0, le=2**53)]
Rank = Annotated[int, Meta(ge=-(2**31), le=2**31)]
Extent = Annotated[int, Meta(ge=0, le=2**32)]
Triple = tuple[Extent, Extent, Extent]


class _IdArgs(Struct, gc=False):
    external_id: int | None = key(name="External id", default=None)
    old_external_id: int | None = key(name="external id", default=None)  # of calls and GPU activities until 2022

    @property
    def external(self) -> int | None:
        """The external id, under its new or its old name."""
        return self.old_external_id if self.external_id is None else self.external_id


class OpArgs(_IdArgs, gc=False):
    """Arguments of an operator: the texts of its shapes. `EventDecoder` makes them `bytes` unless all are `NO_TEXT`."""

    input_dims: Raw = key(name="Input Dims", default=NO_TEXT)
    input_strides: Raw = key(name="Input Strides", default=NO_TEXT)
    input_types: Raw = key(name="Input type", default=NO_TEXT)


class _CallArgs(_IdArgs, gc=False):
    correlation: int = 0


class CollectiveArgs(_IdArgs, gc=False):
    """Arguments of a collective, of its kernel or of the operator `record_param_comms` that launched the kernel."""

    collective: str | None = key(name="Collective name", default=None)
    elements_in: Count | None = key(name="In msg nelems", default=None)
    elements_out: Count | None = key(name="Out msg nelems", default=None)
    type: str | None = key(name="dtype", default=None)
    group_size: Rank | None = key(name="Group size", default=None)
    group: str | None = key(name="Process Group Name", default=None)
    group_description: str | None = key(name="Process Group Description", default=None)
    group_ranks: str | None = key(name="Process Group Ranks", default=None)
    first_rank: Rank | None = key(name="Global rank start", default=None)
    rank_stride: Rank | None = key(name="Global rank stride", default=None)
    group_rank: Rank | None = key(name="Rank", default=None)
    sequence: Change | None = key(name="Seq", default=None)
    source_rank: Rank | None = key(name="Src Rank", default=None)
    target_rank: Rank | None = key(name="Dst Rank", default=None)
    comms_id: int | None = key(name="Comms Id", default=None)


class _GpuArgs(CollectiveArgs, gc=False):
    device: int | None = None
    stream: int | None = None
    correlation: int | None = None
    registers: Count | None = key(name="registers per thread", default=None)
    shared_memory_bytes: Size | None = key(name="shared memory", default=None)
    grid: Triple | None = None
    block: Triple | None = None
    occupancy_percent: Annotated[float, Meta(ge=0, le=1e6)] | None = key(name="est. achieved occupancy %", default=None)
    moved_bytes: Size | None = key(name="bytes", default=None)
    graph_id: int | None = key(name="graph id", default=None)
    graph_node_id: int | None = key(name="graph node id", default=None)


class _WaitArgs(_CallArgs, gc=False):
    stream: int | None = None
    waited_stream: int | None = key(name="wait_on_stream", default=None)


class _MemoryArgs(Struct, frozen=True, gc=False):
    bytes: Change | None = key(name="Bytes", default=None)
    total_allocated: Change | None = key(name="Total Allocated", default=None)
    total_reserved: Change | None = key(name="Total Reserved", default=None)
    device_type: int = key(name="Device Type", default=0)  # 0: the CPU
    device: int = key(name="Device Id", default=-1)
    address: int = key(name="Addr", default=0)


class Event(Struct, gc=False, tag_field="cat", tag=""):
    """A complete event; its category determines the arguments to decode."""

    phase: ClassVar[str] = "X"
    ph: Literal["X"]
    name: str = ""
    pid: int | float | str | None = None
    tid: int | float | str | None = None
    ts: int | float = math.nan  # an integer stays one: nanoseconds since 1970 do not fit into a float
    dur: Annotated[float, Meta(ge=0, le=1e15)] = math.nan


class Op(Event, gc=False, tag="cpu_op"):
    """An operator."""

    args: OpArgs = key(default_factory=OpArgs)


class Annotation(Op, gc=False, tag="user_annotation"):
    """A `record_function` span."""


class Communication(Op, gc=False, tag="record_param_comms"):
    """An operator `record_param_comms`, with the collective that it launches; not a category of the file."""

    collective: CollectiveArgs = key(default_factory=CollectiveArgs)


class RuntimeCall(Event, gc=False, tag="cuda_runtime"):
    """A call of the CUDA runtime, or of another accelerator's."""

    is_driver: ClassVar[bool] = False
    args: _CallArgs = key(default_factory=_CallArgs)


class DriverCall(RuntimeCall, gc=False, tag="cuda_driver"):
    """A call of the CUDA driver, or of another accelerator's."""

    is_driver: ClassVar[bool] = True


class Kernel(Event, gc=False, tag="kernel"):
    """A kernel."""

    kind: ClassVar[Kind] = "kernel"
    args: _GpuArgs = key(default_factory=_GpuArgs)


class Memcpy(Kernel, gc=False, tag="gpu_memcpy"):
    """A memcpy."""

    kind: ClassVar[Kind] = "memcpy"


class Memset(Kernel, gc=False, tag="gpu_memset"):
    """A memset."""

    kind: ClassVar[Kind] = "memset"


class GpuAnnotation(Event, gc=False, tag="gpu_user_annotation"):
    """An annotation mirrored on the GPU."""


class Overhead(Event, gc=False, tag="overhead"):
    """The profiler's own time."""


class Function(Event, gc=False, tag="python_function"):
    """A Python function, recorded with `with_stack`."""


class Instant(Struct, gc=False, tag_field="cat", tag="cpu_instant_event"):
    """An allocation or a release, recorded with `profile_memory`, and other instants, which are not kept."""

    phase: ClassVar[str] = "i"
    ph: Literal["i"]
    name: str = ""
    pid: int | float | str | None = None
    tid: int | float | str | None = None
    ts: int | float = math.nan
    args: _MemoryArgs = _MemoryArgs()


class Wait(Event, gc=False, tag="cuda_sync"):
    """A wait for a stream, an event or the whole GPU, in a row of the stream."""

    args: _WaitArgs = key(default_factory=_WaitArgs)


class Samples(Struct, gc=False, tag_field="cat", tag="hardware_counters"):
    """Samples of counters at one time."""

    phase: ClassVar[str] = "C"
    ph: Literal["C"]
    name: str = ""
    pid: int | float | str | None = None
    ts: int | float = math.nan
    values: dict[str, Any] = key(name="args", default_factory=dict)


AnyEvent = Event | Instant | Samples
WORK = Op, RuntimeCall, Kernel
"""The events that times per step depend on."""


def _alias(kind: type[Any], category: str) -> type[Any]:
    """The same event under another category."""
    alias: Any = msgspec.defstruct(kind.__name__, [], bases=(kind,), tag=category, gc=False)
    return cast(type[Any], alias)


def _ignored(category: str) -> type[Struct]:
    """An ignored event. Such events are often half of a trace, and without a type each would raise, as unknown
    categories do."""
    return msgspec.defstruct("Ignored", [], tag_field="cat", tag=category, gc=False)


_OTHER_CATEGORIES: dict[type[Any], tuple[str, ...]] = {
    Op: ("Operator",),  # until PyTorch 1.9
    RuntimeCall: ("Runtime", "hip_runtime", "xpu_runtime", "privateuse1_runtime", "mtia_runtime"),
    DriverCall: ("hip_driver", "xpu_driver", "privateuse1_driver"),
    Kernel: ("Kernel",),
    Memcpy: ("Memcpy",),
    Memset: ("Memset",),
    Wait: ("xpu_sync",),
    Samples: ("mtia_counters", "xpu_scope_profiler"),
}
NAMED: tuple[type[Any], ...] = (
    Op, Annotation, RuntimeCall, DriverCall, Kernel, Memcpy, Memset, GpuAnnotation, Overhead, Function, Instant, Wait,
    Samples,
)  # fmt: skip
KEPT: dict[str, type[Any]] = {kind.__struct_config__.tag: kind for kind in NAMED} | {
    category: _alias(kind, category) for kind, categories in _OTHER_CATEGORIES.items() for category in categories
}
IGNORED = ("ac2g", "async", "fwdbwd", "cuda_event", "Trace")
_KINDS = (*map(_ignored, IGNORED), *KEPT.values())
DECODER: msgspec.json.Decoder[Any] = msgspec.json.Decoder(Union[*_KINDS])
LIST_DECODER: msgspec.json.Decoder[list[Any]] = msgspec.json.Decoder(list[Union[*_KINDS]])  # type: ignore[valid-type]
