"""The figures and claims of the chapter regimes, in the order of its pages.

growth.py    where time goes as work grows: the crossovers
launches.py  what launch overhead is and what removes it
"""

from snippets.regimes.findings import growth, launches

PARTS = (growth, launches)
