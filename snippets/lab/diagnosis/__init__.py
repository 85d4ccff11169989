"""What is slow in a trace, why, and what mending it could buy at most.

rule.py         the types: rule, finding, what a trace cannot tell
facts.py        what several rules ask of a trace, computed once: steps, sites, who waits for whom, ceilings
gaps.py         the gaps of the GPU in a step by cause
cpu_states.py   what the CPU does at each time: waiting, loading, compiling, launching, ...
sites.py        operator, module and line of Python around an event
intervals.py    sets of times, exact in nanoseconds
collectives.py  kernels of NCCL and RCCL, and what of them nothing hides
peaks.py        what GPUs can do at most, from datasheets
places.py       where GPU work comes from: operator, annotation, module, line
waste.py        what a rule finds avoidable in each step, and the finding that it adds up to
fusing.py       elementwise kernels that one kernel could replace
products.py     kernels of matrix products, their units and the least time they need
amounts.py      times, shares and counts as text
sources.py      whose rules these are, and the options of the profiler that record what they need
peaks.py        what GPUs can do at most, from datasheets
places.py       where GPU work comes from: operator, annotation, module, line
waste.py        what a rule finds avoidable in each step, and the finding that it adds up to
fusing.py       elementwise kernels that one kernel could replace
products.py     kernels of matrix products, their units and the least time they need
rules/          the rules, a file each
pages.py        which page of the book shows what a rule finds
diagnose.py     runs all rules: findings, worst first, and what the trace cannot tell

Imports trace, and no other package of the lab.
"""
