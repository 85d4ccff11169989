"""Pictures as SVG that is part of a page: timelines and charts, each with its numbers as a table beneath.

timeline.py   steps on one time scale, on canvas.py
charts.py     kernels, CPU beside GPU, bytes, roofline, regimes: drawn by bars.py and curves.py
svg.py        a matplotlib figure as SVG in the page's colors

Imports finding, recording, trace and html.
"""
