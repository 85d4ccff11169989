"""The figures and claims of the chapter matmul_add. P are claims of the series' first post, O-M our own."""

from snippets.matmul_add.findings import compiled, costs, dispatch, overhead, steps

PARTS = (overhead, steps, dispatch, compiled, costs)
