"""The command `diff`: compare two traces, or two groups of runs, kernel by kernel, with a gate for continuous
integration."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kinetoscope.compare.compare import Comparison, compare
from kinetoscope.compare.comparison import (
    METHOD,
    change_text,
    comparison_notes,
    percent_texts,
)
from kinetoscope.compare.cpu import CpuComparison, are_cpu, compare_cpu
from kinetoscope.compare.cpu_parts import cpu_lines
from kinetoscope.compare.damaged import NOT_JUDGED, are_whole
from kinetoscope.compare.document import (
    Files,
    GateRow,
    RegressionRow,
    comparison_document,
    cpu_document,
    named,
)
from kinetoscope.compare.noise import ALPHA, Shift
from kinetoscope.diagnosis.amounts import count_text
from kinetoscope.exit_codes import DAMAGED, NO, OK
from kinetoscope.ranks.digest_files import is_digest
from kinetoscope.terminal import positive
from kinetoscope.trace.documents import add_top, document_text
from kinetoscope.trace.events import Trace, TraceError
from kinetoscope.trace.kineto import no_collection, read_trace
from kinetoscope.trace.text import printable, shortened, wrapped

DESCRIPTION = """\
Compare two traces, or several runs before and after a change, kernel by kernel. With --gate, exit with 1 if a step's
GPU busy time, or a kernel with at least 5 %% of it, got slower: by PERCENT or more, give or take a standard error, and
beyond the noise. With runs in groups the noise is that between runs; with one trace each, that between its steps, which
are not independent. Wall time is shown and not judged: the profiler itself lengthens it. Of traces without GPU work,
compare the time of a step and each operator's own time; there --gate judges the step.

  %(prog)s before.json.gz after.json.gz
  %(prog)s --before a1.json a2.json a3.json --after b1.json b2.json b3.json --gate 3

