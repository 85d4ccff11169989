"""The figures and claims of the chapter training_memory: steps, precision, learning, memory and the allocator."""

from snippets.training_memory.findings import allocator, casts, instruments, keeping, learning, memory, precision, steps

PARTS = (steps, casts, precision, learning, memory, keeping, allocator, instruments)
