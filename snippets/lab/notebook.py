"""Functions for the cells of a notebook. They run on the GPU if torch has one, else on the CPU.

    eager = notebook.profile("linear/eager", batch=64)         one step as a table; eager.kernels, eager.operators
    race = notebook.race("linear/eager", "linear/compiled")    steps timed in turns; race.times_us
    notebook.check(guess, len(eager.kernels), "kernels")       right, wrong, or no guess yet

Jupyter shows a result that is the last line of a cell. This module needs no recording and no package of the site.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kinetoscope.html import Cell, Html, code, details, table
from kinetoscope.trace.averages import Average, key_averages
from kinetoscope.trace.events import Step, Trace
from kinetoscope.trace.kernel_names import decode_kernel_name
from kinetoscope.trace.kineto import read_trace
from kinetoscope.trace.queries import middle_step
from kinetoscope.trace.units import format_value
from snippets.lab.experiment import Experiment, Subject, UnknownName, Value, Work, find

if TYPE_CHECKING:
    from torch import Tensor

CLOSE = 1.25
"""A guess of a time or a share is right if it is at most this many times too high or too low."""
ROUNDS = 11
SAMPLE_US = 2_000.0
"""The shortest sample on a CPU; a shorter step runs several times per sample."""
_us = partial(format_value, unit="us")
_OPERATOR_HEAD = "operator", "own CPU time", "with all it calls", "calls"


@dataclass(frozen=True)
class Line:
    """A line of text and its HTML, which Jupyter shows."""

    text: str
    html: str

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return self.html


def on_gpu() -> bool:
    """Whether torch has a CUDA GPU; if so, profiles and races run on it."""
    import torch

    return torch.cuda.is_available()


def here() -> Line:
    """Device, versions and date: the first output of a notebook."""
    from snippets.lab.capture.environment import environment

    machine = environment(_device())
    versions = [f"{name} {machine.versions[name]}" for name in ("torch", "triton", "python")]
    facts = [f"driver {machine.driver}", f"CUDA {machine.cuda}"] * on_gpu() + versions + [machine.date[:10]]
    name = machine.device if on_gpu() else "a CPU"
    html = f"<p>Run on <strong>{escape(name)}</strong> · {escape(' · '.join(facts))}</p>"
    return Line(f"Run on {name}: {', '.join(facts)}", html)


def _device() -> str:
    return "cuda" if on_gpu() else "cpu"


@dataclass(frozen=True)
class Profile:
    """A few profiled steps, shown as a table of the middle one."""

    name: str
    trace: Trace
    content: bytes
    """The Chrome trace, as JSON."""

    @property
    def step(self) -> Step:
        """The middle step."""
        return middle_step(self.trace)

    @property
    def kernels(self) -> tuple[str, ...]:
        """The kernels of one step by name, in order; empty on a CPU."""
        return tuple(kernel.name for kernel in self.step.kernels)

    @property
    def activities(self) -> tuple[str, ...]:
        """The GPU work of one step by name, in order: kernels, memcpys and memsets."""
        return tuple(activity.name for activity in self.step.activities)

    @property
    def operators(self) -> tuple[str, ...]:
        """The operators of one step by name, in order of their start."""
        return tuple(op.name for op in self.step.ops if not op.is_annotation)

    def cpu_us(self, operator: str) -> float:
        """Microseconds of CPU time that one step spends in an operator and in the operators it calls."""
        return sum(row.cpu_us for row in self._rows if row.name == operator) / len(self.trace.steps)

    def work_us(self, operator: str) -> float:
        """Microseconds of GPU time that one step spends in an operator; in a CPU trace, microseconds of CPU time."""
        gpu_us = sum(row.gpu_us for row in self._rows if row.name == operator) / len(self.trace.steps)
        return gpu_us if self.step.activities else self.cpu_us(operator)

    @property
    def busiest(self) -> str:
        """The operator with the most GPU time of its own; in a CPU trace, the most CPU time of its own."""
        operators = [row for row in self._rows if "::" in row.name]  # excludes annotations of the compiler
        return max(operators, key=lambda row: (row.self_gpu_us, row.self_cpu_us)).name

    def save(self, path: str | Path) -> Line:
        """Write the Chrome trace to a file for Perfetto."""
        Path(path).write_bytes(self.content)
        command = f"python -m kinetoscope open {path}"
        return Line(f"in Perfetto: {command}", f"<p>In Perfetto: {code(command, 200)}</p>")

    @cached_property
    def _rows(self) -> list[Average]:
        operators = (row for row in key_averages(self.trace) if row.kind == "operator")
        return sorted(operators, key=lambda row: (-row.self_cpu_us, row.name))

    def __repr__(self) -> str:
        activities = [(activity.name, activity.duration_us) for activity in self.step.activities]
        rows = activities or [(row.name, row.self_cpu_us / len(self.trace.steps)) for row in self._rows]
        return "\n".join([f"{self.name}, one step", *(f"{_us(us):>10}  {name}" for name, us in rows)])

    def _repr_html_(self) -> str:
        if not self.step.activities:
            return self._operator_table()
        rows = []
        for activity in self.step.activities:
            names = [code(source.name, 40) for source in (activity.op, activity.launch) if source]
            rows.append([_kernel(activity.name), Html("<br>".join(names)), _us(activity.duration_us)])
        head = ["GPU activity", "from operator, by call", "time"]
        activities = table(f"{self.name}: what one step put on the GPU", head, rows, text_columns=2)
        return activities + details("What the CPU did for it", self._operator_table())

    def _operator_table(self) -> Html:
        count = len(self.trace.steps)
        columns = ((row, row.self_cpu_us / count, row.cpu_us / count, row.calls / count) for row in self._rows)
        rows = [[code(row.name), _us(own_us), _us(whole_us), f"{calls:g}"] for row, own_us, whole_us, calls in columns]
        return table(f"{self.name}: operators of one step", _OPERATOR_HEAD, rows)


def _kernel(name: str) -> Html:
    """A kernel's name, with its decoded form if there is one."""
    short = decode_kernel_name(name).short
    return code(name, 48) if short == name else Html(f"{escape(short)}<br><small>{code(name, 48)}</small>")


