"""The loops of the chapter: its faults with their rules, and how much of an iteration the GPU works."""

from __future__ import annotations

from kinetoscope.trace.queries import busy_us
from snippets.lab.finding import Figure, Run
from snippets.lab.finding.fault import Fault
from snippets.lab.finding.measure import percent, unpaired_ratio


def _fault(name: str, title: str, rule: str, after: str = "after") -> Fault:
    """`after`: the recording that shows the mend, without the fault's name."""
    return Fault(name, title, (f"training_step/{name}_before", f"training_step/{name}_{after}"), rule)


FAULTS = {
    fault.name: fault
    for fault in (
        _fault("item", "Reading values in every step", "sync-in-step"),
        _fault("loader", "A data loader that stalls", "loader-stall"),
        _fault("pageable", "Copies from pageable memory", "pageable-copies", "pinned"),
        _fault("recompile", "Compiling for each length", "recompiles"),
        _fault("breaks", "A graph that breaks in each block", "graph-breaks"),
        _fault("layout", "Copies for a contiguous layout", "needless-copies"),
        _fault("optimizer", "An optimizer that loops over parameters", "optimizer-loop"),
        _fault("tensor_cores", "Products without tensor cores", "no-tensor-cores"),
        _fault("allocator", "Memory returned in every step", "allocator-in-step"),
        _fault("tiny", "Hundreds of tiny kernels", "tiny-kernels"),
        _fault("attention", "Attention in separate operators", "unfused-attention"),
        _fault("cold", "A profile of the first steps", "first-step"),
    )
}
"""Name of a fault -> its rule and its loops."""
TIMED = tuple(name for name in FAULTS if name not in ("recompile", "cold"))
"""Faults whose iterations are timed before and after, in turns."""


def busy_share(run: Run) -> Figure:
    """The time in which the GPU works on a recorded step, in percent of an iteration without the profiler."""
    gpu_us = run.per_step(lambda step: busy_us(step.activities), "us")
    return percent(unpaired_ratio(gpu_us, run.time("iteration")))
