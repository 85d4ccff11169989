"""Chapters of which one experiment after the other goes wrong; `capture` is given `package="tests.lab.broken"`."""
