"""A substitute for the Hub's kernels-community/liger-kernels if the Hub cannot be reached."""

from . import layers

__all__ = ["layers"]
