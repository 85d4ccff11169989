"""What is slow in a trace, why, and what mending it could buy at most.

rule.py         the types: rule, finding, what a trace cannot tell
facts.py        what several rules ask of a trace, computed once: steps, sites, who waits for whom, ceilings
missing.py      what a trace lacks for whole rules, in the same words
gaps.py         the gaps of the GPU in a step by cause
cpu_states.py   what the CPU does at each time: waiting, loading, compiling, launching, ...
sites.py        where an event is: operators, annotation, module and line of Python around it
intervals.py    sets of times, exact in nanoseconds
waste.py        what a rule finds avoidable in each step, and the finding that it adds up to
fusing.py       elementwise kernels that one kernel could replace
products.py     kernels of matrix products, their units and the least time they need
peaks.py        what GPUs can do at most, from datasheets
amounts.py      times, shares and counts as text
sources.py      whose rules these are, and the options of the profiler that record what they need
rules/          the rules, a file each
pages.py        which page of the book shows what a rule finds
symptoms.py     the tree from what a trace shows to its cause, over the same rules
diagnose.py     runs all rules: findings, worst first, and what the trace cannot tell

Imports trace, and no other room.
"""
