"""Commands for whoever works on the book. A command about any trace is in the room trace.

listing.py      list: experiments and the state of their recordings
record.py       record: measures on this machine's GPU
archive.py      import: recordings packed, checked, unpacked
run.py          run: one experiment profiled here
viewer.py       open: a trace in Perfetto
claims.py       claims: the ledger
scaffold.py     chapter: the files of a new chapter, from scaffold.txt
serve.py        serve: the site while it is written, by preview.py; its errors by preview_errors.py
page_rules.py   rules of pages that MkDocs does not check
page_text.py    a page's Markdown taken apart, for the rules
prepare.py      prepare: what make docs does first

Imports every other room.
"""
