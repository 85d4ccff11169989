"""The functions that pages call: pieces `piece(device, subject, caption, *, options)`, which `show` frames in a fence.

frame.py        show, provenance
verdict.py      verdicts, the list of claims at a section's end, marks at figures
sections.py     puts these lists and marks into a page's HTML
machine.py      CPU, settings of the GPU, throttling, other programs, what was disturbed
waiting.py      the opening figure of a chapter: how long one step keeps you waiting, and for whom
tables.py       kernels of a step, the profiler's table, variants, sweeps, the dispatch tree
timeline.py     steps of recordings on one time scale, with buttons for the whole traces
ranks.py        the ranks of an experiment on several GPUs: bars, a table, one step on one time axis
across.py       the same figures on every recorded device
race.py         a race of variants: interleaved, steady and from Python side by side
rates.py        FLOP/s and bytes/s in a cell, as percentages of the ceilings
diff.py         the differences between two steps
guesses.py      questions with a measured answer
predictions.py  guesses after a computed value
mends.py        a mend as a diff of two measured functions
faults.py       what pages on planted faults share: opening bars, a rule's cells, sizes
disturbed.py    what was disturbed while it was timed: a line below pieces, a banner, a mark on figures
sample.py       the banner above made-up numbers in a preview
install.py      shell lines that install kinetoscope from the site's wheel
signatures.py   a table of the functions that a page can call
inline.py       `#!fig` and `#!src` in a sentence
kernel_name.py  a decoded kernel name with a button for the raw name
ledger.py       every claim on every device
glossary.py     the book's terms
fences.py       executed fences
kept.py         HTML kept from one build to the next
nav.py          the chapters in the order of mkdocs.yml
hanging.py      the indentation of wrapped lines of code on narrow screens
last.py         a Markdown extension for the last changes to a page's HTML

Imports charts, finding and recording, and kinetoscope; never notebooks, tools or capture.
"""

from snippets.lab.charts.bar_charts import (
    bytes_moved as bytes_moved,
    cpu_gpu_bars as cpu_gpu_bars,
    kernel_bars as kernel_bars,
    stacked_bars as stacked_bars,
    timing_bars as timing_bars,
)
from snippets.lab.charts.curve_charts import regimes as regimes, roofline as roofline, roofline_of as roofline_of
from snippets.lab.charts.curves import RooflinePoint as RooflinePoint
from snippets.lab.charts.floor_charts import floor_bars as floor_bars
from snippets.lab.charts.line_charts import line_chart as line_chart
from snippets.lab.charts.numbers import figure_cell as figure_cell
from snippets.lab.page.across import devices_table as devices_table
from snippets.lab.page.diff import diff_table as diff_table
from snippets.lab.page.faults import fault_bars as fault_bars, rule_cells as rule_cells, size_table as size_table
from snippets.lab.page.frame import provenance as provenance, show as show, warning as warning
from snippets.lab.page.glossary import glossary_terms as glossary_terms
from snippets.lab.page.guesses import (
    guess_choice as guess_choice,
    guess_number as guess_number,
    guess_order as guess_order,
)
from snippets.lab.page.kernel_name import kernel_name_html as kernel_name_html, with_kernel_names as with_kernel_names
from snippets.lab.page.ledger import (
    claims_table as claims_table,
    ledger_list as ledger_list,
    status_counts as status_counts,
)
from snippets.lab.page.mends import mend_diff as mend_diff
from snippets.lab.page.nav import chapter_list as chapter_list
from snippets.lab.page.predictions import Computation as Computation, prediction as prediction
from snippets.lab.page.race import race_bars as race_bars, race_table as race_table
from snippets.lab.page.ranks import rank_bars as rank_bars, rank_lanes as rank_lanes, rank_table as rank_table
from snippets.lab.page.signatures import finding_functions as finding_functions, page_functions as page_functions
from snippets.lab.page.tables import (
    Columns as Columns,
    comparison_table as comparison_table,
    dispatch_tree as dispatch_tree,
    kernel_table as kernel_table,
    profiler_table as profiler_table,
    sweep_table as sweep_table,
    variants_table as variants_table,
)
from snippets.lab.page.timeline import timeline as timeline
from snippets.lab.page.verdict import verdicts as verdicts
from snippets.lab.page.waiting import waiting as waiting
