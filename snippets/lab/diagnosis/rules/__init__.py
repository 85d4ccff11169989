"""The rules, a file each; `RULES` has them in the order of their names.

allocator_in_step.py      memory is allocated from the driver inside a step
device_to_host_copies.py  copies from the GPU to the host
exposed_communication.py  collectives that no other GPU work hides
first_step.py             the first step is warm-up
garbage_collection.py     Python collects garbage inside a step
gpu_slowed.py             the same kernels take much longer in some steps: the GPU is throttled or shared
graph_breaks.py           torch.compile splits a function
launch_bound.py           the GPU waits for launches
loader_stall.py           the step waits for data
pageable_copies.py        copies from pageable memory to the GPU
profiler_overhead.py      the profiler itself takes much of the step
recompiles.py             torch.compile or Triton compiles inside a step
slow_cpu_code.py          the GPU waits for slow code on the CPU
stragglers.py             one rank is late and the others wait for it
sync_in_step.py           the CPU waits for the GPU inside a step
"""

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
