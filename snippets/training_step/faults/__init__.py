"""Faults of training loops, each as a function before and after its fix: the difference of the two is the fix.

waiting.py  the GPU waits for the CPU, for data or for copies, and a clock that does not
working.py  the GPU does more work than it needs to, or the compiler does

Each function takes the device and the sizes of `make_parts`, and yields the loss of each iteration, as `model.train`
does.
"""

from .waiting import *  # noqa: F403
from .working import *  # noqa: F403
