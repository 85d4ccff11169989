"""The figures and claims of the chapter regimes, in the order of its pages.

growth.py     where time goes as work grows: the crossovers
launches.py   what launch overhead is and what removes it
compiling.py  compile modes: what they cost and win
fusing.py     where fusion does not win
spilling.py   a kernel made to spill
"""

from snippets.regimes.findings import compiling, fusing, growth, launches, spilling

PARTS = (growth, launches, compiling, fusing, spilling)
