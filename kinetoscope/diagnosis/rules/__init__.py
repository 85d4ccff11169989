"""The rules, a file each; `RULES` has them in the order of their names, and each is in a leaf of symptoms.py.

allocator_in_step.py      memory is allocated from the driver inside a step
cache_maximum.py          attention that reads an almost empty cache to its end
exposed_communication.py  collectives that no other GPU work hides
exposed_copies.py         copies between host and GPU that no kernel hides
first_step.py             the first step takes much longer than the others
float64_kernels.py        float64 by accident
garbage_collection.py     Python collects garbage inside a step
gpu_bubbles.py            a GPU of a process is idle while another GPU works
gpu_slowed.py             the same kernels take much longer in some steps: the GPU is throttled or shared
graph_breaks.py           torch.compile splits a function
growing_cache.py          a cache of keys and values copied for every token
host_reads.py             values of every token that the host reads
launch_bound.py           the GPU waits for launches
layout_conversions.py     convolutions that convert the layout of their tensors
memory_rate.py            a token far from the memory's rate
loader_stall.py           the step waits for data
needless_copies.py        copies that change neither values nor type
no_tensor_cores.py        products on the ordinary units
optimizer_loop.py         an optimizer that updates one parameter after the other
pageable_copies.py        copies from pageable memory to the GPU
profiler_overhead.py      the profiler itself takes much of the step
prompt_logits.py          logits of all positions of a prompt
recompiles.py             torch.compile or Triton compiles inside a step
repeated_heads.py         keys and values copied for all query heads
slow_cpu_code.py          the GPU waits for slow code on the CPU
slow_products.py          products far below the roof of their shape
slow_python.py            long times outside operators, on the CPU
small_copies.py           many small copies
stragglers.py             one rank is late and the others wait for it
sync_in_step.py           the CPU waits for the GPU inside a step
tiny_kernels.py           many tiny kernels
tiny_operators.py         thousands of tiny operators, on the CPU
type_round_trips.py       tensors converted to another type and back
unfused_attention.py      attention that writes its scores to memory
unfused_elementwise.py    elementwise kernels in a row
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from kinetoscope.diagnosis.rule import Rule

RULES: tuple[Rule, ...] = tuple(
    import_module(f"{__name__}.{name}").RULE for name in sorted(found.name for found in iter_modules(__path__))
)
