"""The figures and claims of the chapter regimes, in the order of its pages.

crossovers.py sizes at which one regime gives way to the next
growth.py     where time goes as work grows
launches.py   what launch overhead is and what removes it
compiling.py  compile modes: what they cost and win
paying.py     calls until a compilation has paid for itself
generated.py  guards, generated code, what max-autotune chose from
shapes.py     what a new number of tokens costs
fusing.py     where fusion does not win
spilling.py   a kernel made to spill
caching.py    whether GELU reads from memory
"""

from snippets.regimes.findings import caching, compiling, fusing, generated, growth, launches, paying, shapes, spilling

PARTS = (growth, launches, compiling, paying, generated, shapes, fusing, spilling, caching)
