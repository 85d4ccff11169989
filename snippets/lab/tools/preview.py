"""`make serve`: the site while it is written.

MkDocs would build every page anew for a comma, and would go on running the code that it has imported once. Here a page
is built when its own text, its chapter's code or its recordings are saved, and otherwise when a browser asks for it and
anything has changed that it may show. Code is imported anew after a change. What is published comes from `mkdocs build`
alone and does not use this.
"""

from __future__ import annotations

import importlib
import logging
import os
import socket
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.exceptions import Abort
from mkdocs.livereload import LiveReloadServer

from snippets.lab.recording.device import PROJECT

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment


HOST = "127.0.0.1"
POLL_S = 0.25
FRAMES = 3
"""Calls printed of an error: the last ones are its author's, those before them are of the tools."""
CONFIG = PROJECT / "mkdocs.yml"
WATCHED = (PROJECT / "docs", PROJECT / "snippets", CONFIG)


class Preview:
    """A site that is built into a folder of its own and served from there, page by page."""

    def __init__(self, site: Path, port: int) -> None:
        self.site = site
        self.port = port
        self.url = f"http://{HOST}:{port}/"
        self.server = LiveReloadServer(self.follow, HOST, port, str(site), polling_interval=POLL_S)
        self.server.set_app(self.respond)
        self._stamps = stamps()
        self._outdated: set[Path] = set()
        """Built pages that may show something that has changed since."""
        self._failed = False
        self._building = threading.Lock()

    def run(self) -> None:
        """Build everything once, then serve and follow changes until Ctrl-C. Raises `OSError` for a port in use."""
        socket.create_server((HOST, self.port)).close()  # fails before the build, not after it
        self.build()
        for path in WATCHED:
            self.server.watch(str(path))
        print(f"{self.url} follows what you save in docs/ and snippets/; Ctrl-C ends it", flush=True)
        try:
            self.server.serve()  # type: ignore[no-untyped-call]
        except KeyboardInterrupt:
            print()
        finally:
            self.server.shutdown()

    def follow(self) -> None:
        """After a change: build the pages it is about, whether or not a browser shows them."""
        with self._building:
            self._refresh()

    def respond(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer a request, with a page as it is now."""
        if environ["PATH_INFO"].endswith("/"):
            with self._building:
                self._refresh(self.site / environ["PATH_INFO"].strip("/") / "index.html")
        return self.server.serve_request(environ, start_response)

    def _refresh(self, *asked: Path) -> None:
        """Build the requested pages and those that a saved file is about, where they are outdated."""
        before, self._stamps = self._stamps, stamps()
        changed = {path for path, _ in before.items() ^ self._stamps.items()}
        if changed:
            print(f"{time.strftime('%H:%M:%S')} changed: {', '.join(sorted(map(str, changed)))}", flush=True)
        shown = {path for path in changed if not (path.parts[0] == "docs" and path.suffix in (".md", ".ipynb"))}
        if shown:
            self._outdated = set(self.site.rglob("index.html"))
        if any(path.is_relative_to("snippets") for path in changed):
            forget(any(path.is_relative_to("snippets/lab") for path in changed))
        due = self._outdated & {*asked, *(self.site / part / "index.html" for path in shown for part in path.parts)}
        if changed or (due and not self._failed):
            self.build(*due)

    def build(self, *pages: Path) -> None:
        """Build these pages, which exist, and those whose text is newer than they are.

        An error is printed once: nothing is built again until the next change.
        """
        self._failed = False
        start = time.perf_counter()
        built = {page: page.stat().st_mtime_ns for page in self.site.rglob("index.html")}
        for page in pages:
            os.utime(page, (0, 0))
        try:
            config = load_config(str(CONFIG), site_dir=str(self.site), site_url=self.url)
            config.plugins.on_startup(command="serve", dirty=True)
            build(config, serve_url=self.url, dirty=True)
        except (Exception, SystemExit) as error:
            self._failed = True
            if not isinstance(error, Abort):  # which MkDocs has printed
                traceback.print_exception(root_of(error), limit=-FRAMES, chain=False)
            print("keeping the old pages; fix the error and save", file=sys.stderr)
            return
        fresh = {page for page in self.site.rglob("index.html") if page.stat().st_mtime_ns != built.get(page)}
        self._outdated -= fresh
        names = ", ".join(sorted(f"{page.parent.relative_to(self.site)}/" for page in fresh)) if built else "all"
        print(f"{time.strftime('%H:%M:%S')} built in {time.perf_counter() - start:.1f} s: {names}", flush=True)


def stamps() -> dict[Path, int]:
    """When each watched file was last changed, in ns, by its path below the root of the project."""
    found = {}
    for top in WATCHED:
        for path in (top, *top.rglob("*")):
            if "__pycache__" in path.parts or path.name.startswith("."):
                continue
            with suppress(OSError):  # what an editor puts aside for a moment is gone again
                if path.is_file():
                    found[path.relative_to(PROJECT)] = path.stat().st_mtime_ns
    return found


def forget(lab: bool) -> None:
    """Import the code of the chapters anew at its next use, and that of the lab, too, if `lab`."""
    for name in [name for name in sys.modules if name.startswith("snippets.")]:
        if lab or name.split(".")[1] != "lab":
            del sys.modules[name]
    importlib.invalidate_caches()
    book = sys.modules.get("snippets.lab.finding.book")
    if book is not None:
        book.findings.cache_clear()
        book.all_claims.cache_clear()


def root_of(error: BaseException) -> BaseException:
    """The first error of a chain."""
    while cause := error.__cause__ or error.__context__:
        error = cause
    return error


def serve_preview(port: int) -> int:
    """Serve until Ctrl-C; 2 if the port is not available."""
    sys.dont_write_bytecode = True  # its time stamps count in seconds, and a second save may come sooner
    logging.getLogger("mkdocs").addHandler(logging.StreamHandler())
    logging.getLogger("mkdocs.commands.build").addFilter(lambda record: "'dirty' build" not in record.getMessage())
    with tempfile.TemporaryDirectory(prefix="preview_") as folder:
        try:
            Preview(Path(folder).resolve(), port).run()
        except (OSError, OverflowError) as error:
            print(f"error: port {port} of {HOST}: {error}. Another one: make serve PORT=8001", file=sys.stderr)
            return 2
    return 0
