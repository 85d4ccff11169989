"""The figures and claims of the fact check: what others said about the series, held against the recordings.

sources.py      who is quoted
structure.py    kernels and bytes
compiling.py    compilations and guards
sweep.py        a block at many sizes, timed for this page
times.py        speedups, launch overhead, small batches, the cache
traffic.py      what less traffic buys: a forward, training
block.py        one block: two times on an A100, a table of an H100
datasheet.py    what an A100's datasheet leaves of these two times
statements.py   what each article says, and what came out
values.py       what the value of each claim is
facts.py        the statements with every device's verdicts, and the tally
tables.py       the page's other tables
"""

from snippets.fact_check.findings import block, compiling, datasheet, facts, structure, times, traffic

PARTS = (structure, compiling, times, traffic, block, datasheet, facts)
