"""Stands in for the Hub's kernels-community/liger-kernels where the Hub cannot be reached."""

from . import layers

__all__ = ["layers"]
