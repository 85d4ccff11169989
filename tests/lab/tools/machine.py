"""A machine with a GPU on which nothing is measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from snippets.lab.capture.lock import GpuInUse
from snippets.lab.capture.recorder import CostOf, Outcome, batch_costs_s
from snippets.lab.experiment import Experiment
from snippets.lab.notebooks.cells import NotebookRun, NotebookRuns
from snippets.lab.recording.device import DEFAULT_DEVICE
from snippets.lab.tools.record import Machine
from tests.lab.samples import environment, sample, save_all

OUTPUTS = [
    [],
    [
        {
            "output_type": "execute_result",
            "execution_count": 2,
            "metadata": {},
            "data": {"text/plain": "2", "text/html": "<p>2</p>"},
        }
    ],
]
"""Of a notebook with two code cells."""


@dataclass
class FakeMachine:
    """Saves a sample in place of a measurement, and keeps the requests."""

    failing: str = ""
    """The experiment that cannot be recorded."""
    failing_notebook: str = ""
    """Why no notebook runs through."""
    device: str = DEFAULT_DEVICE
    pending: Sequence[str] | None = None
    """Of what is chosen; None for all."""
    recorded: list[str] = field(default_factory=list)
    notebooks: list[str] = field(default_factory=list)
    reserved: list[tuple[bool, bool]] = field(default_factory=list)
    """`wait` and `shared` of each reservation of GPUs."""
    reserved_gpus: list[int] = field(default_factory=list)
    gpus: int = 1
    released: int = 0
    in_use: str = ""
    """Who uses the GPU, unless `wait` or `shared`."""
    cost_s: float = 20.0
    """What each experiment takes, and what a notebook takes; known before."""
    now_s: float = 1000.0
    cause: str = "ValueError: no"
    refusals: Path = Path("/nonexistent/refusals")

    def build(self) -> Machine:
        return Machine(
            lambda: self.device,
            self.select,
            self.record,
            self.run_notebooks,
            self.reserve,
            lambda root, device: lambda experiment: self.cost_s,
            batch_costs_s,
            self.refusals,
            lambda: self.gpus,
            lambda: self.now_s,
        )

    @contextmanager
    def reserve(self, wait: bool, shared: bool, gpus: int) -> Iterator[None]:
        self.reserved.append((wait, shared))
        self.reserved_gpus.append(gpus)
        if self.in_use and not wait and not shared:
            raise GpuInUse(f"{self.in_use} uses this GPU")
        yield
        self.released += 1

    def select(self, root: Path, device: str, chosen: Sequence[Experiment], fresh: bool) -> list[Experiment]:
        return [one for one in chosen if self.pending is None or one.id in self.pending or fresh]

    def record(
        self, root: Path, device: str, chosen: Sequence[Experiment], cost_s: CostOf, limit_s: float
    ) -> Iterator[Outcome]:
        where, begin_s = environment(device=device.replace("-", " ").upper()), self.now_s
        for experiment in chosen:
            if self.now_s + cost_s(experiment) > begin_s + limit_s:
                return
            self.now_s += cost_s(experiment)
            self.recorded.append(experiment.id)
            if experiment.id == self.failing:
                yield Outcome(experiment, self.cause)
                continue
            save_all(root, sample(experiment.id, has_trace=experiment.is_traced, environment=where), device=device)
            yield Outcome(experiment)

    def run_notebooks(self, paths: list[Path], time_limit_s: float) -> NotebookRuns:
        self.notebooks += [path.stem for path in paths]
        runs = {path.stem: NotebookRun(OUTPUTS, 2.5, self.failing_notebook) for path in paths}
        return NotebookRuns(runs, environment(device=self.device.replace("-", " ").upper()))
