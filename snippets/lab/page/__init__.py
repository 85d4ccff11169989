"""What a page is made of: the frame of a fence, tables, guesses, verdicts, inline figures, the ledger.

Imports drawing, finding, recording, trace and html. Never notebooks or tools.
"""
