"""The figures and claims of the chapter training_memory: precision, memory and the allocator."""

from snippets.training_memory.findings import precision

PARTS = (precision,)
