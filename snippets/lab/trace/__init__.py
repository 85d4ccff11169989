"""Any profiler trace as data, and what it says: the ground of the lab.

events.py          a trace, its steps, ops, calls and GPU activities
kineto.py          reads a file of the profiler
kineto_events.py   which fields of its events are read
assembly.py        links them: nesting, launches, steps
queries.py         busy and idle time, whether steps agree, which step to show
averages.py        what `key_averages()` computes
occupancy.py       how many blocks of a kernel fit on a multiprocessor
work.py            FLOPs and bytes of an activity, where the trace tells
lanes.py           what of a step stands where in time
alignment.py       two steps aligned, kernel by kernel
kernel_names.py    a kernel's name taken apart, by kernel_grammar.py and kernel_grammar.json
summary.py         a trace in one table: the command `summary`
text.py            names made printable and short

Imports no other room.
"""
