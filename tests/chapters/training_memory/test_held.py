"""The kind of an event's bytes, from hand-written events."""

from __future__ import annotations

import pytest

from snippets.training_memory.findings.held import kinds_of_events

MARKS = (4, 9, 10)
"""Of four events in forward, five in backward, one in the optimizer."""
EVENTS = [
    (0, 8, "temporaries"),  # freed in forward
    (0, -8, "temporaries"),
    (1, 64, "activations"),
    (0, 16, "activations"),  # the block of the temporary, again
    (2, 32, "gradients"),
    (1, -64, "activations"),
    (1, 24, "temporaries"),  # where an activation was; in use at the end of backward, and no gradient
    (7, -4, "others"),  # was there before the step
    (0, -16, "activations"),
    (2, -32, "gradients"),
]


def test_kinds_by_lifetime() -> None:
    blocks, sizes, kinds = zip(*EVENTS, strict=True)
    assert kinds_of_events(blocks, sizes, MARKS, [2]) == list(kinds)


def test_without_gradients_of_the_step_there_are_temporaries() -> None:
    blocks, sizes, _ = zip(*EVENTS, strict=True)
    kinds = kinds_of_events(blocks, sizes, MARKS, [99])
    assert kinds[4] == kinds[9] == "temporaries"


@pytest.mark.parametrize(("marks", "kind"), [((1, 1, 1), "activations"), ((0, 1, 1), "gradients")])
def test_what_is_never_released_is_in_use_at_every_end(marks: tuple[int, int, int], kind: str) -> None:
    assert kinds_of_events([3], [8], marks, [3] if kind == "gradients" else []) == [kind]
