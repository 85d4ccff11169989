"""Where GPU work comes from: operator, annotation, module and source line, as far as a trace tells."""

from __future__ import annotations

from collections.abc import Iterator

from snippets.lab.trace.events import CpuOp, GpuActivity, Trace

MODULE = "nn.Module: "
MAX_DEPTH = 64
"""Operators around an operator that count; a hostile trace nests thousands."""
_BACKWARD = "autograd::engine::evaluate_function: "
_COMPILER = ("Torch-Compiled Region", "## Call CompiledFxGraph", "CompiledFunction", "ProfilerStep#")
_INSTALLED = ("site-packages/", "dist-packages/", "<built-in", "torch/", "importlib", "<frozen")


def around(activity: GpuActivity) -> Iterator[CpuOp]:
    """The operator or annotation that launched an activity and those around it, innermost first."""
    op = activity.op
    for _ in range(MAX_DEPTH):
        if op is None:
            return
        yield op
        op = op.parent


def has_operator(activity: GpuActivity) -> bool:
    """Whether an operator launched it: an annotation around a launch, as of a CUDA graph, says less."""
    return activity.op is not None and not activity.op.is_annotation


def is_inside(activity: GpuActivity, *names: str) -> bool:
    """Whether an operator of one of these names launched it, directly or through others."""
    return any(op.name in names for op in around(activity))


def place(activity: GpuActivity, trace: Trace) -> str:
    """`aten::mul in nn.Module: MLP_0, model.py(12): forward`; empty if the trace does not say."""
    outwards = [op for op in around(activity) if not op.name.startswith(_COMPILER)]
    name = next((op.name.removeprefix(_BACKWARD) for op in reversed(outwards) if not op.is_annotation), "")
    functions = list(_functions(activity.op, trace)) if activity.op else []
    modules = [function for function in functions if function.startswith(MODULE)]
    lines = [function for function in functions if "(" in function and not any(map(function.__contains__, _INSTALLED))]
    labels = [op.name for op in outwards if op.is_annotation]
    return " in ".join(filter(None, [name, ", ".join(modules[-1:] + lines[-1:] or labels[:1])]))


def _functions(op: CpuOp, trace: Trace) -> Iterator[str]:
    """The Python functions on the stack when an operator started, outermost first."""
    for function in trace.functions:
        if function.start_us > op.start_us:
            return
        if function.thread == op.thread and op.start_us < function.end_us:
            yield function.name
