"""The command `serve`: the site while it is written."""

from __future__ import annotations

import argparse

HELP = "show the site while you write, following what you save: make serve"
DESCRIPTION = """\
Build the site into a temporary folder and serve it on this machine. A page is built again when its text, its code or
its recordings are saved. What breaks a rule of pages is printed with page and line. Ctrl-C ends it.

  python -m snippets.lab serve --sample rmsnorm   a chapter that nobody recorded, with numbers that its tests make up
  python -m snippets.lab serve --port 8001
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `serve`."""
    parser.add_argument("--port", type=int, default=8000, help="port (default 8000)")
    parser.add_argument(
        "--sample", default="", metavar="CHAPTER", help="show it from tests/chapters/CHAPTER/samples.py"
    )


def command(arguments: argparse.Namespace) -> int:
    """Serve the site until Ctrl-C."""
    from snippets.lab.tools.preview import serve_preview  # needs MkDocs, which a reader's trace does not

    return serve_preview(arguments.port, arguments.sample)
