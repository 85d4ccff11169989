"""The figures and claims of the page on what each row means. R are our own."""

from snippets.trace_rows.findings import compiled, gpu, launches, rows

PARTS = (rows, gpu, launches, compiled)
