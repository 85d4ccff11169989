"""Commands for whoever works on the book. A command about any trace is in the room trace.

listing.py    list: experiments and the state of their recordings
record.py     record: measures on this machine's GPU
archive.py    import: recordings packed, checked, unpacked
run.py        run: one experiment profiled here
viewer.py     open: a trace in Perfetto
claims.py     claims: the ledger
scaffold.py   chapter: the files of a new chapter, from scaffold.txt
serve.py      serve: the site while it is written, by preview.py
prepare.py    prepare: what make docs does first
page_rules.py what MkDocs lets pass: fences, sections, typed numbers; of a page taken apart by page_text.py

Imports every other room.
"""
