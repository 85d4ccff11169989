"""What is slow in a trace, why, and what mending it could buy at most.

rule.py    the types: rule, finding, what a trace cannot tell
facts.py   what several rules ask of a trace, computed once: the median step, gaps of the GPU by cause
rules/     the rules, a file each
pages.py   which page of the book shows what a rule finds
diagnose.py  runs all rules: findings, worst first, and what the trace cannot tell

Imports trace, and no other package of the lab.
"""
