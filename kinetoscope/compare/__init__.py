"""What changed between two traces, or between two groups of runs.

compare.py     what changed: by kernel, by cause
same_steps.py  which steps compare, where nothing marks steps in one of the traces
damaged.py     what the files lost, so that a gate cannot judge them
noise.py       whether two samples of times differ beyond their noise
comparison.py  ... as sections of a report
cpu.py         what changed where there is no GPU work: by operator
cpu_parts.py   ... as text and sections of a report
document.py    the JSON document of both
diff.py        the command `diff`, with its gate
"""
