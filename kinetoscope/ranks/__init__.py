"""Ranks of a job: each trace reduced to a small file, merged in any order, and compared."""
