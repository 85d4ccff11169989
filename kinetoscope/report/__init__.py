"""The command `report`: any trace as one HTML file with a diagnosis; several traces as a comparison.

command.py           the command: reads, writes the file or JSON
fail_on.py           the exit code of --fail-on
diagnosed.py         a trace read, summarized and diagnosed
site.py              the address of the book, to whose pages findings lead
trace_report.py      its JSON document; finding_rows.py has the findings in it
output.py            where the file is written
document.py          the HTML file: head, sections; drawing.css, style.css, rank_drawing.css, ranks.css and timeline.js
                     inside
headline.py          the first screen: a sentence and four measures
findings.py          the diagnosis: findings, and questions that the trace cannot answer
waiting.py           who waits for whom: when CPU and GPU work
gpus.py              how much the GPUs work: each GPU by itself, kernels apart from copies
drift.py             steps that get longer and longer, and what grows with them
idle_text.py         sentences about the GPU's idle time, in steps and between them
cpu_time.py          the CPU's time, if there is no GPU work
timeline.py          the median step as a drawing
work_tables.py       tables of kernels, operators and collectives
device_rows.py       tables of waits for streams and of counters
places.py            GPU time by module and by source line
memory.py            allocated memory over time and at its peak
memory_growth.py     memory that grows from step to step
counted.py           what was counted, and how the report was made
several.py           several files: the ranks of a job, or two traces to compare; writes digests
ranks_document.py    the JSON document of a report on ranks
ranks_html.py        the report on ranks: measures, and its sections in order
rank_drawing.py      rows, rectangles and axes
rank_bars.py         where each rank's step goes
rank_collectives.py  the collective that costs most, and all of its step
rank_lanes.py        one step of each rank on one time axis; who waits for whom
rank_graph.py        which rank waits for which, as arrows
rank_late.py         why a rank is late, and what not to conclude
rank_findings.py     the findings of each rank's trace, merged
rank_tables.py       the sums of every rank, and all kernels

Imports compare, diagnosis, ranks, timeline and trace; never doctor.
"""
