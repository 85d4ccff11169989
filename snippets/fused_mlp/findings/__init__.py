"""What the chapter fused_mlp shows and claims, in the order of its page.

traffic.py         the bytes of a forward, and why the compiler moves them
first_kernels.py   a pointwise kernel, a Linear with its activation, two matmuls in one
residency.py       who works when in the kernels, what they take of a multiprocessor, and their tiles
forward.py         what each idea is worth and what tuning chooses, the whole forward, and QuACK's
shapes.py          other shapes, on the GPU and from Python, and the first call at a new one
in_use.py          errors, training, the package, and the exercises
"""

from snippets.fused_mlp.findings import first_kernels, forward, in_use, residency, shapes, traffic

PARTS = (traffic, first_kernels, residency, forward, shapes, in_use)
