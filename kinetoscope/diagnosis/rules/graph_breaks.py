"""torch.compile splits a function."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence

from kinetoscope.diagnosis.amounts import count_text, duration_text
from kinetoscope.diagnosis.facts import Facts
from kinetoscope.diagnosis.missing import no_operators
from kinetoscope.diagnosis.rule import CannotTell, Finding, Measured, Rule
from kinetoscope.diagnosis.sources import OWN, STACKS
from kinetoscope.trace.intervals import Interval, intersect, interval, length_us, subtract, union, union_of

_RESUMED = re.compile(r".*: torch_dynamo_resume_in_(?P<function>\w+)_at_(?P<line>\d+)")
_REGION = re.compile(r"Torch-Compiled Region(: (\d+)/\d+)?")
_BACKWARD = "CompiledFunctionBackward"
_GENERATED = "## Call CompiledFxGraph"


def find(facts: Facts) -> Sequence[Finding] | CannotTell:
    """Python functions that Dynamo made to continue after a break, and the GPU's gaps from the first graph to the
    last."""
    regions = [op for op in facts.in_steps(facts.cpu.ops) if _REGION.fullmatch(op.name)]
    resumed = [function for function in facts.in_steps(facts.cpu.functions) if _RESUMED.fullmatch(function.name)]
    if not resumed:
        several = len({op.name for op in regions}) > 1 and not facts.has_stacks
        reason = "several compiled regions run in a step, as functions of their own or after a graph break"
        return CannotTell(RULE, reason, STACKS) if several else []
    inside, calls = union_of(regions), sorted(interval(function) for function in resumed)
    total_us = saving_us = _per_step_us(facts, _between(inside, calls))
    if facts.has_gpu:
        generated = union_of(op for op in facts.in_steps(facts.cpu.ops) if op.name.startswith(_GENERATED))
        around = subtract(union([*_broken(inside, calls), *_backward(facts)]), generated)
        saving_us = min(_per_step_us(facts, intersect(around, facts.idle)), facts.reclaimable_us)
    places = sorted({function.name for function in resumed})
    match = _RESUMED.fullmatch(places[0])
    where = f"{places[0].partition(': ')[0]}: {match['function']}, line {match['line']}" if match else ""
    title = (
        f"{count_text(len(resumed) / len(facts.steps), 'graph break')} per step in {count_text(len(places), 'place')}; "
        f"{duration_text(total_us)} between the graphs"
    )
    measured = (
        Measured("graph breaks per step", len(resumed) / len(facts.steps), "breaks"),
        Measured("places", len(places), "places"),
    )
    return [Finding(RULE, title, where, facts.evidence(resumed), total_us, saving_us, measured=measured)]


def _between(inside: Sequence[Interval], resumed: Sequence[Interval]) -> list[Interval]:
    """Times from the end of the region before each resumed function, in order, to the start of the first region in
    it."""
    spans: list[Interval] = []
    index = 0
    for start, end in resumed:
        while index < len(inside) and inside[index][1] <= start:
            index += 1
        before = inside[index - 1][1] if index else start
        after = inside[index][0] if index < len(inside) and inside[index][0] < end else end
        spans.append((min(before, start), max(start, after)))
    return subtract(union(spans), inside)


def _broken(inside: Sequence[Interval], resumed: Sequence[Interval]) -> Iterator[Interval]:
    """Times from the start of the region before each resumed function to the function's end."""
    for start, end in resumed:
        index = bisect_right(inside, start, key=lambda region: region[0]) - 1
        yield (inside[index][0] if index >= 0 else start), end


def _backward(facts: Facts) -> Iterator[Interval]:
    """Times from the first graph of each step's backward to the last, if there are several."""
    for step in facts.steps:
        graphs = [interval(op) for op in step.ops if op.name == _BACKWARD]
        if len(graphs) > 1:
            yield min(graphs)[0], max(end for _, end in graphs)


def _per_step_us(facts: Facts, spans: Sequence[Interval]) -> float:
    """The length of these times per step, without compilation."""
    within = subtract(intersect(spans, facts.windows), union_of(facts.cpu.spans["compiling"]))
    return round(length_us(within) / len(facts.steps), 3)


RULE = Rule(
    name="graph-breaks",
    title="torch.compile splits a function",
    looks_for="A stack shows Python functions named torch_dynamo_resume_in_..., in which Dynamo continues after code "
    "that it can't compile. The ceiling is the time without GPU work from a function's first graph to its last "
    "graph, outside of Inductor's code. The ceiling doesn't include what fusing across a break would save.",
    threshold="The trace shows one graph break or more.",
    source=f"{OWN}; https://docs.pytorch.org/docs/stable/torch.compiler_troubleshooting.html explains graph breaks",
    advice="With fullgraph=True, torch.compile raises an error at the break. TORCH_LOGS=graph_breaks prints the "
    "reason of each break. Move printing, .item() and calls of other libraries out of the compiled function.",
    find=find,
    needs=(no_operators,),
    confidence="high",
    mistaken="The code must leave the graph at this break, and the GPU has enough queued work to stay busy.",
)
