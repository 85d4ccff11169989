"""The vocabulary of `experiments.py`: the measured code, its parameters, and its work.

An experiment is a frozen description. The capture room measures it, on a machine with a GPU; listing experiments needs
neither a GPU nor torch, which is why makers import torch inside their bodies. A chapter's experiments import nothing
else of the lab: a probe gets its measuring functions as `Instruments`.

    EAGER = Experiment(
        chapter="mlp", name="eager", label="mlp_fwd",
        parameters={"batch": 64, "seq": 128}, make=make_eager, work=forward_work, group="forward",
    )
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import os
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from torch import Tensor
    from torch.profiler import profile


Value = int | str
Parameters = Mapping[str, Value]


class UnknownName(LookupError):
    """No such chapter, experiment, point, quantity, figure or claim; the message names the nearest ones."""


class ExperimentError(ValueError):
    """An experiment that contradicts itself, its group or its functions; the message names the cure."""


class NeedsGpu(RuntimeError):
    """This experiment cannot run on a CPU; the message says why."""


class WrongAnswer(ArithmeticError):
    """The result of a step differs from its reference by more than the tolerance."""


@dataclass(frozen=True)
class Work:
    """The least work of a step: every input read once, every output written once, and its arithmetic."""

    bytes: int
    matmuls: tuple[tuple[int, int, int], ...] = ()
    """(M, K, N) of each matrix product, batch folded into M; capture measures a bare matmul of each as a ceiling."""
    layout: Literal["x @ weight.t()", "x @ w"] = "x @ weight.t()"
    """How the step stores the second factors, and so the bare matmuls: (N, K) as `nn.Linear` does, or (K, N)."""
    dtype: str = "bfloat16"
    """Type of the factors, a name in torch."""
    other_flops: int = 0
    """Floating-point operations outside of matrix products: for a pointwise step, so many for each element."""

    @property
    def flops(self) -> int:
        """All floating-point operations, a multiply-add counted as two."""
        return sum(2 * m * k * n for m, k, n in self.matmuls) + self.other_flops


@dataclass(frozen=True)
class Subject:
    """The result of a maker: one step, its inputs, and its reference."""

    step: Callable[..., Tensor]
    inputs: Callable[[], tuple[Tensor, ...]]
    """Draws a fresh set of random inputs for `step`; capture rotates many sets when it times."""
    reference: Callable[..., Tensor]
    """The same function of the same inputs in float64 or float32."""
    tolerance: float = 1e-2
    """Largest relative error (Frobenius norm) that still counts as right; bf16 lands between 1e-3 and 5e-3."""
    in_graph: bool = True
    """Whether interleaved and cold times are taken from CUDA graphs; a long step may be timed in the stream as well."""
    notes: Mapping[str, str] = field(default_factory=dict)
    """Notes for readers on how it was made, kept in the recording."""


def copy_subject(device: str, bytes_copied: int, in_graph: bool = False) -> Subject:
    """A device-to-device copy of `bytes_copied` bytes: reads them once, writes them once.

    Timed in the stream unless `in_graph`: as a memcpy node of a CUDA graph 1 GiB took 807 us, in the stream 506 us
    (NVIDIA H200, driver 580.159), and a ceiling must not be lower than the rates compared with it.
    """
    import torch

    target = torch.empty(bytes_copied, dtype=torch.uint8, device=device)

    def source() -> tuple[Tensor]:
        return (torch.randint(0, 256, (bytes_copied,), dtype=torch.uint8, device=device),)

    return Subject(step=target.copy_, inputs=source, reference=lambda x: x, tolerance=0.0, in_graph=in_graph)


def matmul_subject(
    device: str, m: int, k: int, n: int, layout: str = "x @ weight.t()", dtype: str = "bfloat16"
) -> Subject:
    """A matrix product (M, K) @ (K, N).

    Args:
        device: `cuda` or `cpu`.
        m: rows of x.
        k: columns of x.
        n: columns of the product.
        layout: `x @ weight.t()` stores the second factor as (N, K), as `nn.Linear` does; `x @ w` stores it as (K, N).
        dtype: the name of a floating-point type in torch.
    """
    import torch

    kind = getattr(torch, dtype)
    second = torch.randn(k, n, dtype=kind, device=device)
    if layout == "x @ weight.t()":
        second = second.t().contiguous().t()

    def factors() -> tuple[Tensor]:
        return (torch.randn(m, k, dtype=kind, device=device),)

    return Subject(step=lambda x: x @ second, inputs=factors, reference=lambda x: x.double() @ second.double())


@dataclass(frozen=True)
class Loop:
    """The result of a loop maker: a training loop as its user wrote it, run one iteration at a time."""

    losses: Generator[Tensor, None, None]
    """Each `next` runs an iteration, fetching its batch included, and returns its loss without waiting for the GPU."""
    reference: Callable[[int], Sequence[float]]
    """The losses of so many first iterations on the same batches, in float32."""
    tolerance: float = 1e-2
    """Largest relative error of the first losses that still counts as right."""
    lead: int = 4
    """Iterations before each timed block: at least as many as its loader has fetched ahead."""


class StepTimes(Protocol):
    """GPU times of one step in microseconds; sample i of two steps that were timed together are a pair."""

    @property
    def q1_us(self) -> float:
        """Lower quartile."""

    @property
    def median_us(self) -> float:
        """Median."""

    @property
    def q3_us(self) -> float:
        """Upper quartile."""

    @property
    def samples_us(self) -> tuple[float, ...]:
        """All samples, in the order in which they were taken."""


class SteadyTimes(StepTimes, Protocol):
    """Times of a step that ran alone for seconds, with NVML's readings; 0 if NVML did not answer."""

    @property
    def clock_mhz(self) -> float:
        """Median clock of the multiprocessors."""

    @property
    def watts(self) -> float:
        """Mean power draw."""

    @property
    def joules(self) -> float:
        """Energy of one step."""


