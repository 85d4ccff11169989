"""What a page is made of. Each piece is `piece(device, subject, caption, *, options)`; `show` frames it in a fence.

frame.py        show, provenance, verdicts
tables.py       kernels of a step, the profiler's table, variants, sweeps, the dispatch tree
rates.py        FLOPs and bytes a second in a cell, beside the ceilings
diff.py         what changed between two steps
guesses.py      a question whose answer is measured
sample.py       the banner above made-up numbers of a preview
signatures.py   what a page can call, as a table
inline.py       `#!fig` and `#!src` in a sentence
kernel_name.py  a decoded kernel name, with the raw one a click away
ledger.py       every claim on every device
glossary.py     the book's terms
nav.py          the chapters in the order of mkdocs.yml
last.py         a Markdown extension: what a page's HTML gets last

Imports drawing, finding, recording, trace and html. Never notebooks or tools, and never capture.
"""

from snippets.lab.drawing.bar_charts import bytes_moved, cpu_gpu_bars, kernel_bars, stacked_bars, timing_bars
from snippets.lab.drawing.curve_charts import regimes, roofline, roofline_of
from snippets.lab.drawing.curves import RooflinePoint
from snippets.lab.drawing.numbers import figure_cell
from snippets.lab.drawing.timeline import timeline
from snippets.lab.page.diff import diff_table
from snippets.lab.page.frame import provenance, show, verdicts, warning
from snippets.lab.page.glossary import glossary_terms
from snippets.lab.page.guesses import guess_choice, guess_number, guess_order
from snippets.lab.page.kernel_name import kernel_name_html, with_kernel_names
from snippets.lab.page.ledger import claims_table, ledger_table, status_counts
from snippets.lab.page.nav import chapter_list
from snippets.lab.page.signatures import finding_functions, page_functions
from snippets.lab.page.tables import (
    Columns,
    comparison_table,
    dispatch_tree,
    kernel_table,
    profiler_table,
    sweep_table,
    variants_table,
)

__all__ = [
    "Columns",
    "RooflinePoint",
    "bytes_moved",
    "chapter_list",
    "claims_table",
    "comparison_table",
    "cpu_gpu_bars",
    "diff_table",
    "dispatch_tree",
    "figure_cell",
    "finding_functions",
    "glossary_terms",
    "guess_choice",
    "guess_number",
    "guess_order",
    "kernel_bars",
    "kernel_name_html",
    "kernel_table",
    "ledger_table",
    "page_functions",
    "profiler_table",
    "provenance",
    "regimes",
    "roofline",
    "roofline_of",
    "show",
    "stacked_bars",
    "status_counts",
    "sweep_table",
    "timeline",
    "timing_bars",
    "variants_table",
    "verdicts",
    "warning",
    "with_kernel_names",
]
