"""Claims about the faults: their rules find them before the mend alone, ceilings hold, and mending saves time."""

from __future__ import annotations

from collections.abc import Mapping

from kinetoscope.trace.queries import step_us
from snippets.lab.finding import Device, Figure, Measure, at_least, claim, equals
from snippets.lab.finding.measure import paired_ratio
from snippets.training_step.findings.loops import (
    ceiling,
    found_in,
    saved,
    speedup,
    unused,
)


@claim("TS1", equals("before"))
def item_found(device: Device) -> Figure:
    """The rule sync-in-step finds the loop that reads three values in every step, and nothing once it is mended."""
    return found_in(device, "item")


@claim("TS2", at_least(0), scope="timing")
def item_unused(device: Device) -> Figure:
    """Reading three values every hundredth step saves no more than the ceiling of the rule sync-in-step."""
    return unused(device, "item")


@claim("TS3", at_least(1.02), scope="timing")
def item_speedup(device: Device) -> Figure:
    """Reading three values every hundredth step makes the loop at least 1.02 times as fast."""
    return speedup(device, "item")


@claim("TS4", equals("before"))
def loader_found(device: Device) -> Figure:
    """The rule loader-stall finds the loop that tokenizes in the main process, and nothing once it is mended."""
    return found_in(device, "loader")


@claim("TS5", at_least(0), scope="timing")
def loader_unused(device: Device) -> Figure:
    """With eight workers, the loop saves no more than the ceiling of the rule loader-stall."""
    return unused(device, "loader")


@claim("TS6", at_least(1.5), scope="timing")
def loader_speedup(device: Device) -> Figure:
    """With eight workers, the loop is at least 1.5 times as fast."""
    return speedup(device, "loader")


@claim("TS7", equals("before"))
def pageable_found(device: Device) -> Figure:
    """The rule pageable-copies finds the loop that copies from pageable memory, and nothing once it is mended."""
    return found_in(device, "pageable")


@claim("TS8", at_least(0), scope="timing")
def pageable_unused(device: Device) -> Figure:
    """Pinned memory saves no more than the ceiling of the rule pageable-copies."""
    return unused(device, "pageable")


@claim("TS9", at_least(1.2), scope="timing")
def pageable_speedup(device: Device) -> Figure:
    """Pinned memory makes the loop at least 1.2 times as fast."""
    return speedup(device, "pageable")


@claim("TS10", equals("before"))
def layout_found(device: Device) -> Figure:
    """The rule needless-copies finds the loop that copies queries, keys and values, and nothing once it is mended."""
    return found_in(device, "layout")


@claim("TS11", at_least(0), scope="timing")
def layout_unused(device: Device) -> Figure:
    """Passing views saves no more than the ceiling of the rule needless-copies."""
    return unused(device, "layout")


@claim("TS12", at_least(1.005), scope="timing")
def layout_speedup(device: Device) -> Figure:
    """Passing views makes the loop at least 1.005 times as fast."""
    return speedup(device, "layout")


@claim("TS13", equals("before"))
def optimizer_found(device: Device) -> Figure:
    """The rule optimizer-loop finds the loop over parameters, and nothing once it is mended."""
    return found_in(device, "optimizer")


@claim("TS14", at_least(0), scope="timing")
def optimizer_unused(device: Device) -> Figure:
    """The fused optimizer saves no more than the ceiling of the rule optimizer-loop."""
    return unused(device, "optimizer")


@claim("TS15", at_least(1.1), scope="timing")
def optimizer_speedup(device: Device) -> Figure:
    """The fused optimizer makes the loop at least 1.1 times as fast."""
    return speedup(device, "optimizer")


@claim("TS16", equals("before"))
def tensor_cores_found(device: Device) -> Figure:
    """The rule no-tensor-cores finds the loop that multiplies in float32, and nothing once it is mended."""
    return found_in(device, "tensor_cores")


@claim("TS17", at_least(0), scope="timing")
def tensor_cores_unused(device: Device) -> Figure:
    """Allowing TF32 saves no more than the ceiling of the rule no-tensor-cores."""
    return unused(device, "tensor_cores")


@claim("TS18", at_least(2), scope="timing")
def tensor_cores_speedup(device: Device) -> Figure:
    """Allowing TF32 makes the loop at least 2 times as fast."""
    return speedup(device, "tensor_cores")


@claim("TS19", equals("before"))
def allocator_found(device: Device) -> Figure:
    """The rule allocator-in-step finds the loop that empties the cache in every step, and nothing once it is mended."""
    return found_in(device, "allocator")


@claim("TS20", at_least(0), scope="timing")
def allocator_unused(device: Device) -> Figure:
    """Keeping the cache saves no more than the ceiling of the rule allocator-in-step."""
    return unused(device, "allocator")


@claim("TS21", at_least(1.2), scope="timing")
def allocator_speedup(device: Device) -> Figure:
    """Keeping the cache makes the loop at least 1.2 times as fast."""
    return speedup(device, "allocator")