class AllTimes(Protocol):
    """The times of one step without and with its launches."""

    @property
    def interleaved(self) -> StepTimes:
        """The GPU's time alone."""

    @property
    def cold(self) -> StepTimes:
        """The GPU's time alone, with an empty L2 cache."""

    @property
    def from_python(self) -> StepTimes:
        """The time until the GPU is done with a Python loop."""

    @property
    def enqueue(self) -> StepTimes:
        """The time until the last launch of that loop has returned."""


class Instruments(Protocol):
    """The measuring functions of a probe. Times are interleaved: the GPU's own, launch-free, inputs larger than the
    L2."""

    @property
    def rounds(self) -> int:
        """The number of samples that `time_interleaved` takes of each subject."""

    def relative_error(self, subject: Subject, device: str) -> tuple[float, str, int]:
        """The error of one step, the reference's dtype, and the step's peak bytes. Raises `WrongAnswer`."""

    def time_interleaved(self, subjects: Mapping[str, Subject]) -> Mapping[str, StepTimes]:
        """Prepare subjects and time them A B, B A."""

    def time_all(self, subjects: Mapping[str, Subject]) -> Mapping[str, AllTimes]:
        """Prepare subjects and take their interleaved, cold, from-Python and enqueue times."""

    def time_steady(self, subjects: Mapping[str, Subject]) -> Mapping[str, SteadyTimes]:
        """Prepare subjects and time each alone in a block of seconds."""

    def prepare(self, subject: Subject) -> Any:
        """Draw a subject's inputs and capture its graphs, for `time_prepared`."""

    def time_prepared(self, variants: Mapping[str, Any], rounds: int) -> Mapping[str, StepTimes]:
        """Time prepared subjects A B, B A in `rounds` rounds, at least two."""

    def read_activities(self, finished: profile) -> Sequence[Any]:
        """The GPU activities of a finished profile, with name, duration_us, grid and block."""


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
        if self.make is not None:
            _require_parameters(self, self.make, "device")
        if self.loop is not None:
            _require_parameters(self, self.loop, "device")
        if self.probe is not None:
            _require_parameters(self, self.probe, "instruments", "device")
        if self.work is not None:
            _require_parameters(self, self.work)

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


def package_folder(package: str = "snippets") -> Path:
    """The folder of a package of chapters."""
    (folder,) = importlib.import_module(package).__path__
    return Path(folder)


def chapters(package: str = "snippets") -> tuple[str, ...]:
    """Chapters with experiments, found by their folders, sorted by name."""
    with os.scandir(package_folder(package)) as entries:  # not a glob: a build asks 8,000 times
        return tuple(sorted(entry.name for entry in entries if os.path.isfile(f"{entry.path}/experiments.py")))


def experiments(chapter: str, package: str = "snippets") -> tuple[Experiment, ...]:
    """All experiments of a chapter, in the order in which its `experiments.py` lists them."""
    if chapter not in chapters(package):
        raise UnknownName(f"no chapter {chapter!r}{nearest(chapter, chapters(package))}")
    module = f"{package}.{chapter}.experiments"
    listed: tuple[Experiment, ...] = importlib.import_module(module).EXPERIMENTS
    names: set[str] = set()
    points: dict[str, int] = {}
    kinds: dict[str, Experiment] = {}
    for experiment in listed:
        if experiment.chapter != chapter:
            raise ExperimentError(f"{module} lists {experiment.id}; write chapter={chapter!r}")
        if experiment.name in names:
            raise ExperimentError(f"{module} lists {experiment.id} twice; give one of them another name")
        names.add(experiment.name)
        if experiment.group and points.setdefault(experiment.group, len(experiment.points)) != len(experiment.points):
            raise ExperimentError(
                f"{experiment.id}: the group {experiment.group!r} is timed interleaved, so its sweeps are equally long"
            )
        if experiment.group and (experiment.loop is None) != (
            kinds.setdefault(experiment.group, experiment).loop is None
        ):
            raise ExperimentError(f"{experiment.id}: the group {experiment.group!r} has loops only, or none")
    return listed


def find(name: str, package: str = "snippets") -> tuple[Experiment, ...]:
    """Experiments by name: all of a chapter (`mlp`) or one (`mlp/eager`)."""
    chapter, _, experiment = name.partition("/")
    of_chapter = experiments(chapter, package)
    if not experiment:
        return of_chapter
    matches = tuple(candidate for candidate in of_chapter if candidate.name == experiment)
    if not matches:
        raise UnknownName(f"no experiment {name!r}{nearest(name, (candidate.id for candidate in of_chapter))}")
    return matches


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of an error about an unknown name: `; did you mean mlp/eager?`."""
    known = tuple(known)
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.4) or sorted(known)
    return f"; did you mean {' or '.join(near)}?" if near else "; there is none yet"
