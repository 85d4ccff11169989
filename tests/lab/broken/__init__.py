"""Chapters whose experiments fail one after the other; `capture` gets `package="tests.lab.broken"`."""
