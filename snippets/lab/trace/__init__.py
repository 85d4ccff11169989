"""Profiler traces as data, and functions that analyze them.

events.py          the types: trace, step, op, CUDA call, GPU activity
kineto.py          reads a profiler file
kineto_events.py   decodes the event fields that the lab uses
assembly.py        links events: nesting, launches, steps
queries.py         busy and idle time, overlapping kernels, whether steps agree, which step to show
averages.py        what `key_averages()` computes
occupancy.py       how many blocks of a kernel fit on a multiprocessor
work.py            FLOPs and bytes of an activity, computed from its operator's inputs
lanes.py           a step as lanes of slices, for the timeline
alignment.py       aligns two steps kernel by kernel
kernel_names.py    decodes a kernel name, with kernel_grammar.py and kernel_grammar.json
summary.py         the command `summary`: a trace in one table
text.py            makes names printable and short
units.py           values with their units as text

Imports no other package of the lab.
"""