@claim("TS22", equals("before"))
def tiny_found(device: Device) -> Figure:
    """The rule tiny-kernels finds the loop that runs tiny kernels one by one, and nothing once it is mended."""
    return found_in(device, "tiny")


@claim("TS23", at_least(0), scope="timing")
def tiny_unused(device: Device) -> Figure:
    """A CUDA graph saves no more than the ceiling of the rule tiny-kernels."""
    return unused(device, "tiny")


@claim("TS24", at_least(2), scope="timing")
def tiny_speedup(device: Device) -> Figure:
    """A CUDA graph makes the loop at least 2 times as fast."""
    return speedup(device, "tiny")


@claim("TS25", equals("before"))
def attention_found(device: Device) -> Figure:
    """The rule unfused-attention finds the loop that writes attention out, and nothing once it is mended."""
    return found_in(device, "attention")


@claim("TS26", at_least(0), scope="timing")
def attention_unused(device: Device) -> Figure:
    """One kernel for attention saves no more than the ceiling of the rule unfused-attention."""
    return unused(device, "attention")


@claim("TS27", at_least(1.2), scope="timing")
def attention_speedup(device: Device) -> Figure:
    """One kernel for attention makes the loop at least 1.2 times as fast."""
    return speedup(device, "attention")


@claim("TS28", equals("before"))
def recompile_found(device: Device) -> Figure:
    """The rule recompiles finds the loop that compiles for each length, and nothing once it is mended."""
    return found_in(device, "recompile")


@claim("TS74", equals("before"))
def breaks_found(device: Device) -> Figure:
    """The rule graph-breaks finds the loop that checks values in each block, and nothing once it is mended."""
    return found_in(device, "breaks")


@claim("TS75", at_least(0), scope="timing")
def breaks_unused(device: Device) -> Figure:
    """Leaving the check out saves no more than the ceiling of the rule graph-breaks."""
    return unused(device, "breaks")


@claim("TS72", at_least(1.05), scope="timing")
def breaks_speedup(device: Device) -> Figure:
    """Leaving out the check that breaks the graph makes the compiled loop at least 1.05 times as fast."""
    return speedup(device, "breaks")


@claim("TS29", equals("before"))
def cold_found(device: Device) -> Figure:
    """The rule first-step finds the profile of a cold process, and nothing after seven steps of warm-up."""
    return found_in(device, "cold")


@claim("TS30", at_least(10), scope="timing")
def cold_first_step(device: Device) -> Figure:
    """In a cold process, the first step takes the CPU at least 10 times as long as the third."""
    first, _, third = device["training_step/cold_before"].whole.steps
    origin = device["training_step/cold_before"].origin
    return Figure(step_us(first) / step_us(third), "x", origin=f"{origin}, in its trace")


def iteration_ratio(device: Device, slow: str, fast: str) -> Figure:
    """The time of an iteration of one loop / another loop's, by the names of the experiments."""
    return paired_ratio(device[f"training_step/{slow}"], device[f"training_step/{fast}"], "iteration")


@claim("TS31", at_least(1.01), scope="timing")
def own_stream_speedup(device: Device) -> Figure:
    """Copying on a stream of its own makes the loop with pinned memory faster again."""
    return iteration_ratio(device, "pageable_pinned", "pageable_after")


@claim("TS32", at_least(1.01), scope="timing")
def fused_over_foreach(device: Device) -> Figure:
    """The loop with the fused optimizer is faster than the loop with foreach."""
    return iteration_ratio(device, "optimizer_foreach", "optimizer_after")


@claim("TS33", at_least(1.05), scope="timing")
def padded_vocabulary(device: Device) -> Figure:
    """Padding the vocabulary to a multiple of 128 makes the loop faster, although it computes more."""
    return iteration_ratio(device, "vocabulary_before", "vocabulary_after")


@claim("TS34", at_least(1.2), scope="timing")
def graph_over_compiled(device: Device) -> Figure:
    """A CUDA graph makes the compiled loop of tiny kernels faster again."""
    return iteration_ratio(device, "tiny_compiled", "tiny_after")


@claim("TS35", at_least(1.2), scope="timing")
def autocast_over_tf32(device: Device) -> Figure:
    """Autocast to bf16 makes the loop faster again than TF32 does."""
    return iteration_ratio(device, "tensor_cores_after", "tensor_cores_autocast")


def compiled_over_eager(device: Device) -> Figure:
    """How many times as fast compiling alone makes the loop of tiny kernels."""
    return iteration_ratio(device, "tiny_before", "tiny_compiled")


FIGURES: Mapping[str, Measure] = {
    "item_saved": lambda device: saved(device, "item"),
    "item_ceiling": lambda device: ceiling(device, "item"),
    "allocator_saved": lambda device: saved(device, "allocator"),
    "allocator_ceiling": lambda device: ceiling(device, "allocator"),
    "tensor_cores_saved": lambda device: saved(device, "tensor_cores"),
    "tensor_cores_ceiling": lambda device: ceiling(device, "tensor_cores"),
    "tiny_saved": lambda device: saved(device, "tiny"),
    "tiny_ceiling": lambda device: ceiling(device, "tiny"),
}
