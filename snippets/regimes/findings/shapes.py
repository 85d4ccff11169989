"""The cost of a new number of tokens for a compiled stack."""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from kinetoscope.html import Cell, Html, code, table
from snippets.lab.finding import Device, Figure, NotRecorded, claim, equals, format_value, listed
from snippets.lab.page import show as show

ASKED: Mapping[str, str] = {"static": "dynamic=False", "automatic": "default", "dynamic": "dynamic=True"}


def _shapes(device: Device) -> Mapping[str, Any]:
    found: Mapping[str, Any] = device["regimes/new_shapes"].data
    return found


def graphs(device: Device, asked: str) -> Figure:
    """Graphs after all calls, for a way to ask for shapes."""
    return Figure(_shapes(device)["asked"][asked]["graphs"][-1], origin=device["regimes/new_shapes"].origin)


def compiling_calls(device: Device, asked: str) -> list[tuple[int, float]]:
    """Tokens and microseconds of the calls that compiled."""
    data = _shapes(device)
    found = data["asked"][asked]
    new = [after > before for before, after in pairwise([0, *found["graphs"]])]
    calls = zip(data["tokens"], found["call_s"], new, strict=True)
    return [(tokens, 1e6 * seconds) for tokens, seconds, is_new in calls if is_new]


def shapes_table(device: Device) -> Html:
    """Successive calls with new numbers of tokens: whether each compiled, and its time."""
    data = _shapes(device)
    rows: list[list[Cell]] = []
    for index, tokens in enumerate(data["tokens"]):
        cells: list[Cell] = []
        for asked in ASKED:
            found = data["asked"][asked]
            before = found["graphs"][index - 1] if index else 0
            time = format_value(1e6 * found["call_s"][index], "us")
            cells.append(f"graph {found['graphs'][index]}: {time}" if found["graphs"][index] > before else time)
        rows.append([f"{tokens:,}", *cells])
    head = ["tokens", *(code(name) for name in ASKED.values())]
    return table("Times of the calls, in order, and the number of a graph that a call compiled", head, rows)


def input_guards(device: Device) -> Html:
    """The guards on the shape of x, of each graph."""
    rows: list[list[Cell]] = []
    for asked, name in ASKED.items():
        guards_of_graphs = _shapes(device)["asked"][asked]["guards"]
        sizes = sorted(size for texts in guards_of_graphs for size in size_guards(texts))
        rows.append([code(name), Html("<br>".join(map(code, sizes)))])
    return table("Guards on the shape of x", ["setting", "guards"], rows, text_columns=2)


def size_guards(texts: Sequence[str]) -> list[str]:
    """The sizes that guards demand: `size=[64, 1024]`, where None is any, and conditions on any."""
    found = [match[0] for text in texts if (match := re.search(r"size=\[[^\]]*\]", text))]
    return found + [text for text in texts if ".size()[" in text]


@claim("RG42", equals("static 6, automatic 3, dynamic 2"))
def graphs_of_shapes(device: Device) -> Figure:
    """For six numbers of tokens, one of them a single token, Dynamo compiles six graphs with dynamic=False, three
    graphs by default, and two graphs with dynamic=True."""
    return listed({asked: graphs(device, asked) for asked in ASKED})


def replayed(device: Device) -> Mapping[str, Any]:
    """The data of the mode reduce-overhead at each size. Raises `NotRecorded` without it."""
    found: Mapping[str, Any] = _shapes(device).get("replayed", {})
    if not found:
        raise NotRecorded("regimes/new_shapes has no 'replayed'; make record CHAPTER=regimes")
    return found


def replayed_table(device: Device) -> Html:
    """The first calls of each size in the mode reduce-overhead, and the compilations and recordings so far."""
    found = replayed(device)
    sizes = zip(_shapes(device)["tokens"], found["call_s"], found["graphs"], found["recorded"], strict=True)
    rows: list[list[Cell]] = [
        [f"{tokens:,}", *(format_value(1e6 * seconds, "us") for seconds in calls), str(compiled), str(recorded)]
        for tokens, calls, compiled, recorded in sizes
    ]
    head = ["tokens", "first call", "second call", "third call", "graphs compiled", "CUDA graphs recorded"]
    return table("The mode reduce-overhead: three calls with each number of tokens", head, rows)


def recording_over_replay(device: Device) -> Figure:
    """The call that records a CUDA graph over the replay after it, its median; its spread has all sizes."""
    found = replayed(device)
    is_new = [after > before for before, after in pairwise([0, *found["recorded"]])]
    ratios = [calls[1] / calls[2] for calls, new in zip(found["call_s"], is_new, strict=True) if new]
    return Figure(statistics.median(ratios), "x", (min(ratios), max(ratios)), device["regimes/new_shapes"].origin)


@claim("RG65", equals("3 graphs, 6 CUDA graphs"))
def recorded_graphs(device: Device) -> Figure:
    """For six numbers of tokens, the mode reduce-overhead records six CUDA graphs, although Dynamo compiles three
    graphs."""
    compiled, recorded = (replayed(device)[key][-1] for key in ("graphs", "recorded"))
    return Figure(f"{compiled} graphs, {recorded} CUDA graphs", origin=device["regimes/new_shapes"].origin)
