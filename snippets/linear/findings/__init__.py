"""What the chapter linear shows and claims: one layer is one kernel, and all the rest happens on the CPU.

layer.py  what a forward is made of: the claims L of the series' second post
costs.py  what it costs, eager and compiled, at two shapes and with more and more rows: our own claims O-L
"""

from snippets.linear.findings import costs, layer

PARTS = (layer, costs)
