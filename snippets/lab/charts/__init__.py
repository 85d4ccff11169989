"""Charts of recordings as inline SVG, each with a table of its numbers below.

bar_charts.py    kernels, bytes, CPU beside GPU, timings; bars.py draws them
curve_charts.py  roofline and regimes; roofline.py and curves.py draw them
line_charts.py   figures over sizes, below limits that do not grow
floor_charts.py  bars from a computed floor up, in HTML
svg.py           a matplotlib figure as SVG in the page's colors
axis.py          the axis of a bar chart as data, for the script that draws the guess into it
numbers.py       common parts of charts: id, frame, table of numbers

Imports finding and recording, and kinetoscope.
"""
