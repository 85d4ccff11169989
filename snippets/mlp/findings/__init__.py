"""What the chapter mlp shows and claims: a GeGLU block eager, compiled, and with Liger's kernel.

steps.py        what the steps of all its traces have in common
eager.py        which kernels run, and for which operators
fusion.py       one kernel where there were two: Inductor's, and Liger's
costs.py        how kernels start, memory, the CPU's time, compilations for new shapes
end_to_end.py   what it bought: the whole forward, from one token to many
choices.py      launch configurations, and a width that is a power of two
"""

from snippets.mlp.findings import choices, costs, eager, end_to_end, fusion

PARTS = (eager, fusion, costs, end_to_end, choices)
