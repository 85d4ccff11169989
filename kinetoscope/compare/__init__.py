"""What changed between two traces, or between two groups of runs.

compare.py     what changed: by kernel, by cause
same_steps.py  which steps compare, where nothing marks steps in one of the traces
noise.py       whether two samples of times differ beyond their noise
comparison.py  ... as sections of a report and as JSON
diff.py        the command `diff`, with its gate
"""
