"""Steps of a trace as inline SVG, with a table of their slices.

draw.py          steps on one time scale
canvas.py        the SVG: slices in rows, arrows, the time axis
slice_tables.py  the slices as tables
merging.py       slices too short to see, merged into blocks
strip.py         a step as three rows: operators, calls, the GPU lane
"""
