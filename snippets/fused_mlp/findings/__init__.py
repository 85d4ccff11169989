"""The figures and claims of the chapter fused_mlp, in the order of its page.

traffic.py         the bytes of a forward, and why the compiler moves them
first_kernels.py   a pointwise kernel, a Linear with its activation, two matmuls in one
residency.py       the schedule of the warps, the resources of a multiprocessor, and the tiles
ideas.py           the gain of each idea, the choices of tuning
forward.py         the whole forward, and QuACK's
launching.py       dependent launch in traces, and the CPU's part of a call
shapes.py          other shapes, on the GPU and from Python, and the first call at a new one
in_use.py          errors, training, the package, and the exercises
"""

from snippets.fused_mlp.findings import first_kernels, forward, ideas, in_use, launching, residency, shapes, traffic

PARTS = (traffic, first_kernels, residency, ideas, forward, launching, shapes, in_use)
