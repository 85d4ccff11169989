"""Find what is slow in a trace, why, and the most that a fix can save.

rule.py         the types: rule, finding, and a rule that the trace cannot answer
step_facts.py   facts about the steps: the median step, kinds, warm-up, times per step
facts.py        facts that several rules need, computed once: sites, who waits for whom, possible savings
per_step.py     times of steps, and what a thing takes per step if it is not in all of them
start_up.py     the calls that start the GPU's runtime
idle.py         the GPU's idle time in all steps and between them
missing.py      reasons why whole rules cannot tell, in the same words
gaps.py         the gaps of the GPU in a step by cause
gpu_use.py      how the steps use their GPUs: each GPU's work and bubbles, kernels, copies that no kernel hides
cpu_states.py   the state of the CPU at each time: waiting, loading, compiling, launching, ...
cpu_times.py    the CPU's time in steps by state, operator and Python function
cpu_loops.py    short operators in a row on the CPU, as loops in Python run them
memory.py       what a device's memory holds at its peak, by operator, line and kind
sites.py        the place of an event: operators, annotation, module and line of Python around it
waste.py        avoidable work that a rule finds in each step, and the finding that sums it up
fusing.py       elementwise kernels that one kernel could replace
products.py     kernels of matrix products, their units and the least time they need
token_work.py   what a step that produces one token reads: products, keys and values
peaks.py        peak rates of GPUs, from datasheets
amounts.py      times, shares and counts as text
sources.py      the origins of rules, and the profiler options that record what rules need
rules/          the rules, a file each
pages.py        the page of the book that shows a rule's fault
symptoms.py     the tree from a symptom in a trace to its cause, over the same rules
diagnose.py     runs all rules: findings, the largest saving first, and questions that the trace cannot answer

Imports trace, and no other room of kinetoscope.
"""
