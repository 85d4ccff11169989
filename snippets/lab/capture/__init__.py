"""Measuring, with torch, on a GPU: the only room that makes recordings.

Imports recording, trace, and the words of experiment.py.
"""
