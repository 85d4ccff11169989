"""Which section of the book shows the fault that a rule finds: name of the rule -> `page/#section` below the site.

A rule that is missing here finds a fault that no chapter shows.
"""

from __future__ import annotations

PAGES: dict[str, str] = {
    "first-step": "matmul_add/#why-does-the-gpu-lane-lag-behind-the-cpu-lane",
    "gpu-slowed": "measuring/#who-else-is-on-the-gpu",
    "launch-bound": "matmul_add/#is-the-step-bound-by-overhead-or-by-the-gpu",
    "needless-copies": "attention/#what-does-attention-launch",
    "no-tensor-cores": "attention/#what-does-pytorchs-own-launch",
    "profiler-overhead": "matmul_add/#why-does-the-gpu-lane-lag-behind-the-cpu-lane",
    "recompiles": "mlp/#what-happens-when-the-shape-changes",
    "sync-in-step": "matmul_add/#why-is-cudadevicesynchronize-so-long",
    "unfused-attention": "attention/#what-does-one-kernel-save",
    "unfused-elementwise": "mlp/#what-is-in-the-fused-kernel",
}
