"""What a reader waits for besides tokens: compilations, other lengths, and another reader's prompt."""

from __future__ import annotations

import statistics
from collections.abc import Mapping

from kinetoscope.html import Cell, Html, table
from snippets.decoder.findings.probed import entry
from snippets.lab.finding import (
    Device,
    Figure,
    Measure,
    at_least,
    at_most,
    claim,
    equals,
    format_value,
    timing_of_samples,
    unpaired_ratio,
)
from snippets.lab.page import show as show

FIRST, LENGTHS, REQUEST = "decoder/first_calls", "decoder/lengths", "decoder/second_request"
CACHES = {
    "not compiled": "growing cache, not compiled",
    "cat": "growing cache, compiled",
    "cat, static shapes": "growing cache, compiled with dynamic=False",
    "static": "static cache, compiled",
}
STARTS = {"whole": "the whole step, with reduce-overhead", "layers": "each layer"}


def first_call_us(device: Device, start: str) -> Figure:
    """The first token of a loop whose compiler starts with empty caches; up to the first two, since a second one may
    record a graph."""
    first, second, *_ = (1e6 * seconds for seconds in entry(device, FIRST, "call_s", start))
    return Figure(first, "us", (first, first + second), f"{device[FIRST].origin}, {start}")


def later_call_us(device: Device, start: str) -> Figure:
    """The median of the last three tokens of such a loop."""
    last = entry(device, FIRST, "call_s", start)[-3:]
    return Figure(
        1e6 * statistics.median(last), "us", (1e6 * min(last), 1e6 * max(last)), f"{device[FIRST].origin}, {start}"
    )


def graphs(device: Device, cache: str) -> Figure:
    """Graphs that Dynamo has compiled at the end."""
    return Figure(entry(device, LENGTHS, cache, "graphs")[-1], origin=f"{device[LENGTHS].origin}, {cache}")


@claim("DE51", at_least(1000), scope="timing")
def first_token(device: Device) -> Figure:
    """If the whole decode step is compiled, the first token takes at least a thousand times as long as a later
    token."""
    return unpaired_ratio(first_call_us(device, "whole"), later_call_us(device, "whole"))


@claim("DE52", at_most(0.5), scope="timing")
def layers_compile_faster(device: Device) -> Figure:
    """Compiling one layer, whose code all layers share, takes at most half the time of compiling the whole decode
    step."""
    return unpaired_ratio(*(first_call_us(device, start) for start in ("layers", "whole")))


@claim("DE53", equals(1))
def static_compiles_once(device: Device) -> Figure:
    """With a static cache, Dynamo compiles the step once for all lengths."""
    return graphs(device, "static")


@claim("DE54", at_least(8))
def cat_compiles_each(device: Device) -> Figure:
    """With a growing cache and `dynamic=False`, Dynamo compiles for at least eight lengths."""
    return graphs(device, "cat, static shapes")


@claim("DE55", equals(2))
def cat_compiles_twice(device: Device) -> Figure:
    """With a growing cache and default options, Dynamo compiles twice: for the first length, and for all other
    lengths."""
    return graphs(device, "cat")


def first_answer(device: Device) -> Figure:
    """A token of the first answer at lengths that the process has not met, over one of the second answer, in medians.

    One layer, not compiled.
    """
    first, again = (
        Figure.from_timing(timing_of_samples(entry(device, LENGTHS, "not compiled", key)), device[LENGTHS].origin)
        for key in ("call_s", "again_s")
    )
    return unpaired_ratio(first, again)


@claim("DE76", at_least(10), scope="timing")
def first_answer_plans(device: Device) -> Figure:
    """If each token has a new length, a token takes at least ten times as long in a process's first answer as in the
    repeated answer."""
    return first_answer(device)


def plan_us(device: Device) -> Figure:
    """What a length costs that the process has not met: the median of the differences."""
    found = entry(device, LENGTHS, "not compiled")
    more = [1e6 * (first - again) for first, again in zip(found["call_s"], found["again_s"], strict=True)]
    return Figure(statistics.median(more), "us", (min(more), max(more)), device[LENGTHS].origin)


def gaps(device: Device, prompt: str) -> tuple[float, float]:
    """The longest time between two tokens while another prompt is read, and the median of all."""
    times = entry(device, REQUEST, prompt)
    return max(times), statistics.median(times)


def waits(device: Device, prompt: str) -> Figure:
    """How many times its usual time a token takes while a prompt of so many tokens is read."""
    times = timing_of_samples(entry(device, REQUEST, prompt))
    longest, origin = max(times.samples_us), f"{device[REQUEST].origin}, {prompt} tokens"
    return Figure(longest / times.median_us, "x", (longest / times.q3_us, longest / times.q1_us), origin)


@claim("DE56", at_least(5), scope="timing")
def second_request(device: Device) -> Figure:
    """If a loop computes another text's prompt of 8,192 tokens before a token, the token takes at least five times its
    usual time."""
    return waits(device, "8192")


def first_calls(device: Device) -> Html:
    """The first tokens of a compiled loop."""
    names = {start: entry(device, FIRST, "call_s", start) for start in STARTS}
    count = min(map(len, names.values()))
    rows: list[list[Cell]] = [
        [STARTS[start], *(format_value(1e6 * s, "us") for s in times[:count])] for start, times in names.items()
    ]
    return table(
        "Time of the first tokens, with empty compiler caches",
        ["what is compiled", *(f"token {i + 1}" for i in range(count))],
        rows,
    )


def lengths(device: Device) -> Html:
    """Tokens and compilations of a step whose cache grows, and of one whose cache doesn't."""
    rows: list[list[Cell]] = []
    for cache, heading in CACHES.items():
        times = entry(device, LENGTHS, cache, "call_s")
        rows.append([heading, str(graphs(device, cache).value), *(format_value(1e6 * s, "us") for s in times[:6])])
    count = len(rows[0]) - 2
    head = ["cache", "compiled graphs", *(f"token {index + 1}" for index in range(count))]
    return table("Compiled graphs, and the time of each token, in a model of one layer", head, rows)


def requests(device: Device) -> Html:
    """What a reader waits for while another reader's prompt is read."""
    rows: list[list[Cell]] = []
    for prompt in sorted(device[REQUEST].data, key=int):
        longest, usual = gaps(device, prompt)
        rows.append(
            [f"{int(prompt):,}", *(format_value(us, "us") for us in (usual, longest)), waits(device, prompt).text]
        )
    head = [
        "tokens of the other text's prompt",
        "usual time of a token",
        "time of the token after the prompt",
        "ratio of both times",
    ]
    return table("Time of a token, usually and directly after another text's prompt", head, rows)


def slowest_plan_us(device: Device) -> Figure:
    """The highest cost of a length that the process has not met."""
    plan = plan_us(device)
    return Figure(plan.bounds[1], "us", origin=plan.origin)


FIGURES: Mapping[str, Measure] = {
    "plan_us": plan_us,
    "first_token_us": lambda device: first_call_us(device, "whole"),
    "first_layer_us": lambda device: first_call_us(device, "layers"),
    "waits_512": lambda device: waits(device, "512"),
    "waits_2048": lambda device: waits(device, "2048"),
}
