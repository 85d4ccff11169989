"""The figures and claims of the chapter linear. L are claims of the series' second post, O-L our own."""

from snippets.linear.findings import costs, layer

PARTS = (layer, costs)
