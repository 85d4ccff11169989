"""The allocator's events of one training step."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

Phases = Mapping[str, Callable[[], Any]]
"""Name of a phase -> the function that runs it."""
MOST_EVENTS = 100_000


def history() -> list[dict[str, Any]]:
    """The allocator's events so far."""
    import torch

    snapshot = torch.cuda.memory._snapshot()
    events: list[dict[str, Any]] = snapshot["device_traces"][
        torch.cuda.current_device()
    ]
    return events


def timeline(
    steps: Phases, parameters: Iterable[nn.Parameter]
) -> dict[str, Any]:
    """Each allocation (bytes above zero) and release (below) of one step.

    Returns columns `block` (an address as a number), `bytes` and `at_us`; `marks`, the number of events until the end
    of each phase; `gradients`, the blocks that hold the parameters' gradients at the end of backward.
    """
    import torch

    torch.cuda.memory._record_memory_history(
        context=None, max_entries=MOST_EVENTS
    )
    marks, gradients = [len(history())], list[int]()
    for name, run in steps.items():
        run()
        marks.append(len(history()))
        if name == "backward":
            gradients = [
                each.grad.untyped_storage().data_ptr()
                for each in parameters
                if each.grad is not None
            ]
    events = history()
    torch.cuda.memory._record_memory_history(enabled=None)
    return columns(events, marks, gradients)


def columns(
    events: list[dict[str, Any]], marks: list[int], gradients: list[int]
) -> dict[str, Any]:
    """Events between the first and the last of `marks` as columns."""
    numbers: dict[int, int] = {}
    signs = {"alloc": 1, "free_requested": -1}
    found: dict[str, list[Any]] = {
        "block": [],
        "bytes": [],
        "at_us": [],
        "marks": [],
        "gradients": [],
    }
    for begin, end in itertools.pairwise(marks):
        for event in events[begin:end]:
            if event["action"] in signs:
                number = numbers.setdefault(event["addr"], len(numbers))
                found["block"].append(number)
                found["bytes"].append(
                    signs[event["action"]] * int(event["size"])
                )
                found["at_us"].append(float(event.get("time_us", 0)))
        found["marks"].append(len(found["block"]))
    start = min(found["at_us"], default=0.0)
    found["at_us"] = [round(at - start, 3) for at in found["at_us"]]
    found["gradients"] = [
        numbers.setdefault(address, len(numbers)) for address in gradients
    ]
    return found
