"""The figures and claims of the pages devices and measuring.

gpus.py        the recorded GPUs, what the same steps take on each, and their ceilings
measuring.py   the book's steps below their roof, and what changes a time
"""

from snippets.devices.findings import gpus, measuring

PARTS = (measuring, gpus)
PAGE = "measuring"
