"""What the chapter fused_mlp shows and claims, in the order of its page.

traffic.py     the bytes of a forward, and why the compiler moves them
single.py      a pointwise kernel, and a Linear with its activation
halves.py      two matmuls in one kernel
turns.py       who works when: a scheme without measured times
residency.py   what the kernels take of a multiprocessor, and their tiles
ideas.py       what each idea is worth, and what tuning chooses
forward.py     the whole forward, and QuACK's
shapes.py      other shapes, on the GPU and from Python, and the first call at a new one
in_use.py      errors, training, the package, and the exercises
"""

from snippets.fused_mlp.findings import forward, halves, ideas, in_use, residency, shapes, single, traffic

PARTS = (traffic, single, halves, residency, ideas, forward, shapes, in_use)
