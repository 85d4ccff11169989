"""The vocabulary of `experiments.py`: what is measured, with which parameters, and how much work it is.

An experiment is a frozen description. It becomes measured work only in `capture`, on a machine with a GPU; listing
experiments needs neither a GPU nor torch, which is why makers import torch inside their bodies.

    EAGER = Experiment(
        chapter="mlp", name="eager", label="mlp_fwd",
        parameters={"batch": 64, "seq": 128}, make=make_eager, work=forward_work, group="forward",
    )
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


Value = int | str
Parameters = Mapping[str, Value]


class UnknownName(LookupError):
    """No such chapter, experiment, point, quantity, figure or claim; the message names the nearest ones."""


class NeedsGpu(RuntimeError):
    """This experiment cannot run on a CPU; the message says why."""


@dataclass(frozen=True)
class Work:
    """The least a step has to do: every input read once, every output written once, and its matrix products."""

    bytes: int
    matmuls: tuple[tuple[int, int, int], ...] = ()
    """(M, K, N) of each matrix product, batch folded into M; capture measures a bare matmul of each as a ceiling."""

    @property
    def flops(self) -> int:
        """Floating-point operations of the matrix products, a multiply-add counted as two."""
        return sum(2 * m * k * n for m, k, n in self.matmuls)


@dataclass(frozen=True)
class Subject:
    """What a maker returns: one step, and what is needed to feed and to check it."""

    step: Callable[..., Tensor]
    inputs: Callable[[], tuple[Tensor, ...]]
    """Draws a fresh set of random inputs for `step`; capture rotates many sets when it times."""
    reference: Callable[..., Tensor]
    """The same function of the same inputs in float64 or float32."""
    tolerance: float = 1e-2
    """Largest relative error (Frobenius norm) that still counts as right; bf16 lands between 1e-3 and 5e-3."""
    in_graph: bool = True
    """Whether its warm and cold times are taken from CUDA graphs; a long step may be timed in the stream as well."""
    notes: Mapping[str, str] = field(default_factory=dict)
    """What a reader must know of how it was made, kept in the recording."""


@dataclass(frozen=True)
class Schedule:
    """`torch.profiler.schedule`: steps skipped, steps profiled and thrown away, steps kept."""

    wait: int = 1
    warmup: int = 1
    active: int = 3

    @property
    def steps(self) -> int:
        """Steps run in all."""
        return self.wait + self.warmup + self.active


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A named, parameterized unit of measured work.

    Exactly one of `make` and `measure` is given. `make(device, **parameters)` returns a `Subject`, which is
    profiled and timed. `measure(device, **parameters)` returns plain data (JSON) for what a profile cannot
    say, such as how often a compiler ran.
    """

    chapter: str
    name: str
    parameters: Parameters = field(default_factory=dict)
    make: Callable[..., Subject] | None = None
    measure: Callable[..., dict[str, Any]] | None = None
    work: Callable[..., Work] | None = None
    label: str = ""
    """The `record_function` around each step."""
    group: str = ""
    """Experiments of one group share a process and are timed in turns, A B A B; alone when empty."""
    schedule: Schedule = Schedule()
    first_steps: int = 3
    """Steps run before the profiler starts; 0 profiles a cold process."""
    sweep: tuple[Parameters, ...] = ()
    """Timed at each of these parameter sets instead of being profiled at one."""
    timed: bool = True
    time_limit_s: int = 120

    def __post_init__(self) -> None:
        if (self.make is None) == (self.measure is None):
            raise ValueError(f"{self.id}: give exactly one of make and measure")
        if self.make is not None and (self.work is None or not self.label):
            raise ValueError(f"{self.id}: a profiled experiment needs its work and its label")
        for point in self.sweep:
            unknown = set(point) - set(self.parameters)
            if unknown:
                raise ValueError(f"{self.id}: the sweep sets unknown parameters {sorted(unknown)}")

    @property
    def id(self) -> str:
        """`chapter/name`, as on the command line."""
        return f"{self.chapter}/{self.name}"

    @property
    def is_traced(self) -> bool:
        """Whether a recording of it has a trace."""
        return self.make is not None and not self.sweep

    @property
    def points(self) -> tuple[Parameters, ...]:
        """The parameter sets it is measured at: those of the sweep, else its own."""
        return tuple({**self.parameters, **point} for point in self.sweep) or (self.parameters,)

    def at(self, **parameters: Value) -> Experiment:
        """Return the experiment with some parameters replaced. Raises `TypeError` for one it does not have."""
        unknown = set(parameters) - set(self.parameters)
        if unknown:
            raise TypeError(f"{self.id} has no parameter {sorted(unknown)}; it has {sorted(self.parameters)}")
        return replace(self, parameters={**self.parameters, **parameters})


def chapters(package: str = "snippets") -> tuple[str, ...]:
    """Chapters with experiments, found by their folders, sorted by name."""
    (root,) = importlib.import_module(package).__path__
    return tuple(sorted(path.parent.name for path in Path(root).glob("*/experiments.py")))


def experiments(chapter: str, package: str = "snippets") -> tuple[Experiment, ...]:
    """All experiments of a chapter, in the order in which its `experiments.py` lists them."""
    if chapter not in chapters(package):
        raise UnknownName(f"no chapter {chapter!r}{nearest(chapter, chapters(package))}")
    found: tuple[Experiment, ...] = importlib.import_module(f"{package}.{chapter}.experiments").EXPERIMENTS
    names = [experiment.name for experiment in found]
    points: dict[str, int] = {}
    for experiment in found:
        if experiment.chapter != chapter or names.count(experiment.name) > 1:
            raise ValueError(f"{package}.{chapter}.experiments: {experiment.id} stands twice or belongs elsewhere")
        if experiment.group and points.setdefault(experiment.group, len(experiment.points)) != len(experiment.points):
            raise ValueError(
                f"{experiment.id}: the group {experiment.group!r} is timed in turns, so its sweeps are equally long"
            )
    return found


def find(name: str, package: str = "snippets") -> tuple[Experiment, ...]:
    """Experiments that `name` means: all of a chapter (`mlp`) or one (`mlp/eager`)."""
    chapter, _, experiment = name.partition("/")
    of_chapter = experiments(chapter, package)
    if not experiment:
        return of_chapter
    found = tuple(candidate for candidate in of_chapter if candidate.name == experiment)
    if not found:
        known = [candidate.id for candidate in of_chapter]
        raise UnknownName(f"no experiment {name!r}{nearest(name, known)}")
    return found


def nearest(name: str, known: Iterable[str]) -> str:
    """How an error about an unknown name ends: `; did you mean mlp/eager?`."""
    known = tuple(known)
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.4) or sorted(known)
    return f"; did you mean {' or '.join(near)}?" if near else "; there is none yet"
