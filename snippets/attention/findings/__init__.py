"""What the chapter attention shows and claims, in the order of its page.

variants.py   the variants, and what the written-out ones launch
backends.py   what PyTorch's own backends launch
traffic.py    the bytes that each moves, and what a compiler finds
speed.py      how full the GPU is, and how fast one shape
growing.py    longer sequences and wider heads
steps.py      decoding, training, errors
live.py       what is run while the page is built
"""

from snippets.attention.findings import backends, growing, speed, steps, traffic, variants

PARTS = (variants, backends, traffic, speed, growing, steps)
