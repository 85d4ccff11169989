"""Recordings: all that crosses from measuring to showing. Above it torch and a GPU, below it neither.

schema.py     what a recording holds
device.py     devices by name, and where their recordings are
loading.py    recordings and traces, read and checked
saving.py     written atomically
digest.py     whether a recording still describes the code
scrub.py      paths and host names cut out
ceilings.py   the rates of a session's ceilings

Imports trace.
"""
