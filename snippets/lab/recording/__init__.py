"""Recordings: the data that measuring code writes and pages read. Reading one needs neither torch nor a GPU.

schema.py       the fields of a recording
device.py       device names and the paths of their recordings
loading.py      reads and checks recordings and traces
saving.py       writes a recording: its JSON, then its trace
fingerprint.py  whether a recording is stale: a hash of the definitions that its experiment reaches
definitions.py  a file as definitions, with the names that each binds
shape.py        a definition as text, with the names that it uses
effects.py      effects that count as soon as their file is imported
reach.py        names followed from file to file
scrub.py        removes paths and host names
ceilings.py     the names and rates of ceilings
consistency.py  whether the times of one step fit each other

Imports trace.
"""
