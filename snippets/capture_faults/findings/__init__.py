"""The figures and claims of the page on what a capture gets wrong. C are our own."""

from snippets.capture_faults.findings import captures, dependent

PARTS = (captures, dependent)
