"""Rows that torch.compile adds."""

from functools import partial

from kinetoscope.trace.events import CpuOp, Step
from snippets.lab.finding import Device, Figure, claim, equals
from snippets.lab.page import show as show
from snippets.trace_rows.findings.averages import rows_of

GRAPH = "## Call CompiledFxGraph"
REGION = "Torch-Compiled Region"


@claim("R11", equals(True))
def region_of_a_graph(device: Device) -> Figure:
    """In a compiled forward, `## Call CompiledFxGraph` is inside `Torch-Compiled Region` and launches all kernels."""
    run = device["mlp/compiled"]
    return run.per_step(lambda step: all(_in_compiled_graph(kernel.op) for kernel in step.kernels))


def _in_compiled_graph(op: CpuOp | None) -> bool:
    names = [each.name for each in op.chain] if op else []
    called = [index for index, name in enumerate(names) if name.startswith("## Call CompiledFxGraph")]
    return bool(called) and any(name.startswith("Torch-Compiled Region") for name in names[: called[0]])


@claim("R19", equals("CompiledFunction in Torch-Compiled Region, CompiledFunctionBackward"))
def graphs_of_training(device: Device) -> Figure:
    """A compiled training step calls two graphs: the forward graph inside `Torch-Compiled Region`, and the backward
    graph outside of this region."""
    return device["trace_rows/compiled"].per_step(lambda step: ", ".join(map(_callers, _graphs(step))))


def _graphs(step: Step) -> list[CpuOp]:
    """The calls of Inductor's graphs, in the order of their begin."""
    return sorted((op for op in step.ops if op.name.startswith(GRAPH)), key=lambda op: op.start_us)


def _callers(graph: CpuOp) -> str:
    """The function of a graph, and the region around it."""
    names = [op.name for op in graph.chain]
    function = next((name for name in names if name.startswith("CompiledFunction")), "none")
    return f"{function} in {REGION}" if any(name.startswith(REGION) for name in names) else function


@claim("R20", equals("1 and 1"))
def lookups(device: Device) -> Figure:
    """Each call of a compiled function has one row `TorchDynamo Cache Lookup` and one row `Pregraph bytecode`."""
    return device["mlp/compiled"].per_step(
        lambda step: " and ".join(
            str(sum(op.name == name for op in step.ops)) for name in ("TorchDynamo Cache Lookup", "Pregraph bytecode")
        )
    )


compiled_rows = partial(
    rows_of,
    experiment="mlp/compiled",
    patterns=("TorchDynamo*", "Pregraph*", "Torch-Compiled*", "AOTDispatcher*", "## Call*", "aten::mm", "triton*"),
    caption="Rows of a compiled forward pass",
)
