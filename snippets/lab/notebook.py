"""What a reader calls in a cell of a lab. It runs on a GPU where torch has one, else on the CPU.

    eager = notebook.profile("linear/eager", batch=64)         one step as a table; eager.kernels, eager.operators
    race = notebook.race("linear/eager", "linear/compiled")    steps timed in turns; race.times_us
    notebook.check(guess, len(eager.kernels), "kernels")       right, wrong, or no guess yet

Every result shows itself where it stands last in a cell. Nothing here needs a recording or the site's packages, so that
a lab works wherever the project is installed.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from snippets.lab.capture.environment import environment
from snippets.lab.capture.checking import relative_error
from snippets.lab.capture.profiling import trace_of
from snippets.lab.capture.timing import time_interleaved
from snippets.lab.experiment import Experiment, Subject, UnknownExperiment, Value, Work, find
from snippets.lab.html import Cell, Html, code, details, table
from snippets.lab.recording.schema import Environment
from snippets.lab.trace.averages import Average, key_averages
from snippets.lab.trace.events import Step, Trace
from snippets.lab.trace.kernel_names import decode_kernel_name
from snippets.lab.trace.kineto import read_trace

if TYPE_CHECKING:
    from torch import Tensor


CLOSE = 1.25
"""A guess of a time or a share is right when it is at most this many times too high or too low."""
ROUNDS = 11
SAMPLE_US = 2_000.0
"""What one sample on a CPU should take at least: a shorter step is run several times for it."""


@dataclass(frozen=True)
class Shown:
    """A line of text, which a notebook shows as HTML."""

    text: str
    html: str

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return self.html


def on_gpu() -> bool:
    """Whether torch has a CUDA GPU here; profiles and races then run on it."""
    import torch

    return torch.cuda.is_available()


def here() -> Shown:
    """On what this runs, with which versions, and when: the first thing that a lab shows."""
    found = circumstances()
    versions = [f"{name} {found.versions[name]}" for name in ("torch", "triton", "python")]
    facts = [f"driver {found.driver}", f"CUDA {found.cuda}"] * on_gpu() + versions + [found.date[:10]]
    name = found.device if on_gpu() else "a CPU"
    line = f"<p>Run on <strong>{escape(name)}</strong> · {escape(' · '.join(facts))}</p>"
    return Shown(f"Run on {name}: {', '.join(facts)}", line)


def circumstances() -> Environment:
    """The same in full, as a recording has it."""

    return environment(_device())


def _device() -> str:
    return "cuda" if on_gpu() else "cpu"


@dataclass(frozen=True)
class Profile:
    """A few profiled steps, shown as a table of the one in the middle."""

    name: str
    trace: Trace
    content: bytes
    """The Chrome trace, as JSON."""

    @property
    def step(self) -> Step:
        """The step in the middle."""
        return self.trace.steps[len(self.trace.steps) // 2]

    @property
    def kernels(self) -> tuple[str, ...]:
        """The kernels of one step by name, in order; none on a CPU."""
        return tuple(one.name for one in self.step.kernels)

    @property
    def activities(self) -> tuple[str, ...]:
        """All that one step put on the GPU, by name, in order: kernels, copies and fills."""
        return tuple(one.name for one in self.step.activities)

    @property
    def operators(self) -> tuple[str, ...]:
        """The operators of one step by name, in the order in which they begin."""
        return tuple(op.name for op in self.step.ops if not op.is_annotation)

    def cpu_us(self, operator: str) -> float:
        """Microseconds of CPU time that one step spends in an operator and in what that calls."""
        return sum(row.cpu_us for row in self._rows if row.name == operator) / len(self.trace.steps)

    def work_us(self, operator: str) -> float:
        """Microseconds that one step works in an operator: on the GPU, or in a trace without one, on the CPU."""
        if not self.step.activities:
            return self.cpu_us(operator)
        return sum(row.gpu_us for row in self._rows if row.name == operator) / len(self.trace.steps)

    @property
    def busiest(self) -> str:
        """The operator that itself does most of the work: launches it on the GPU, or computes on the CPU."""
        operators = [row for row in self._rows if "::" in row.name]  # not a region of the compiler
        return max(operators, key=lambda row: (row.self_gpu_us, row.self_cpu_us)).name

    def save(self, path: str | Path) -> Shown:
        """Write the Chrome trace to a file for Perfetto."""
        Path(path).write_bytes(self.content)
        how = f"python -m snippets.lab open {path}"
        return Shown(f"in Perfetto: {how}", f"<p>In Perfetto: {code(how, 200)}</p>")

    @cached_property
    def _rows(self) -> list[Average]:
        rows = [row for row in key_averages(self.trace) if row.kind == "operator"]
        return sorted(rows, key=lambda row: (-row.self_cpu_us, row.name))

    def __repr__(self) -> str:
        steps = len(self.trace.steps)
        busy = [(one.name, one.duration_us) for one in self.step.activities]
        rows = busy or [(row.name, row.self_cpu_us / steps) for row in self._rows]
        return "\n".join([f"{self.name}, one step", *(f"{_us(us):>10}  {name}" for name, us in rows)])

    def _repr_html_(self) -> str:
        if not self.step.activities:
            return self._operator_table()
        rows = []
        for one in self.step.activities:
            op, launch = self.trace.op_of(one), self.trace.launch_of(one)
            names = [code(source.name, 40) for source in (op, launch) if source]
            rows.append([_kernel(one.name), Html("<br>".join(names)), _us(one.duration_us)])
        head = ["GPU activity", "from operator, by call", "time"]
        shown = table(f"{self.name}: what one step put on the GPU", head, rows, text_columns=2)
        return shown + details("What the CPU did for it", self._operator_table())

    def _operator_table(self) -> Html:
        steps = len(self.trace.steps)
        rows = [
            [code(row.name), _us(row.self_cpu_us / steps), _us(row.cpu_us / steps), f"{row.calls / steps:g}"]
            for row in self._rows
        ]
        head = ["operator", "own CPU time", "with all it calls", "calls"]
        return table(f"{self.name}: operators of one step", head, rows)


def _kernel(name: str) -> Html:
    """A kernel's name with what it says, where that is known."""
    short = decode_kernel_name(name).short
    return code(name, 48) if short == name else Html(f"{escape(short)}<br><small>{code(name, 48)}</small>")


