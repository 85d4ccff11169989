"""The figures and claims of the chapter mlp: a GeGLU block eager, compiled, and with Liger's kernel."""

from snippets.mlp.findings import choices, costs, eager, fused_kernels, fusion

PARTS = (eager, fusion, costs, choices, fused_kernels)
