"""Read a trace of the PyTorch profiler, and tell what is slow in it, why, and the most that a fix can save.

trace -> diagnosis, ranks, timeline -> compare, report, doctor -> __main__

cells, html, files, program and terminal serve every room; viewer is the command `open`. The package needs msgspec
alone, and imports nothing of the book.
"""

__version__ = "0.1.0"
