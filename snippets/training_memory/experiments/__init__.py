"""What the chapter training_memory measures: precision.py, memory.py and allocator.py together."""

from snippets.training_memory.allocator import ALLOCATOR
from snippets.training_memory.experiments.memory import MEMORY
from snippets.training_memory.experiments.precision import PRECISION

EXPERIMENTS = (*PRECISION, *MEMORY, *ALLOCATOR)