def profile(experiment: str, **parameters: Value) -> Profile:
    """Profile one experiment here: `linear/eager`, as `python -m snippets.lab list` names it.

    `parameters` replace the experiment's own. Raises `UnknownName`, and `NeedsGpu` if it cannot run on a CPU.
    """
    return _profile(*_choose(experiment, parameters))


def profile_of(name: str, step: Callable[..., Tensor], *inputs: Tensor) -> Profile:
    """Profile a function of your own. `inputs` must be on the device where the function computes."""
    subject = Subject(step=step, inputs=lambda: inputs, reference=step)
    own = Experiment(chapter="lab", name="mine", label=name, make=lambda device: subject, work=lambda: Work(bytes=0))
    return _profile(own, subject, name)


def _profile(experiment: Experiment, subject: Subject, name: str = "") -> Profile:
    from snippets.lab.capture.profiling import trace_of

    content = trace_of(experiment, subject, _device())
    return Profile(name or experiment.id, read_trace(content), content)


def _choose(name: str, parameters: Mapping[str, Value]) -> tuple[Experiment, Subject]:
    chosen = find(name)
    if len(chosen) != 1:
        raise UnknownName(f"{name!r} is not one experiment: write CHAPTER/EXPERIMENT")
    if chosen[0].make is None:
        raise UnknownName(f"{name} is a loop or a probe: python -m snippets.lab run {name} runs it here")
    experiment = chosen[0].at(**parameters)
    return experiment, _make_subject(chosen[0].make, tuple(experiment.parameters.items()))


@lru_cache(maxsize=16)  # so that compiled code is compiled once
def _make_subject(make: Callable[..., Subject], parameters: tuple[tuple[str, Value], ...]) -> Subject:
    return make(device=_device(), **dict(parameters))


