"""Profiler traces as data, and functions that analyze them.

errors.py          a trace is unusable
events.py          the types: trace, step, op, CUDA call, GPU activity
kineto.py          reads a profiler file, with progress.py for its progress
content.py         the text of a file: plain, gzip, UTF-16, from a pipe
json_events.py     splits the text into events, without holding it; json_repair.py mends what is no JSON
kineto_events.py   the event fields that kinetoscope uses
decoding.py        decodes events, together or one by one, into the lists of kept_events.py
metadata.py        the trace's GPUs and rank
left_out.py        counts damaged events, which are left out
damage.py          leaves out events at impossible times
runaways.py        cuts durations that reach over later events
device_rows.py     waits for streams and counters, which some profilers record
foreign.py         names files and events of other tools
assembly.py        builds a trace: nesting, launches with linking.py, merged ranks with processes.py
shapes.py          shapes and types of an operator's inputs
steps.py           finds the steps by the marks of marks.py, and the work outside all steps
annotations.py     steps from annotations and optimizers, with process_events.py for the events of a process
step_kinds.py      tells kinds of step apart: prefill and decode, training and validation
loops.py           finds the iterations of an unmarked loop by launches that repeat, with multisets.py
loop_launches.py   the launches of a thread in their order, for loops.py
tokens.py          recognizes a step that produces one token
replays.py         gives the work of CUDA graph replays the operators of their capture
communication.py   which GPU work communicates, and what it does; identity.py finds it around a launch
intervals.py       sets of times, exact in nanoseconds
queries.py         busy and idle time, waits, copies, whether steps agree, which step to show
missing_gpu.py     why a trace has no kernels, or launches have none
soundness.py       what a file lost, and whether times per step can be judged
averages.py        the rows of `key_averages()`
occupancy.py       how many blocks of a kernel fit on a multiprocessor
work.py            FLOPs and bytes of an activity, computed from its operator's inputs
lanes.py           a step as lanes of slices, for the timeline
placing.py         the events of a step in rows, for lanes.py
alignment.py       aligns two steps kernel by kernel
kernel_names.py    decodes a kernel name, with kernel_grammar.py and kernel_grammar.json
totals.py          a trace in numbers: means and medians of its steps
summaries.py       the types of these numbers, and the document that holds them
summary.py         the command `summary`: prints them as one table
documents.py       what the JSON documents of all commands share: version, cut lists, text
text.py            makes names printable and short
units.py           values with their units as text

Imports no other room of kinetoscope.
"""
