"""Claims about the faults: their rules find them before the mend alone, ceilings hold, and mending saves time."""

from __future__ import annotations

from collections.abc import Mapping

from kinetoscope.trace.queries import step_us
from snippets.lab.finding import Claim, Device, Figure, Measure, at_least, claim, equals, paired_ratio
from snippets.training_step.findings.loops import FAULTS


def found(identity: str, fault: str, loop: str) -> Claim:
    """The claim that the fault's rule finds the loop before the mend, and only then."""

    def measure(device: Device) -> Figure:
        return FAULTS[fault].found_in(device)

    measure.__doc__ = (
        f"The report's rule {FAULTS[fault].rule} finds the fault in {loop}, and finds nothing after the fix."
    )
    return claim(identity, equals("before"))(measure)


def within_ceiling(identity: str, fault: str, mend: str) -> Claim:
    """The claim that the mend saves no more than the fault's rule says."""

    def measure(device: Device) -> Figure:
        return FAULTS[fault].unused(device)

    measure.__doc__ = (
        f"{mend} saves no more time than the ceiling of the rule `{FAULTS[fault].rule}`. "
        "The figure is the ceiling minus the saved time."
    )
    return claim(identity, at_least(0), scope="timing")(measure)


def faster(identity: str, fault: str, factor: float, mend: str) -> Claim:
    """The claim that the mend makes a loop so many times as fast."""

    def measure(device: Device) -> Figure:
        return FAULTS[fault].speedup(device)

    measure.__doc__ = f"{mend} at least {factor} times as fast."
    return claim(identity, at_least(factor), scope="timing")(measure)


item_found = found("TS1", "item", "the loop that reads three values in every step")
item_unused = within_ceiling("TS2", "item", "Reading values every hundredth step")
item_speedup = faster("TS3", "item", 1.02, "Reading three values every hundredth step makes the loop")
loader_found = found("TS4", "loader", "the loop that tokenizes in the main process")
loader_unused = within_ceiling("TS5", "loader", "Loading data in eight workers")
loader_speedup = faster("TS6", "loader", 1.5, "Loading data in eight workers makes the loop")
pageable_found = found("TS7", "pageable", "the loop that copies from pageable memory")
pageable_unused = within_ceiling("TS8", "pageable", "Pinned memory")
pageable_speedup = faster("TS9", "pageable", 1.2, "Pinned memory makes the loop")
layout_found = found("TS10", "layout", "the loop that copies queries, keys and values")
layout_unused = within_ceiling("TS11", "layout", "Passing views to attention")
layout_speedup = faster("TS12", "layout", 1.005, "Passing views to attention makes the loop")
optimizer_found = found("TS13", "optimizer", "the loop whose optimizer loops over parameters")
optimizer_unused = within_ceiling("TS14", "optimizer", "The fused optimizer")
optimizer_speedup = faster("TS15", "optimizer", 1.1, "The fused optimizer makes the loop")
tensor_cores_found = found("TS16", "tensor_cores", "the loop that multiplies in float32")
tensor_cores_unused = within_ceiling("TS17", "tensor_cores", "Allowing TF32")
tensor_cores_speedup = faster("TS18", "tensor_cores", 2, "Allowing TF32 makes the loop")
allocator_found = found("TS19", "allocator", "the loop that empties the allocator's cache in every step")
allocator_unused = within_ceiling("TS20", "allocator", "Keeping the allocator's cache")
allocator_speedup = faster("TS21", "allocator", 1.2, "Keeping the allocator's cache makes the loop")
tiny_found = found("TS22", "tiny", "the loop that runs tiny kernels one by one")
tiny_unused = within_ceiling("TS23", "tiny", "Compiling with CUDA graphs")
tiny_speedup = faster("TS24", "tiny", 2, "Compiling with CUDA graphs makes the loop of tiny kernels")
attention_found = found("TS25", "attention", "the loop that computes attention in separate operators")
attention_unused = within_ceiling("TS26", "attention", "Attention in one kernel")
attention_speedup = faster("TS27", "attention", 1.2, "Attention in one kernel makes the loop")
recompile_found = found("TS28", "recompile", "the loop that compiles for each length")
breaks_found = found("TS74", "breaks", "the loop that checks values in each block")
breaks_unused = within_ceiling("TS75", "breaks", "Leaving out the check")
breaks_speedup = faster("TS72", "breaks", 1.05, "Leaving out the check that breaks the graph makes the compiled loop")


@claim("TS29", equals("before"))
def cold_found(device: Device) -> Figure:
    """The report's rule first-step finds the fault in the profile of a new process, and finds nothing in a profile
    after seven steps of warm-up."""
    return FAULTS["cold"].found_in(device)


@claim("TS30", at_least(10), scope="timing")
def cold_first_step(device: Device) -> Figure:
    """In a new process, the first step takes at least 10 times as much CPU time as the third step."""
    first, _, third = device["training_step/cold_before"].whole.steps
    origin = device["training_step/cold_before"].origin
    return Figure(step_us(first) / step_us(third), "x", origin=f"{origin}, in its trace")


def iteration_ratio(device: Device, slow: str, fast: str) -> Figure:
    """The time of an iteration of one loop / another loop's, by the names of the experiments."""
    return paired_ratio(device[f"training_step/{slow}"], device[f"training_step/{fast}"], "iteration")


@claim("TS31", at_least(1.01), scope="timing")
def own_stream_speedup(device: Device) -> Figure:
    """In the loop with pinned memory, copying on a separate stream makes the loop at least 1 % faster."""
    return iteration_ratio(device, "pageable_pinned", "pageable_after")


@claim("TS32", at_least(1.01), scope="timing")
def fused_over_foreach(device: Device) -> Figure:
    """The loop with the fused optimizer is at least 1 % faster than the loop with foreach."""
    return iteration_ratio(device, "optimizer_foreach", "optimizer_after")


@claim("TS33", at_least(1.05), scope="timing")
def padded_vocabulary(device: Device) -> Figure:
    """Padding the vocabulary to a multiple of 128 makes the loop at least 5 % faster, although the padded loop computes
    more."""
    return iteration_ratio(device, "vocabulary_before", "vocabulary_after")


@claim("TS34", at_least(1.2), scope="timing")
def graph_over_compiled(device: Device) -> Figure:
    """CUDA graphs make the compiled loop of tiny kernels at least a fifth faster."""
    return iteration_ratio(device, "tiny_compiled", "tiny_after")


@claim("TS35", at_least(1.2), scope="timing")
def autocast_over_tf32(device: Device) -> Figure:
    """The loop under autocast to bf16 is at least a fifth faster than the loop with TF32."""
    return iteration_ratio(device, "tensor_cores_after", "tensor_cores_autocast")


FIGURES: Mapping[str, Measure] = {
    "compiled_over_eager": lambda device: iteration_ratio(device, "tiny_before", "tiny_compiled"),
    "item_saved": FAULTS["item"].saved,
    "tensor_cores_saved": FAULTS["tensor_cores"].saved,
    "tensor_cores_ceiling": FAULTS["tensor_cores"].ceiling,
    "tiny_saved": FAULTS["tiny"].saved,
    "tiny_ceiling": FAULTS["tiny"].ceiling,
}
