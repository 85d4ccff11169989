"""Where in the program an event is: its operator, module and line of Python."""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from snippets.lab.trace.events import CpuOp, Span, Trace

_LINE = re.compile(r"(?P<path>[^<>]*)\.py\(\d+\): ")
_MODULE = "nn.Module: "
_LIBRARIES = {"torch", "triton", "site-packages", "dist-packages", *sys.stdlib_module_names}


class Site(NamedTuple):
    """What was on the stack of a thread at a time; None or empty if the trace does not say."""

    op: CpuOp | None = None
    """The innermost operator."""
    outer: CpuOp | None = None
    """The outermost ATen operator, as the program called it: `aten::item`; without one, the innermost operator."""
    module: str = ""
    line: str = ""
    """The innermost function that belongs neither to PyTorch nor to Python: `train.py(12): step`."""

    @property
    def text(self) -> str:
        """`aten::item in nn.Module: Linear_0 at train.py(12): step`, without the parts that are unknown."""
        name = self.outer.name if self.outer else ""
        parts = [name, f"in {self.module}" if self.module else "", f"at {self.line}" if self.line else ""]
        return " ".join(filter(None, parts))


Query = tuple[str, float]
"""Thread and time in us."""


def find_sites(trace: Trace, queries: Sequence[Query]) -> list[Site]:
    """The site of each query: one pass over the operators and one over the Python functions."""
    threads = {thread for thread, _ in queries}
    ops = (op for op in trace.cpu_ops if op.thread in threads and not op.is_annotation)
    around_op = _innermost(ops, queries, _op_value, (None, None))
    functions = (function for function in trace.functions if function.thread in threads)
    around_line = _innermost(functions, queries, _line_value, ("", ""))
    return [Site(*op, *line) for op, line in zip(around_op, around_line, strict=True)]


def is_own_code(name: str) -> bool:
    """Whether a Python function of this name is neither PyTorch's nor Python's own."""
    match = _LINE.match(name)
    return match is not None and not _LIBRARIES.intersection(match["path"].split("/"))


def _op_value(op: Any, around: tuple[Any, ...]) -> tuple[Any, ...]:
    outer = around[1]
    return op, outer if outer is not None and outer.name.startswith("aten::") else op


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
    """Per query the value at the innermost span around it; `value` computes one from the value around the span."""
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
