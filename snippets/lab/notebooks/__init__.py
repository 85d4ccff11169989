"""docs/labs/: notebooks run, stored, and listed.

Imports capture, page, recording and below.
"""
