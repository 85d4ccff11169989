"""One new token of each sequence through a decoder layer in five kernels, as a
layer of Transformers' models. It imports nothing of the book.

The kernels and how they are cut are the chapter's: links.
"""

from . import layers

__all__ = ["layers"]
