"""What is slow in a trace, why, and what mending it could buy at most.

rule.py      the types: rule, finding, what a trace cannot tell
facts.py     what several rules ask of a trace, computed once: the median step, gaps of the GPU by cause
rules/       the rules, a file each
peaks.py     what GPUs can do at most, from datasheets
places.py    where GPU work comes from: operator, annotation, module, line
waste.py     what a rule finds avoidable in each step, and the finding that it adds up to
fusing.py    elementwise kernels that one kernel could replace
products.py  kernels of matrix products, their units and the least time they need
pages.py     which page of the book shows what a rule finds
diagnose.py  runs all rules: findings, worst first, and what the trace cannot tell

Imports trace, and no other package of the lab.
"""