def _us(time_us: float) -> str:
    """Three digits and a unit."""
    scale, unit = next((s, u) for s, u in ((1e6, "s"), (1e3, "ms"), (0.0, "µs")) if time_us >= s)
    return f"{float(f'{time_us / (scale or 1.0):.3g}'):,g} {unit}"


def profile(experiment: str, **parameters: Value) -> Profile:
    """Profile one experiment here: `linear/eager`, as `python -m snippets.lab list` names it.

    `parameters` replace the experiment's own. Raises `UnknownExperiment`, `TypeError` for a parameter that it does not
    have, and `NeedsGpu` where it cannot run on a CPU.
    """
    found = _experiment(experiment, parameters)
    return _profiled(found, _subject(found.id, tuple(found.parameters.items())))


def profile_of(name: str, step: Callable[..., Tensor], *inputs: Tensor) -> Profile:
    """Profile a function of your own. `inputs` have to be where the function computes."""
    subject = Subject(step=step, inputs=lambda: inputs, reference=step)
    mine = Experiment(chapter="lab", name="mine", label=name, make=lambda device: subject, work=lambda: Work(bytes=0))
    return _profiled(mine, subject, name)


def _profiled(experiment: Experiment, subject: Subject, name: str = "") -> Profile:

    content = trace_of(experiment, subject, _device())
    return Profile(name or experiment.id, read_trace(content), content)


def _experiment(name: str, parameters: Mapping[str, Value]) -> Experiment:
    found = find(name)
    if len(found) != 1 or found[0].make is None:
        raise UnknownExperiment(f"{name!r} is not one profiled experiment: write CHAPTER/EXPERIMENT")
    return found[0].at(**parameters)


@lru_cache(maxsize=16)
def _subject(experiment: str, parameters: tuple[tuple[str, Value], ...]) -> Subject:
    """Made once, so that what is compiled is compiled once."""
    (found,) = find(experiment)
    assert found.make is not None
    return found.make(device=_device(), **dict(parameters))


