"""Commands for who works on the book: archives, a new chapter, a preview, a trace in Perfetto.

Imports every other room.
"""
