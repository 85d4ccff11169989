"""The probes' reading of the allocator's events and snapshots, from hand-written ones."""

from __future__ import annotations

from typing import Any

import pytest

from snippets.training_memory import allocator
from snippets.training_memory.experiments.timeline import columns


def event(action: str, address: int, size: int, time_us: int) -> dict[str, Any]:
    return {"action": action, "addr": address, "size": size, "time_us": time_us}


EVENTS = [
    event("alloc", 1, 64, 90),  # before the step
    event("snapshot", 0, 0, 99),
    event("segment_alloc", 512, 4096, 100),
    event("alloc", 512, 1024, 101),
    event("snapshot", 0, 0, 102),
    event("alloc", 2048, 512, 105),
    event("free_requested", 512, 1024, 106),
    event("free_completed", 512, 1024, 106),
    event("alloc", 512, 256, 110),
]


def test_events_of_a_step_as_columns() -> None:
    assert columns(EVENTS, [1, 4, 9], [2048, 4096]) == {
        "block": [0, 1, 0, 0],
        "bytes": [1024, 512, -1024, 256],
        "at_us": [0.0, 4.0, 5.0, 9.0],
        "marks": [1, 4],
        "gradients": [1, 2],
    }


def test_a_step_without_events() -> None:
    assert columns([], [0, 0], []) == {"block": [], "bytes": [], "at_us": [], "marks": [0], "gradients": []}


def frame(name: str, file: str = "/somewhere/fragments.py") -> dict[str, Any]:
    return {"name": name, "filename": file, "line": 1}


@pytest.mark.parametrize(
    ("block", "owner"),
    [
        ({"state": "inactive", "frames": [frame("block"), frame("keep")]}, ""),
        ({"state": "active_allocated", "frames": [frame("block"), frame("keep"), frame("interleave")]}, "keep"),
        ({"state": "active_allocated", "frames": [frame("other", "torch/x.py")]}, "active"),
        ({"state": "active_pending_free"}, "active"),
    ],
)
def test_who_allocated_a_block(block: dict[str, Any], owner: str) -> None:
    assert allocator._owner(block) == owner


def test_a_setting_replaces_what_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "garbage_collection_threshold:0.8")
    assert not {*allocator.VARIABLES} & allocator._environment("").keys()
    changed = allocator._environment("expandable_segments:True")
    assert {changed[name] for name in allocator.VARIABLES} == {"expandable_segments:True"}


def test_the_large_request_fits_into_no_hole_and_into_what_is_free() -> None:
    assert max(allocator.LENT) < allocator.LARGE < sum(allocator.LENT)
    assert allocator.SPARE < allocator.LARGE
