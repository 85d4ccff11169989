"""The description of an experiment: its maker, parameters, schedule and sweep."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from snippets.lab.experiment.errors import ExperimentError, UnknownName, nearest
from snippets.lab.experiment.subject import Loop, Subject, Work

Value = int | str
Parameters = Mapping[str, Value]
RESERVED = (
    "CUDA_VISIBLE_DEVICES",
    "LOCAL_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
    "NCCL_NVLS_ENABLE",
    "NVSHMEM_DISABLE_NVLS",
    "RANK",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST",
    "WORLD_SIZE",
)
"""Environment variables that no experiment sets: those of a rank's place, and those of NVLink multicast, which stays
off."""


TRIAL = -1
"""The number of the process that tries experiments; 0 profiles and probes, 1, 2 and 3 time."""


@dataclass(frozen=True)
class Schedule:
    """`torch.profiler.schedule`: steps skipped, steps profiled and thrown away, steps kept."""

    wait: int = 1
    warmup: int = 1
    active: int = 3

    @property
    def steps(self) -> int:
        """The number of all steps run."""
        return self.wait + self.warmup + self.active


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A named, parameterized unit of measured work.

    Exactly one of `make`, `loop` and `probe` is given. `make(device, **parameters)` returns a `Subject`, which is
    profiled and timed. `loop(device, **parameters)` returns a `Loop`, which is profiled, and timed from Python in
    blocks of iterations. `probe(instruments, device, **parameters)` returns plain data (JSON) that a profile does not
    contain, such as the number of compilations.

    With `gpus=2` or more, `loop(device, rank, world, **parameters)` or `probe(instruments, device, rank, world,
    **parameters)` is called in one process a rank. `torch.distributed` is initialized there: its default group is nccl
    on "cuda" and gloo on "cpu", and torch's current GPU is the rank's. Capture compares the mean of the ranks' losses
    with `Loop.reference`, which rank 0 calls alone, so it must not use a collective. Of a probe, rank 0's data is kept.
    """

    chapter: str
    name: str
    parameters: Parameters = field(default_factory=dict)
    make: Callable[..., Subject] | None = None
    loop: Callable[..., Loop] | None = None
    probe: Callable[..., dict[str, Any]] | None = None
    work: Callable[..., Work] | None = None
    label: str = ""
    """The `record_function` around each step."""
    group: str = ""
    """Experiments of one group share a process and are timed interleaved, A B B A; alone when empty."""
    gpus: int = 1
    """The number of ranks, each a process with a GPU of its own."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that are set before a process uses CUDA: its group has processes of its own. A variable whose name does
    not begin with `CUDA_` or `NCCL_` is set before torch is imported, in a new interpreter."""
    schedule: Schedule = Schedule()
    first_steps: int = 3
    """Steps run before the profiler starts; 0 profiles a cold process."""
    profiler_options: tuple[str, ...] = ("record_shapes",)
    """Further events that `torch.profiler.profile` records for a loop, such as `with_stack`."""
    sweep: tuple[Parameters, ...] = ()
    """Timed at each of these parameter sets instead of being profiled at one."""
    steady_sweep: bool = False
    """Also time each point of the sweep steady: two seconds for each variant."""
    timed: bool = True
    time_limit_s: int = 120
    trial: Parameters = field(default_factory=dict)
    """Parameters of a trial, in place of its own: fewer sizes or rounds, so that `try` takes seconds."""

    def __post_init__(self) -> None:
        if [self.make, self.loop, self.probe].count(None) != 2:
            raise ExperimentError(f"{self.id}: give exactly one of make, loop and probe")
        if self.loop is not None and (self.sweep or not self.label):
            raise ExperimentError(f"{self.id}: a loop needs its label and has no sweep")
        if self.make is not None and (self.work is None or not self.label):
            raise ExperimentError(f"{self.id}: a profiled experiment needs its work and its label")
        for name in (name for point in self.sweep for name in point):
            if name not in self.parameters:
                raise ExperimentError(
                    f"{self.id}: the sweep sets {name!r}, no parameter{nearest(name, self.parameters)}"
                )
        for name in self.trial:
            if name not in self.parameters:
                raise ExperimentError(
                    f"{self.id}: its trial sets {name!r}, no parameter{nearest(name, self.parameters)}"
                )
        self._require_ranks()
        of_a_rank = ("device", "rank", "world") if self.gpus > 1 else ("device",)
        if self.make is not None:
            _require_parameters(self, self.make, "device")
        if self.loop is not None:
            _require_parameters(self, self.loop, *of_a_rank)
        if self.probe is not None:
            _require_parameters(self, self.probe, "instruments", *of_a_rank)
        if self.work is not None:
            _require_parameters(self, self.work)

    def _require_ranks(self) -> None:
        """Raise `ExperimentError` if the experiment cannot have its GPUs or its environment."""
        if self.gpus < 1:
            raise ExperimentError(f"{self.id}: gpus={self.gpus}; give 1 or more")
        if self.gpus > 1 and self.make is not None:
            raise ExperimentError(f"{self.id}: an experiment on {self.gpus} GPUs is a loop or a probe; give no make")
        for name, value in self.environment.items():
            if name in RESERVED:
                raise ExperimentError(f"{self.id}: its environment sets {name}, which capture sets; remove it")
            if not isinstance(value, str):
                raise ExperimentError(
                    f"{self.id}: its environment sets {name} to {value!r}; give a text, {str(value)!r}"
                )

    @property
    def id(self) -> str:
        """`chapter/name`, as on the command line."""
        return f"{self.chapter}/{self.name}"

    @property
    def is_traced(self) -> bool:
        """Whether a recording of it has a trace."""
        return self.probe is None and not self.sweep

    @property
    def processes(self) -> int:
        """The number of processes that time it: three, so that their difference is known; one for a sweep."""
        return 1 if self.sweep else 3

    @property
    def is_steady(self) -> bool:
        """Whether it is timed steady if its step is long enough."""
        return self.steady_sweep or not self.sweep

    @property
    def points(self) -> tuple[Parameters, ...]:
        """The parameter sets of the sweep, or its only parameters."""
        return tuple({**self.parameters, **point} for point in self.sweep) or (self.parameters,)

    def at(self, **parameters: Value) -> Experiment:
        """Return the experiment with some parameters replaced. Raises `UnknownName` for an unknown parameter."""
        for name in parameters:
            if name not in self.parameters:
                raise UnknownName(f"{self.id} has no parameter {name!r}{nearest(name, self.parameters)}")
        return replace(self, parameters={**self.parameters, **parameters})

    def tried(self) -> Experiment:
        """The experiment of a trial: its parameters, and at most one step before the profiler starts."""
        return replace(self.at(**self.trial), first_steps=min(1, self.first_steps))


def _require_parameters(experiment: Experiment, function: Callable[..., object], *leading: str) -> None:
    """Raise `ExperimentError` unless a function takes the `leading` arguments and the experiment's parameters."""
    accepted = inspect.signature(function).parameters.values()
    if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in accepted):
        return
    known = [one.name for one in accepted]
    called = getattr(getattr(function, "func", function), "__name__", "the function")
    for name in (*leading, *experiment.parameters):
        if name not in known:
            raise ExperimentError(f"{experiment.id}: {called} takes no {name!r}{nearest(name, known)}")
    for one in accepted:
        if one.default is one.empty and one.name not in (*leading, *experiment.parameters):
            raise ExperimentError(f"{experiment.id}: {called} needs {one.name!r}, which parameters do not set")
