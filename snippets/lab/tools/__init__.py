"""Commands for authors of the book. kinetoscope has the commands for any trace.

listing.py      list: experiments and the state of their recordings
record.py       record: measures on this machine's GPUs; refusals.py keeps what they refused
estimates.py      how long recording takes, in words
archive.py      import: packs, checks and unpacks recordings
run.py          run: profiles one experiment here
trial.py        try: runs experiments once and says what fails, before they are recorded
claims.py       claims: prints the ledger
scaffold.py     chapter: writes the files of a new chapter, from scaffold.txt
serve.py        serve: previews the site; preview.py builds and serves it, preview_errors.py prints its errors
page_rules.py   rules of pages that MkDocs does not check
chapter_rules.py   the shape of a chapter: its guesses, what they veil, how sections end
page_text.py    parses a page's Markdown for the rules
prepare.py      prepare: the first step of make docs
finish.py       finish: the last step of make docs, on the site that MkDocs built, with
search.py         the search index, improved
set_aside.py      content that pages hold back, moved into files
llms.py           llms.txt, the pages with a sentence each
trim_styles.py    style sheets without rules that style nothing
trace_reader.py   Python for browsers, for the page that reads traces
check_site.py     the gate: links, fences, requests, scripts; built_page.py and policy.py read a page
wheel.py        wheel: builds the wheel and the sdist of kinetoscope
environment.py  whether this Python has what a target needs; the locks

Imports every other room.
"""
