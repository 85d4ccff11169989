"""The section of the book that shows the fault of a rule: name of the rule -> `page/#section` below the site.

No chapter shows the fault of a rule that is missing here.
"""

from __future__ import annotations

PAGES: dict[str, str] = {
    "allocator-in-step": "training_step_faults/#allocator-in-the-step",
    "exposed-communication": "several_gpus/#data-parallel",
    "exposed-copies": "training_step_faults/#pageable-copies",
    "first-step": "training_step_faults/#cold-measurements",
    "gpu-slowed": "measuring/#who-else-is-on-the-gpu",
    "graph-breaks": "training_step_faults/#graph-breaks",
    "launch-bound": "matmul_add/#is-the-step-bound-by-overhead-or-by-the-gpu",
    "loader-stall": "training_step_faults/#a-loader-that-stalls",
    "needless-copies": "training_step_faults/#layout-copies",
    "no-tensor-cores": "training_step_faults/#no-tensor-cores",
    "optimizer-loop": "training_step_faults/#optimizer-as-a-loop",
    "pageable-copies": "training_step_faults/#pageable-copies",
    "profiler-overhead": "matmul_add/#why-does-the-gpu-lane-lag-behind-the-cpu-lane",
    "recompiles": "training_step_faults/#recompilation",
    "slow-products": "training_step_faults/#no-tensor-cores",
    "stragglers": "several_gpus_faults/#uneven",
    "sync-in-step": "training_step_faults/#item-in-every-step",
    "tiny-kernels": "training_step_faults/#thousands-of-tiny-kernels",
    "unfused-attention": "training_step_faults/#attention-written-out",
    "unfused-elementwise": "mlp/#what-is-in-the-fused-kernel",
}