@dataclass(frozen=True)
class Race:
    """Interleaved timings of variants."""

    times_us: Mapping[str, float]
    """Median microseconds of a step by experiment: GPU time without launches, or CPU time."""
    python_us: Mapping[str, float]
    """Median microseconds of a step in a Python loop until the GPU is done: the time that a user waits."""
    errors: Mapping[str, float]
    """Relative error of the result against the reference."""

    def __repr__(self) -> str:
        return "\n".join(f"{_us(us):>10}  {name}" for name, us in self.times_us.items())

    def _repr_html_(self) -> str:
        (first, *_) = self.times_us.values()
        where = ["on the GPU", "from Python"] if on_gpu() else ["one step"]
        rows: list[list[Cell]] = []
        for name, us in self.times_us.items():
            times = [_us(us), _us(self.python_us[name])] if on_gpu() else [_us(us)]
            rows.append([code(name), *times, f"{first / us:.2f}x", f"{self.errors[name]:.1e}"])
        head = ["variant", *where, "times as fast", "relative error"]
        return table(f"{' and '.join(self.times_us)}: timed in turns, median", head, rows)


def race(*experiments: str, **parameters: Value) -> Race:
    """Time experiments interleaved, after comparing each result with its reference.

    Raises the errors of `profile`, and `ArithmeticError` for a wrong result, which is not timed.
    """
    return race_subjects({name: _choose(name, parameters)[1] for name in experiments})


def race_subjects(subjects: dict[str, Subject]) -> Race:
    """Time subjects interleaved by name, as `race` does."""
    from snippets.lab.capture.checking import relative_error
    from snippets.lab.capture.instruments import TorchInstruments

    errors = {name: relative_error(subject, _device())[0] for name, subject in subjects.items()}
    if not on_gpu():
        times_us = _cpu_us(subjects)
        return Race(times_us, times_us, errors)
    timings = TorchInstruments().time_all(subjects)
    interleaved_us = {name: timing.interleaved.median_us for name, timing in timings.items()}
    return Race(interleaved_us, {name: timing.from_python.median_us for name, timing in timings.items()}, errors)


def _cpu_us(subjects: Mapping[str, Subject]) -> dict[str, float]:
    runs = {name: (subject.step, subject.inputs()) for name, subject in subjects.items()}
    repeats = {name: max(1, round(SAMPLE_US / _loop_us(*run, 1))) for name, run in runs.items()}
    samples: dict[str, list[float]] = {name: [] for name in runs}
    for index in range(ROUNDS):
        for name in list(runs) if index % 2 == 0 else list(reversed(runs)):
            samples[name].append(_loop_us(*runs[name], repeats[name]))
    return {name: statistics.median(own) for name, own in samples.items()}


def _loop_us(step: Callable[..., Any], inputs: Sequence[Any], repeats: int) -> float:
    for _ in range(2):  # threads of another variant may still spin, and this variant's may sleep
        step(*inputs)
    begin = time.perf_counter_ns()
    for _ in range(repeats):
        step(*inputs)
    return max(time.perf_counter_ns() - begin, 1) / 1e3 / repeats


def check(guess: object, measured: object, unit: str = "") -> Line:
    """Report whether a guess is right. Raises nothing for any guess.

    A count or a word must be equal; a float is right if it is at most `CLOSE` times too high or too low.
    """
    answer = f"{_text(measured)} {unit}".strip()
    if guess is None:
        hidden = details("What was measured", f"<p>{escape(answer)}</p>")
        html = f"<p>No guess yet: write one above and run both cells.</p>{hidden}"
        return Line(f"No guess yet. Measured: {answer}", html)
    verdict = _verdict(guess, measured)
    rest = f"Your guess: {_text(guess)}. Measured: {answer}"
    return Line(f"{verdict} {rest}", f"<p><strong>{escape(verdict)}</strong> {escape(rest)}</p>")


def _verdict(guess: object, measured: object) -> str:
    if isinstance(measured, float) and measured > 0:
        if isinstance(guess, bool) or not isinstance(guess, int | float) or not guess > 0:
            return "A number above zero is asked for."
        times = max(guess / measured, measured / guess)
        return "Right." if times <= CLOSE else f"{times:.3g} times too {'high' if guess > measured else 'low'}."
    return "Right." if _comparable(guess) == _comparable(measured) else "Wrong."


def _comparable(value: object) -> object:
    """Fold the case of a word and turn a list into a tuple."""
    if isinstance(value, str):
        return " ".join(value.split()).casefold()
    return tuple(map(_comparable, value)) if isinstance(value, list | tuple) else value


def _text(value: object) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return f"{value:.3g}" if isinstance(value, float) else str(value)
