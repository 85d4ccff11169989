"""What the chapter linear shows and claims. L are claims of the series' second post, O-L our own."""

from snippets.linear.findings import costs, layer

PARTS = (layer, costs)