Exit codes: 0 no regression, 1 regression, 2 usage error, an unusable file, or a gate on steps that do not compare, 3 a
gate on a file that is cut off, or in which kernels, calls or operators are damaged or missing.
"""
MIN_SHARE = 0.05
"""Kernels with a smaller share of the GPU busy time are listed and not judged."""
SHOWN = 20
COLUMNS = 100
_NAME_COLUMNS = 48


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `diff`."""
    parser.add_argument("traces", type=Path, nargs="*", metavar="TRACE", help="before and after, .json or .json.gz")
    parser.add_argument("--before", type=Path, nargs="+", metavar="TRACE", default=[], help="runs before the change")
    parser.add_argument("--after", type=Path, nargs="+", metavar="TRACE", default=[], help="runs after the change")
    parser.add_argument(
        "--gate", type=positive("percent"), metavar="PERCENT", help="exit with 1 if slower by this or more"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_top(parser, "all")


def command(arguments: argparse.Namespace) -> int:
    """Print the differences; 1 on a regression, 3 if a gate cannot judge damaged files."""
    before, after = _sides(arguments)
    files = named([path.name for path in before], [path.name for path in after])
    with no_collection():
        sides = [_read(path) for path in before], [_read(path) for path in after]
        if are_cpu(*sides):
            return _diff_cpu(compare_cpu(*sides), files, are_whole(*sides), arguments)
        result = compare(*sides)
    gate = None if arguments.gate is None else judge(result, arguments.gate, is_whole=are_whole(*sides))
    if arguments.json:
        print(document_text(comparison_document(result, files, gate_row(gate)), arguments.top))
    else:
        print("\n".join(_lines(result, gate)))
    return OK if gate is None else gate.exit_code


def _diff_cpu(result: CpuComparison, files: Files, is_whole: bool, arguments: argparse.Namespace) -> int:
    gate = None if arguments.gate is None else judge_step(result, arguments.gate, is_whole=is_whole)
    if arguments.json:
        print(document_text(cpu_document(result, files, gate_row(gate)), arguments.top))
    else:
        print("\n".join([*cpu_lines(result), *(() if gate is None else _judgment(result.step, gate))]))
    return OK if gate is None else gate.exit_code


def _sides(arguments: argparse.Namespace) -> tuple[list[Path], list[Path]]:
    traces, before, after = arguments.traces, arguments.before, arguments.after
    if len(traces) == 2 and not before and not after:
        return traces[:1], traces[1:]
    if traces or not before or not after:
        raise TraceError("give two traces, or --before TRACE... --after TRACE...")
    return before, after


def _read(path: Path) -> Trace:
    if is_digest(path):
        raise TraceError(f"{path}: a digest; diff aligns kernels one by one and needs the trace")
    return read_trace(path)


@dataclass(frozen=True)
class Regression:
    """A slowdown beyond the noise."""

    name: str
    shift: Shift


@dataclass(frozen=True)
class Gate:
    """The judgment."""

    percent: float
    regressions: tuple[Regression, ...]
    judged: int
    """Number of tested quantities: the busy time, and each kernel with a share of it."""
    is_whole: bool = True
    """Whether the files lost nothing that is judged."""

    @property
    def exit_code(self) -> int:
        """Of the command."""
        return DAMAGED if not self.is_whole else NO if self.regressions else OK


def judge(result: Comparison, percent: float, *, is_whole: bool = True) -> Gate:
    """Find slowdowns of at least `percent` beyond the noise.

    Raises `TraceError` if the noise is unknown, or if the steps of the two sides do not compare.

    The busy time is tested at `ALPHA`; the kernels share another `ALPHA` (Bonferroni).
    """
    _require_judgeable(result, result.busy)
    busy_us = result.totals["GPU busy"][0]
    kernels = [
        (each.name, each.shift)
        for each in result.differences
        if each.shift is not None and each.shift.freedom and max(each.before_us, each.after_us) >= MIN_SHARE * busy_us
    ]
    judged = [("GPU busy", result.busy, ALPHA), *((name, changed, ALPHA / len(kernels)) for name, changed in kernels)]
    slower = [Regression(name, changed) for name, changed, alpha in judged if _is_slower(changed, alpha, percent)]
    return Gate(percent, tuple(slower), len(judged), is_whole)


def judge_step(result: CpuComparison, percent: float, *, is_whole: bool = True) -> Gate:
    """Judge the time of a step, of traces without GPU work. Raises `TraceError` if the noise is unknown."""
    _require_judgeable(result, result.step)
    slower = [Regression("step", result.step)] if _is_slower(result.step, ALPHA, percent) else []
    return Gate(percent, tuple(slower), 1, is_whole)


def _require_judgeable(result: Comparison | CpuComparison, changed: Shift) -> None:
    if not result.do_steps_compare:
        raise TraceError(f"the gate cannot judge times per step: {' '.join(result.notes)}")
    if not changed.freedom:
        raise TraceError(
            f"the noise is unknown with one {result.unit} on each side; record three or more active steps, or give "
            "several runs: diff --before A1 A2 A3 --after B1 B2 B3"
        )


def _is_slower(changed: Shift, alpha: float, percent: float) -> bool:
    return changed.p < alpha and changed.percent + changed.error_percent >= percent


def gate_row(gate: Gate | None) -> GateRow | None:
    """The judgment as a row of the JSON document."""
    if gate is None:
        return None
    slower = (
        RegressionRow(each.name, round(each.shift.percent, 3), round(each.shift.p, 6)) for each in gate.regressions
    )
    return GateRow(gate.percent, gate.judged, gate.is_whole, tuple(slower))


def _lines(result: Comparison, gate: Gate | None) -> Iterator[str]:
    yield f"{'us per step':32}{'before':>14}{'after':>14}{'difference':>14}"
    for name, (before, after) in result.totals.items():
        yield f"{name:32}{before:14,.3f}{after:14,.3f}{after - before:+14,.3f}"
    yield ""
    yield from _rows(result)
    yield ""
    change = change_text(result)
    for text in (change, *(note for note in comparison_notes(result) if note not in change), METHOD):
        yield from wrapped(text, COLUMNS)
    if gate is not None:
        yield from _judgment(result.busy, gate)


def _rows(result: Comparison) -> Iterator[str]:
    yield f"{'change':9}{'before':>12}{'after':>12}{'diff us':>11}{'percent':>10}{'noise':>9}  GPU work"
    for each in result.differences[:SHOWN]:
        percent, noise = (text or "-" for text in percent_texts(each.shift))
        name = shortened(printable(each.name), _NAME_COLUMNS)
        times = f"{each.before_us:12,.3f}{each.after_us:12,.3f}{each.change_us:+11,.3f}"
        yield f"{each.kind:9}{times}{percent:>10}{noise:>9}  {name}"
    if len(result.differences) > SHOWN:
        yield f"... and {len(result.differences) - SHOWN} smaller changes (--json has all)"


def _judgment(judged: Shift, gate: Gate) -> Sequence[str]:
    lines = [
        f"REGRESSION: {shortened(printable(each.name), _NAME_COLUMNS)} {each.shift.percent:+.1f} %"
        for each in gate.regressions
    ]
    if not gate.is_whole:
        return [*lines, *wrapped(NOT_JUDGED, COLUMNS)]
    noise = judged.noise_percent or 0.0
    if noise > gate.percent and not lines:
        lines.append(
            f"The noise of {noise:.1f} % hides changes of the gate's size; record more steps, or give more runs."
        )
    return lines or [f"No regression of {gate.percent:g} % or more, in {count_text(gate.judged, 'quantity')}."]
