"""The figures and claims of the chapter training_memory: steps, optimizers, precision, learning, memory, allocator.

charts.py draws the bytes that a step holds and an allocator's segments, by means of drawn.py.
"""

from snippets.training_memory.findings import (
    allocator,
    casts,
    instruments,
    keeping,
    learning,
    memory,
    optimizers,
    precision,
    predicted,
    steps,
)

PARTS = (steps, optimizers, casts, precision, learning, memory, keeping, predicted, allocator, instruments)
