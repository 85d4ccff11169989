"""What several rules ask of a trace, computed once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from snippets.lab.trace.events import Step, Trace
from snippets.lab.trace.queries import require_steps


@dataclass(frozen=True)
class Facts:
    """A trace and what follows from it. Per-step times are means over the steps; shown is the median step."""

    trace: Trace

    @cached_property
    def step(self) -> Step:
        """The step of median duration (the low one of two); raises `TraceError` without a step."""
        require_steps(self.trace)
        ordered = sorted(self.trace.steps, key=lambda step: step.end_us - step.start_us)
        return ordered[(len(ordered) - 1) // 2]

    @cached_property
    def step_us(self) -> float:
        """Wall time of the median step."""
        return round(self.step.end_us - self.step.start_us, 3)

    @cached_property
    def has_shapes(self) -> bool:
        """Whether operators have the shapes of their inputs (`record_shapes=True`)."""
        return any(op.input_shapes for op in self.trace.cpu_ops)

    @cached_property
    def has_stacks(self) -> bool:
        """Whether Python functions were recorded (`with_stack=True`)."""
        return bool(self.trace.functions)

    @cached_property
    def has_memory(self) -> bool:
        """Whether allocations were recorded (`profile_memory=True`)."""
        return bool(self.trace.memory)

    @cached_property
    def has_cpu(self) -> bool:
        """Whether the trace has operators or CUDA calls at all."""
        return bool(self.trace.cpu_ops or self.trace.calls)
