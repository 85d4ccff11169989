"""Faults of token loops: before and after each mend, its rule, and what mending bought."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kinetoscope.diagnosis.diagnose import diagnose
from kinetoscope.diagnosis.rule import Finding
from kinetoscope.diagnosis.rules import RULES
from kinetoscope.trace.events import Trace
from snippets.lab.finding import (
    Claim,
    Device,
    Figure,
    Measure,
    Run,
    TraceError,
    at_least,
    at_most,
    claim,
    equals,
    paired_difference,
    paired_ratio,
)
from snippets.lab.page import Computation, prediction as prediction, show as show


@dataclass(frozen=True)
class Fault:
    """A fault that is recorded before and after its mend."""

    name: str
    title: str
    rule: str = ""
    """The rule that finds it in the trace; empty where none does."""

    @property
    def loops(self) -> tuple[str, str]:
        """The experiments before and after the mend."""
        return f"decoder/{self.name}_before", f"decoder/{self.name}_after"


FAULTS = {
    fault.name: fault
    for fault in (
        Fault("item", "Reading every token", "host-reads"),
        Fault("sampling", "Drawing tokens on the CPU", "host-reads"),
        Fault("cat", "A cache grown by concatenation", "growing-cache"),
        Fault("mask", "A mask in place of is_causal"),
        Fault("repeat_kv", "Keys and values copied for each query head", "repeated-heads"),
        Fault("long_cache", "A cache far longer than the text"),
        Fault("prompt_logits", "Logits of the whole prompt"),
        Fault("padded", "A prompt padded to the maximum"),
        Fault("int4", "Four bits a weight, launched one by one", "launch-bound"),
    )
}
_RULES = {rule.name: rule for rule in RULES}
_found: dict[tuple[int, str], tuple[Trace, tuple[Finding, ...]]] = {}
_KEPT = 64


def rule_findings(run: Run, rule: str) -> tuple[Finding, ...]:
    """A rule's findings in a run's trace; cached, since a claim needs each part of a recording."""
    trace = run.whole.trace
    key = id(trace), rule
    if key not in _found:
        if len(_found) >= _KEPT:
            _found.clear()
        _found[key] = trace, diagnose(trace, [_RULES[rule]]).findings
    return _found[key][1]


def found_in(device: Device, fault: Fault) -> Figure:
    """In which of its two traces the fault's rule finds it: `before`, `after`, `both` or `neither`."""
    before, after = (device[loop] for loop in fault.loops)
    seen = [bool(rule_findings(run, fault.rule)) for run in (before, after)]
    names = {(True, False): "before", (False, True): "after", (True, True): "both", (False, False): "neither"}
    return Figure(names[seen[0], seen[1]], origin=f"{before.origin} and {after.id}, rule {fault.rule}")


def ceiling(device: Device, fault: Fault) -> Figure:
    """The most that the mend can save in an iteration, by the fault's rule on the trace before it.

    Raises `TraceError` if the rule does not find it.
    """
    run = device[fault.loops[0]]
    findings = rule_findings(run, fault.rule)
    if not findings:
        raise TraceError(f"{fault.rule} finds nothing in {run.id} on {device.name}")
    most = sum(finding.saving_us_per_step for finding in findings)
    return Figure(most, "us", origin=f"{run.origin}, {fault.rule} on its trace")


def saved(device: Device, fault: Fault) -> Figure:
    """The mend's saving of an iteration, unprofiled, in pairs of blocks."""
    before, after = (device[loop] for loop in fault.loops)
    return paired_difference(before, after, "iteration")


def speedup(device: Device, name: str) -> Figure:
    """How many times as long an iteration takes before the mend as after it."""
    before, after = (device[loop] for loop in FAULTS[name].loops)
    return paired_ratio(before, after, "iteration")


def found(identity: str, name: str, loop: str) -> Claim:
    """The claim that the fault's rule finds the loop before the mend, and only then."""

    def measure(device: Device) -> Figure:
        return found_in(device, FAULTS[name])

    measure.__doc__ = f"The rule {FAULTS[name].rule} finds {loop}, and nothing once it is mended."
    return claim(identity, equals("before"))(measure)


def within_ceiling(identity: str, name: str, mend: str, why: str = "") -> Claim:
    """The claim that the mend saves no more than the fault's rule says, and why it may differ."""

    def measure(device: Device) -> Figure:
        most, less = ceiling(device, FAULTS[name]), saved(device, FAULTS[name])
        low, high = less.bounds
        return Figure(most.number - less.number, "us", (most.number - high, most.number - low), less.origin)

    said = f"{mend} saves no more than the ceiling of the rule {FAULTS[name].rule}: the rest is at least zero."
    measure.__doc__ = f"{said}\n\n{why}"
    return claim(identity, at_least(0), scope="timing")(measure)


def faster(identity: str, name: str, factor: float, mend: str) -> Claim:
    """The claim that the mend makes a loop so many times as fast."""

    def measure(device: Device) -> Figure:
        return speedup(device, name)

    measure.__doc__ = f"{mend} makes the loop at least {factor} times as fast."
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
    "The rule counts the reads. The mend also takes the softmax and the draw off the CPU.",
)
repeat_kv_ceiling = within_ceiling("DE74", "repeat_kv", "Sharing keys and values")
int4_ceiling = within_ceiling("DE75", "int4", "A CUDA graph around four-bit weights")


@claim("DE73", at_most(101), scope="timing")
def cat_of_ceiling(device: Device) -> Figure:
    """Writing the cache in place saves at most 101 % of the ceiling of the rule growing-cache."""
    most, less = ceiling(device, FAULTS["cat"]), saved(device, FAULTS["cat"])
    low, high = (100 * bound / most.number for bound in less.bounds)
    return Figure(100 * less.number / most.number, "%", (low, high), less.origin)


PADDED = Computation(
    "How many times the tokens does a prompt of 4,096 have, padded to 16,384?",
    "decoder.padding",
    "16,384 over 4,096.",
    "Divide the padded length by the prompt's.",
)

FIGURES: Mapping[str, Measure] = {"padding": lambda device: Figure(16_384 / 4096, "x", origin="the lengths")}
