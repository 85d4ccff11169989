"""The figures and claims of the page on wrong captures. Claims with C are the book's own."""

from snippets.capture_faults.findings import captures, dependent

PARTS = (captures, dependent)
