"""Which section of the book shows the fault that a rule finds: name of the rule -> `page/#section` below the site.

A rule that is missing here finds a fault that no chapter shows.
"""

from __future__ import annotations

PAGES: dict[str, str] = {
    "allocator-in-step": "training_step/#allocator-in-the-step",
    "first-step": "training_step/#cold-measurements",
    "gpu-slowed": "measuring/#who-else-is-on-the-gpu",
    "graph-breaks": "training_step/#graph-breaks",
    "launch-bound": "matmul_add/#is-the-step-bound-by-overhead-or-by-the-gpu",
    "loader-stall": "training_step/#a-loader-that-stalls",
    "needless-copies": "training_step/#layout-copies",
    "no-tensor-cores": "training_step/#no-tensor-cores",
    "optimizer-loop": "training_step/#optimizer-as-a-loop",
    "pageable-copies": "training_step/#pageable-copies",
    "profiler-overhead": "matmul_add/#why-does-the-gpu-lane-lag-behind-the-cpu-lane",
    "recompiles": "training_step/#recompilation",
    "slow-products": "training_step/#no-tensor-cores",
    "sync-in-step": "training_step/#item-in-every-step",
    "tiny-kernels": "training_step/#thousands-of-tiny-kernels",
    "unfused-attention": "training_step/#attention-written-out",
    "unfused-elementwise": "mlp/#what-is-in-the-fused-kernel",
}
