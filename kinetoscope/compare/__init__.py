"""What changed between two traces, or between two groups of runs.

compare.py     what changed: by kernel, by cause
same_steps.py  which steps compare, where nothing marks steps in one of the traces
noise.py       whether two samples of times differ beyond their noise
comparison.py  ... as sections of a report and as JSON
cpu.py         what changed where there is no GPU work: by operator
cpu_parts.py   ... as text, sections of a report and JSON
diff.py        the command `diff`, with its gate
"""
