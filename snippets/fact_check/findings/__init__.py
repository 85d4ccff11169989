"""The figures and claims of the fact check: what others said about the series, held against the recordings."""

PARTS = ()
