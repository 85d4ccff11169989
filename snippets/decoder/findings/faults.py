"""Faults of token loops: before and after each mend, its rule, and what mending bought."""

from __future__ import annotations

from collections.abc import Mapping

from snippets.lab.finding import Claim, Device, Figure, Measure, at_least, claim, equals
from snippets.lab.finding.fault import Fault
from snippets.lab.page import Computation, prediction as prediction, show as show


def _fault(name: str, title: str, rule: str = "") -> Fault:
    return Fault(name, title, (f"decoder/{name}_before", f"decoder/{name}_after"), rule)


FAULTS = {
    fault.name: fault
    for fault in (
        _fault("item", "Reading every token", "host-reads"),
        _fault("sampling", "Drawing tokens on the CPU", "host-reads"),
        _fault("cat", "A cache grown by concatenation", "growing-cache"),
        _fault("mask", "A mask in place of is_causal"),
        _fault("repeat_kv", "Keys and values copied for each query head", "repeated-heads"),
        _fault("long_cache", "A cache far longer than the text"),
        _fault("prompt_logits", "Logits of the whole prompt"),
        _fault("padded", "A prompt padded to the maximum"),
        _fault("int4", "Four bits a weight, launched one by one", "launch-bound"),
    )
}


def found(identity: str, name: str, loop: str) -> Claim:
    """The claim that the fault's rule finds the loop before the mend, and only then."""

    def measure(device: Device) -> Figure:
        return FAULTS[name].found_in(device)

    measure.__doc__ = f"The rule {FAULTS[name].rule} finds {loop}, and nothing after the mend."
    return claim(identity, equals("before"))(measure)


def within_ceiling(identity: str, name: str, mend: str, why: str = "") -> Claim:
    """The claim that the mend saves no more than the fault's rule says, and why it may differ."""

    def measure(device: Device) -> Figure:
        return FAULTS[name].unused(device)

    said = f"{mend} saves no more than the ceiling of the rule {FAULTS[name].rule}: the rest is at least zero."
    measure.__doc__ = f"{said}\n\n{why}"
    return claim(identity, at_least(0), scope="timing")(measure)


def faster(identity: str, name: str, factor: float, mend: str) -> Claim:
    """The claim that the mend makes a loop so many times as fast."""

    def measure(device: Device) -> Figure:
        return FAULTS[name].speedup(device)

    measure.__doc__ = f"{mend} makes its token loop at least {factor} times as fast."
    return claim(identity, at_least(factor), scope="timing")(measure)


item_speedup = faster("DE57", "item", 1.02, "Reading every sixteenth token in place of each")
sampling_speedup = faster("DE58", "sampling", 1.2, "Drawing tokens on the GPU")
cat_speedup = faster("DE59", "cat", 1.5, "Writing the cache in place")
mask_speedup = faster("DE60", "mask", 1.1, "Passing is_causal in place of a mask")
repeat_kv_speedup = faster("DE61", "repeat_kv", 1.5, "Sharing keys and values between query heads")
long_cache_speedup = faster("DE62", "long_cache", 1.2, "A cache as long as the text")
prompt_logits_speedup = faster("DE63", "prompt_logits", 1.1, "Asking for the last position's logits alone")
padded_speedup = faster("DE64", "padded", 3, "Leaving out the padding")
int4_speedup = faster("DE65", "int4", 1.5, "A CUDA graph around four-bit weights")
item_found = found("DE66", "item", "the loop that reads every token")
sampling_found = found("DE67", "sampling", "the loop that draws tokens on the CPU")
cat_found = found("DE68", "cat", "the cache that grows")
repeat_kv_found = found("DE69", "repeat_kv", "the copies for each query head")
int4_found = found("DE70", "int4", "the launches of four-bit weights")
item_ceiling = within_ceiling("DE71", "item", "Reading every sixteenth token")
sampling_ceiling = within_ceiling(
    "DE72",
    "sampling",
    "Drawing tokens on the GPU",
    "The rule counts only the reads. The mend also moves the softmax and the draw from the CPU to the GPU.",
)
cat_ceiling = within_ceiling(
    "DE73",
    "cat",
    "Writing the cache in place",
    "The mend saves slightly more. Our guess, not measured: it also spares the launches of the copies.",
)
repeat_kv_ceiling = within_ceiling("DE74", "repeat_kv", "Sharing keys and values")
int4_ceiling = within_ceiling("DE75", "int4", "A CUDA graph around four-bit weights")


PADDED = Computation(
    "How many times the tokens does a prompt of 4,096 have, padded to 16,384?",
    "decoder.padding",
    "16,384 over 4,096.",
    "Divide the padded length by the prompt's.",
)

FIGURES: Mapping[str, Measure] = {"padding": lambda device: Figure(16_384 / 4096, "x", origin="the lengths")}
