"""The figures and claims of the chapter training_memory: steps, optimizers, precision, learning, memory, allocator."""

from snippets.training_memory.findings import (
    allocator,
    casts,
    instruments,
    keeping,
    learning,
    memory,
    optimizers,
    precision,
    steps,
)

PARTS = (steps, optimizers, casts, precision, learning, memory, keeping, allocator, instruments)
