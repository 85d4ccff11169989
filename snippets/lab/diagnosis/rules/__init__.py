"""The rules, a file each; `RULES` has them in the order of their names."""

from __future__ import annotations

from snippets.lab.diagnosis.rule import Rule
from snippets.lab.diagnosis.rules import (
    allocator_in_step,
    device_to_host_copies,
    exposed_communication,
    first_step,
    garbage_collection,
    gpu_slowed,
    graph_breaks,
    launch_bound,
    loader_stall,
    pageable_copies,
    profiler_overhead,
    recompiles,
    slow_cpu_code,
    stragglers,
    sync_in_step,
)

RULES: tuple[Rule, ...] = (
    allocator_in_step.RULE,
    device_to_host_copies.RULE,
    exposed_communication.RULE,
    first_step.RULE,
    garbage_collection.RULE,
    gpu_slowed.RULE,
    graph_breaks.RULE,
    launch_bound.RULE,
    loader_stall.RULE,
    pageable_copies.RULE,
    profiler_overhead.RULE,
    recompiles.RULE,
    slow_cpu_code.RULE,
    stragglers.RULE,
    sync_in_step.RULE,
)
