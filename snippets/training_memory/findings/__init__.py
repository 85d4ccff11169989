"""The figures and claims of the chapter training_memory: steps, precision, learning, memory and the allocator."""

from snippets.training_memory.findings import learning, precision, steps

PARTS = (steps, precision, learning)
