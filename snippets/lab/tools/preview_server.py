"""Filter the requests to the preview of `serve`, and its log: requests of this machine for pages, printable
characters."""

from __future__ import annotations

import logging
import re
import sys

from mkdocs.livereload import LiveReloadServer

from kinetoscope.terminal import print_error
from kinetoscope.trace.text import printable

MAX_PATH_BYTES = 1000
_THIS_MACHINE = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:\d{1,5})?", re.IGNORECASE)


class PreviewServer(LiveReloadServer):
    """MkDocs' server without its tracebacks."""

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore disconnects; print other errors in one line."""
        error = sys.exception()
        if not isinstance(error, ConnectionError | TimeoutError):
            print_error(f"{type(error).__name__}: {error}")


class PrintableFormatter(logging.Formatter):
    """Escapes possible terminal commands: MkDocs logs requests unchanged."""

    def format(self, record: logging.LogRecord) -> str:
        """The lines of a record."""
        return "\n".join(map(printable, super().format(record).split("\n")))


def is_plain(host: str, path: str) -> bool:
    """Whether a request, with its path as in WSGI, names this machine and may name a page.

    Another site could point its own name at this address. The port is not compared, since a tunnel may have another
    port.
    """
    if not _THIS_MACHINE.fullmatch(host) or not path.startswith("/") or len(path) > MAX_PATH_BYTES:
        return False
    try:
        name = path.encode("latin-1").decode("utf-8")
    except UnicodeError:
        return False
    parts = name[1:].removesuffix("/").split("/")
    return name == "/" or (name.isprintable() and "\\" not in name and not {"", ".", ".."} & set(parts))
