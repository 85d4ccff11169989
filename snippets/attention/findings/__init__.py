"""The figures and claims of the chapter attention, in the order of its page.

variants.py   the variants, and the kernels of the written-out ones
backends.py   the kernels of PyTorch's own backends
traffic.py    the bytes that each variant moves, and the compiled step
speed.py      occupancy, and times at one shape
growing.py    longer sequences and wider heads
decoding.py   one new query for each head
steps.py      training, errors
live.py       values computed while the page is built
"""

from snippets.attention.findings import backends, decoding, growing, speed, steps, traffic, variants

PARTS = (variants, backends, traffic, speed, growing, decoding, steps)
