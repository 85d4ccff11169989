"""docs/labs/: notebooks run, stored and listed.

cells.py     runs their code cells in a process
outputs.py   the outputs that a page can show
files.py     a notebook file: its state, its outputs, the list of all

Imports finding, recording, capture (in the process that runs cells) and the rooms below them.
"""
