"""Faults of token loops: before and after each fix, its rule, and what the fix saved."""

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
        _fault("int4", "Four-bit weights, kernels launched one by one", "launch-bound"),
    )
}


def found(identity: str, name: str, loop: str) -> Claim:
    """The claim that the fault's rule finds the loop before the fix, and only then."""

    def measure(device: Device) -> Figure:
        return FAULTS[name].found_in(device)

    measure.__doc__ = f"The rule `{FAULTS[name].rule}` finds its fault in the loop {loop}, but not in the fixed loop."
    return claim(identity, equals("before"))(measure)


def within_ceiling(identity: str, name: str, fix: str, why: str = "") -> Claim:
    """The claim that the fix saves no more than the fault's rule says, and why it may differ."""

    def measure(device: Device) -> Figure:
        return FAULTS[name].unused(device)

    ceiling = f"the ceiling of the rule `{FAULTS[name].rule}`"
    said = f"{fix} saves no more time than {ceiling}. The figure is the ceiling minus the saved time."
    measure.__doc__ = f"{said}\n\n{why}"
    return claim(identity, at_least(0), scope="timing")(measure)


def faster(identity: str, name: str, factor: float, fix: str, unit: str = "a token") -> Claim:
    """The claim that the fix makes a token or a prompt so many times as fast."""

    def measure(device: Device) -> Figure:
        return FAULTS[name].speedup(device)

    measure.__doc__ = f"{fix} makes {unit} at least {factor} times as fast."
    return claim(identity, at_least(factor), scope="timing")(measure)


item_speedup = faster("DE57", "item", 1.02, "Reading only every sixteenth token on the CPU")
sampling_speedup = faster("DE58", "sampling", 1.2, "Drawing tokens on the GPU instead of the CPU")
cat_speedup = faster("DE59", "cat", 1.5, "Writing into a static cache instead of growing the cache by `cat`")
mask_speedup = faster("DE60", "mask", 1.1, "Passing `is_causal` instead of a mask", "a prompt")
repeat_kv_speedup = faster(
    "DE61", "repeat_kv", 1.5, "Sharing keys and values between query heads instead of making copies"
)
long_cache_speedup = faster(
    "DE62", "long_cache", 1.2, "A cache as long as the text, instead of a cache 64 times as long as the prompt,"
)
prompt_logits_speedup = faster("DE63", "prompt_logits", 1.1, "Computing only the last position's logits", "a prompt")
padded_speedup = faster("DE64", "padded", 3, "Leaving out padding to four times the length", "a prompt")
int4_speedup = faster("DE65", "int4", 1.5, "With four-bit weights, a CUDA graph instead of separate launches")
item_found = found("DE66", "item", "that reads every token")
sampling_found = found("DE67", "sampling", "that draws tokens on the CPU")
cat_found = found("DE68", "cat", "that grows its cache by `cat`")
repeat_kv_found = found("DE69", "repeat_kv", "that copies keys and values for each query head")
int4_found = found("DE70", "int4", "that launches kernels of four-bit weights one by one")
item_ceiling = within_ceiling("DE71", "item", "Reading only every sixteenth token on the CPU")
sampling_ceiling = within_ceiling(
    "DE72",
    "sampling",
    "Drawing tokens on the GPU",
    "The rule counts only the reads. The fix also moves the softmax and the draw from the CPU to the GPU.",
)
cat_ceiling = within_ceiling(
    "DE73",
    "cat",
    "Writing into a static cache",
    "The fix saves slightly more. Our guess, not measured: the fix also saves the launches of the copies.",
)
repeat_kv_ceiling = within_ceiling("DE74", "repeat_kv", "Sharing keys and values")
int4_ceiling = within_ceiling("DE75", "int4", "With four-bit weights, a CUDA graph")


PADDED = Computation(
    "The padded prompt has how many times the tokens of the prompt without padding?",
    "decoder.padding",
    "16,384 tokens over 4,096 tokens.",
    "Divide the length of the padded prompt by the length of the prompt.",
)

FIGURES: Mapping[str, Measure] = {"padding": lambda device: Figure(16_384 / 4096, "x", origin="the lengths")}
