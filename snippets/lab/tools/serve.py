"""The command `serve`: preview the site while you write."""

from __future__ import annotations

import argparse

DESCRIPTION = """\
Build the site into a temporary folder and serve it on this machine. Saving a page's text, code or recordings builds
the page again. Violations of the rules of pages are printed with page and line. Ctrl-C stops it.

  python -m snippets.lab serve --sample rmsnorm   an unrecorded chapter, with sample numbers from its tests
  python -m snippets.lab serve --port 8001
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `serve`."""
    parser.add_argument("--port", type=int, default=8000, help="port (default 8000)")
    parser.add_argument(
        "--sample", default="", metavar="CHAPTER", help="show sample numbers from tests/chapters/CHAPTER/samples.py"
    )


def command(arguments: argparse.Namespace) -> int:
    """Serve the site until Ctrl-C."""
    from snippets.lab.tools.preview import serve_preview  # here: needs MkDocs, which the other commands do not

    serve_preview(arguments.port, arguments.sample)
    return 0
