"""The command `report`: any trace as one HTML file with a diagnosis; several as a comparison.

command.py    the command: reads, writes the file or JSON
diagnosed.py    a trace read, summarized and diagnosed; its JSON
document.py   the HTML file: head, sections in order, style.css and timeline.js inside
headline.py   the first screen: a sentence and four measures
findings.py   the diagnosis: findings, and what the trace cannot tell
waiting.py    who waits for whom: when CPU and GPU work
cpu_time.py   where the CPU's time goes, if there is no GPU work
timeline.py   the median step as a drawing
work_tables.py  tables of kernels, operators and collectives
places.py     GPU time by module and by source line
memory.py     allocated memory over time
counted.py    what was counted, and how the report was made
several.py    which of the two several files are; writes digests
digest.py     a trace reduced to a small file: times, kernels and collectives of a rank
digest_files.py  reads and writes digests
output.py     writes the file that was asked for, whole or not at all
merge.py      merges the digests of ranks, in any order and any tree
ranks.py      ranks side by side: exposed communication, who arrives last; ranks_html.py draws them
noise.py      whether two samples of times differ beyond their noise
compare.py    what changed between two traces or two groups of runs
comparison.py  ... as sections of a report and as JSON
diff.py       the command `diff`, with its gate
part.py       a section of a report

Imports diagnosis, drawing, trace and html; never recording, finding or page.
"""
