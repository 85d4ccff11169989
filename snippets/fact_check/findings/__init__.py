"""The figures and claims of the fact check: what others said about the series, held against the recordings.

sources.py  who is quoted
kernels.py  kernels and bytes: structure
sweep.py    a block at many sizes, timed for this page
times.py    speed-ups, launch overhead, and tables for one GPU
facts.py    every claim of the page, and the tally
tables.py   the page's other tables
"""

from snippets.fact_check.findings import facts, kernels, times

PARTS = (kernels, times, facts)
