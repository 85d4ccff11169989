"""The command `report`: any trace as one HTML file with a diagnosis; several as a comparison.

command.py    the command: reads, writes the file or JSON
subject.py    a trace read, summarized and diagnosed; its JSON
document.py   the HTML file: head, sections in order, style.css and report.js inside
headline.py   the first screen: a sentence and four measures
findings.py   the diagnosis: findings, and what the trace cannot tell
waiting.py    who waits for whom: when CPU and GPU work
timeline.py   the median step as a drawing
merging.py    slices too short to see, merged into blocks
work_tables.py  tables of kernels, operators and collectives
places.py     GPU time by module and by source line
memory.py     allocated memory over time
counted.py    what was counted, and how the report was made

Imports diagnosis, drawing, trace and html; never recording, finding or page.
"""
