"""The command `report`: any trace as one HTML file with a diagnosis; several as a comparison.

command.py    the command: reads, writes the file or JSON
subject.py    a trace read, summarized and diagnosed; its JSON
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
ranks_html.py  ranks side by side
"""
