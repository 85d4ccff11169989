"""The place of an event in the program: its operators, annotation, module and line of Python."""

from __future__ import annotations

import re
import sys
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from kinetoscope.trace.events import CpuOp, GpuActivity, Span, Trace, by_start

_LINE = re.compile(r"(?P<path>[^<>]*)\.py\(\d+\): ")
_MODULE = "nn.Module: "
_BACKWARD = "autograd::engine::evaluate_function: "
_COMPILER = ("Torch-Compiled Region", "## Call CompiledFxGraph", "CompiledFunction", "ProfilerStep#")
"""Beginnings of names that tell less than the names inside or around them."""
MAX_DEPTH = 64
"""Operators around an operator that count; a hostile trace nests thousands."""
_LIBRARIES = {
    *("torch", "triton", "numpy", "pandas", "PIL", "scipy", "site-packages", "dist-packages"),
    *sys.stdlib_module_names,
}
"""Folders of code that a program only calls; the profiler leaves out the path to an installed package."""


class Site(NamedTuple):
    """The stack of a thread at a time; None or empty if the trace does not tell."""

    op: CpuOp | None = None
    """The innermost operator."""
    outer: CpuOp | None = None
    """The outermost ATen operator, as called by the program: `aten::item`; without one, the innermost operator."""
    name: str = ""
    """The outermost operator's name that the program knows: `MulBackward0`, `aten::item`."""
    annotation: str = ""
    """The innermost `record_function`."""
    module: str = ""
    line: str = ""
    """The innermost function that belongs neither to PyTorch nor to Python: `train.py(12): step`."""

    @property
    def text(self) -> str:
        """`aten::item in nn.Module: Linear_0 at train.py(12): step`; without module and line, in its annotation."""
        around = self.module or ("" if self.line else self.annotation)
        name = self.name or (self.op.name if self.op else "")
        parts = [name, f"in {around}" if around else "", f"at {self.line}" if self.line else ""]
        return " ".join(filter(None, parts))


Query = tuple[str, float]
"""Thread and time in us."""


def find_sites(trace: Trace, queries: Sequence[Query]) -> list[Site]:
    """The site of each query: one pass over the operators and one over the Python functions."""
    around_op = _innermost(_asked(trace.cpu_ops, queries), queries, _op_value, (None, None, "", ""))
    around_line = find_lines(trace, queries)
    return [Site(*op, *line) for op, line in zip(around_op, around_line, strict=True)]


def find_lines(trace: Trace, queries: Sequence[Query]) -> list[tuple[Any, ...]]:
    """`Site.module` and `Site.line` of each query: one pass over the Python functions."""
    if not trace.functions:
        return [("", "")] * len(queries)
    return _innermost(_asked(trace.functions, queries), queries, _line_value, ("", ""))


def find_places(trace: Trace, queries: Sequence[Query]) -> list[str]:
    """`Site.line` of each query, else the innermost annotation: one pass over the annotations instead of all
    operators."""
    annotations = [op for op in trace.cpu_ops if op.is_annotation]
    names = _innermost(_asked(annotations, queries), queries, _annotation_value, ("",))
    return [line or name for (_, line), (name,) in zip(find_lines(trace, queries), names, strict=True)]


def around(activity: GpuActivity) -> Iterator[CpuOp]:
    """The operator or annotation that launched an activity, and its callers, innermost first."""
    op = activity.op
    for _ in range(MAX_DEPTH):
        if op is None:
            return
        yield op
        op = op.parent


def has_operator(activity: GpuActivity) -> bool:
    """Whether an operator launched it, not just an annotation around a launch, as of a CUDA graph."""
    return activity.op is not None and not activity.op.is_annotation


def is_inside(activity: GpuActivity, *names: str) -> bool:
    """Whether an operator of one of these names launched it, directly or through other operators."""
    return any(op.name in names for op in around(activity))


def is_own_code(name: str) -> bool:
    """Whether a Python function of this name belongs to neither PyTorch nor Python."""
    match = _LINE.match(name)
    if match is None:
        return False
    parts = match["path"].replace("\\", "/").split("/")  # of a trace from Windows
    return not _LIBRARIES.intersection(parts) and not any(part.startswith("torchinductor_") for part in parts)


def _asked(spans: Sequence[Any], queries: Sequence[Query]) -> Iterator[Any]:
    """The spans on the threads of the queries that start before the last query or with it."""
    threads = {thread for thread, _ in queries}
    end = bisect_right(spans, max((time for _, time in queries), default=0.0), key=by_start)
    return (span for span in islice(spans, end) if span.thread in threads)


def _op_value(op: Any, around: tuple[Any, ...]) -> tuple[Any, ...]:
    inner, outer, name, annotation = around
    is_compiler = op.name.startswith(_COMPILER)
    if op.is_annotation:
        return inner, outer, name, annotation if is_compiler else op.name
    is_called = outer is not None and outer.name.startswith("aten::")
    name = name if name or is_compiler else op.name.removeprefix(_BACKWARD)
    return op, outer if is_called else op, name, annotation


def _annotation_value(op: Any, around: tuple[Any, ...]) -> tuple[Any, ...]:
    return around if op.name.startswith(_COMPILER) else (op.name,)


def _line_value(function: Span, around: tuple[Any, ...]) -> tuple[Any, ...]:
    if function.name.startswith(_MODULE):
        return function.name, around[1]
    return (around[0], function.name) if is_own_code(function.name) else around


def _innermost(
    spans: Iterable[Any],
    queries: Sequence[Query],
    value: Callable[[Any, tuple[Any, ...]], tuple[Any, ...]],
    nothing: tuple[Any, ...],
) -> list[tuple[Any, ...]]:
    """The value at the innermost span around each query; `value` computes a span's value from the value around it."""
    asked: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for index, (thread, time) in enumerate(queries):
        asked[thread].append((time, index))
    pending = {thread: iter(sorted(times)) for thread, times in asked.items()}
    ahead = {thread: next(times, None) for thread, times in pending.items()}
    stacks: dict[str, list[tuple[float, tuple[Any, ...]]]] = defaultdict(list)
    answers = [nothing] * len(queries)

    def answer(thread: str, before_us: float) -> None:
        stack = stacks[thread]
        while (query := ahead.get(thread)) is not None and query[0] < before_us:
            while stack and stack[-1][0] <= query[0]:
                stack.pop()
            answers[query[1]] = stack[-1][1] if stack else nothing
            ahead[thread] = next(pending[thread], None)

    for span in spans:
        answer(span.thread, span.start_us)
        stack = stacks[span.thread]
        while stack and stack[-1][0] <= span.start_us:
            stack.pop()
        stack.append((span.end_us, value(span, stack[-1][1] if stack else nothing)))
    for thread in list(ahead):
        answer(thread, float("inf"))
    return answers
