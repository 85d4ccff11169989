"""The figures and claims of the page on the meaning of each row. Claims with R are the book's own."""

from snippets.trace_rows.findings import collectives, compiled, gpu, launches, rows

PARTS = (rows, gpu, launches, collectives, compiled)