@dataclass(frozen=True)
class Race:
    """Variants timed in turns."""

    times_us: Mapping[str, float]
    """Median microseconds of a step by experiment: on the GPU without launches, or on the CPU."""
    python_us: Mapping[str, float]
    """Median microseconds of a step in a Python loop until all is done: what a user waits for."""
    errors: Mapping[str, float]
    """By how much the result differs from the reference, relative."""

    def __repr__(self) -> str:
        return "\n".join(f"{_us(us):>10}  {name}" for name, us in self.times_us.items())

    def _repr_html_(self) -> str:
        first = next(iter(self.times_us.values()))
        where = ["on the GPU", "from Python"] if on_gpu() else ["one step"]
        rows: list[list[Cell]] = []
        for name, us in self.times_us.items():
            times = [_us(us), _us(self.python_us[name])] if on_gpu() else [_us(us)]
            rows.append([code(name), *times, f"{first / us:.2f}x", f"{self.errors[name]:.1e}"])
        caption = f"{' and '.join(self.times_us)}: timed in turns, median"
        return table(caption, ["variant", *where, "times as fast", "relative error"], rows)


def race(*experiments: str, **parameters: Value) -> Race:
    """Time experiments in turns, after each result was compared with its reference.

    Raises what `profile` does, and `ArithmeticError` for a wrong answer, which is never timed.
    """

    subjects, errors = {}, {}
    for name in experiments:
        found = _experiment(name, parameters)
        subjects[name] = _subject(found.id, tuple(found.parameters.items()))
        errors[name], _, _ = relative_error(subjects[name], _device())
    if not on_gpu():
        times = _cpu_us(subjects)
        return Race(times, times, errors)

    found_times = time_interleaved(subjects, lambda name: None)
    warm = {name: one.warm.median_us for name, one in found_times.items()}
    return Race(warm, {name: one.launched.median_us for name, one in found_times.items()}, errors)


def _cpu_us(subjects: Mapping[str, Subject]) -> dict[str, float]:
    runs = {name: (one.step, one.inputs()) for name, one in subjects.items()}
    repeats = {name: max(1, round(SAMPLE_US / _loop_us(*run, 1))) for name, run in runs.items()}
    samples: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(ROUNDS):
        for name in list(runs) if turn % 2 == 0 else list(reversed(runs)):
            samples[name].append(_loop_us(*runs[name], repeats[name]))
    return {name: statistics.median(found) for name, found in samples.items()}


def _loop_us(step: Callable[..., Any], inputs: Sequence[Any], repeats: int) -> float:
    for _ in range(2):  # the threads of another variant may still be spinning, and its own asleep
        step(*inputs)
    begin = time.perf_counter_ns()
    for _ in range(repeats):
        step(*inputs)
    return max(time.perf_counter_ns() - begin, 1) / 1e3 / repeats


def check(guess: object, measured: object, unit: str = "") -> Shown:
    """Say whether a guess is right. Never raises: what is no guess is told.

    A count or a word has to be met; a float is met by a number at most `CLOSE` times too high or too low.
    """
    answer = f"{_said(measured)} {unit}".strip()
    if guess is None:
        hidden = details("What was measured", f"<p>{escape(answer)}</p>")
        return Shown(
            f"No guess yet. Measured: {answer}", f"<p>No guess yet: write one above and run both cells.</p>{hidden}"
        )
    verdict = _verdict(guess, measured)
    line = f"{verdict} Your guess: {_said(guess)}. Measured: {answer}"
    return Shown(line, f"<p><strong>{escape(verdict)}</strong> {escape(line.removeprefix(verdict).strip())}</p>")


def _verdict(guess: object, measured: object) -> str:
    if isinstance(measured, float) and measured > 0:
        if isinstance(guess, bool) or not isinstance(guess, int | float) or not guess > 0:
            return "A number above zero is asked for."
        ratio = guess / measured
        if max(ratio, 1 / ratio) <= CLOSE:
            return "Right."
        return f"{max(ratio, 1 / ratio):.3g} times too {'high' if ratio > 1 else 'low'}."
    return "Right." if _plain(guess) == _plain(measured) else "Wrong."


def _plain(value: object) -> object:
    """A value as it is compared: words without case, lists as tuples."""
    if isinstance(value, str):
        return " ".join(value.split()).casefold()
    return tuple(map(_plain, value)) if isinstance(value, list | tuple) else value


def _said(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
