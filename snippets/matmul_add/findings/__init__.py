"""What the chapter matmul_add shows and claims. P are claims of the series' first post, O-M our own.

overhead.py  how its traces are read; kernels, totals, and what limits a step at which size
steps.py     steps that a trace holds, and why the first ones differ
dispatch.py  who calls whom, what CUDA is asked, how long the CPU waits
compiled.py  one matmul's times, and what became of the step when it was compiled
costs.py     what compiling costs and saves, and what a single row b does
"""

from snippets.matmul_add.findings import compiled, costs, dispatch, overhead, steps

PARTS = (overhead, steps, dispatch, compiled, costs)
