"""Pictures as SVG that is part of a page: timelines and charts, each with its numbers as a table beneath.

timeline.py      steps on one time scale, on canvas.py
bar_charts.py    kernels, bytes, CPU beside GPU, timings: drawn by bars.py
curve_charts.py  roofline and regimes: drawn by curves.py
svg.py           a matplotlib figure as SVG in the page's colors
numbers.py       what every chart has: an id, a frame, its numbers as a table

Imports finding, recording, trace and html.
"""
