"""Builds the site as `make docs` does and serves it as a project page: below a folder, with its own 404 page."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from snippets.lab.page.nav import chapters_in_nav
from tests.book.test_docs import CONFIG, nav_pages

ROOT = Path(__file__).resolve().parents[2]
BELOW = "/profiling-pytorch"
"""Where a project page lives on its host. Links that forget it lead out of the site, and the tests see it."""
SITE_URL = f"https://example.org{BELOW}/"
PAGES = {
    name: "" if name == "index" else name.removesuffix("/index") + "/"
    for name in (page.rpartition(".")[0] for page in nav_pages(CONFIG["nav"]))
}
"""Name -> address below the site's, for every page in nav."""
OWN_NUMBERS = dict.fromkeys(("DEVICE", "RECORDINGS", "SAMPLE"), "")
"""The book as it is committed, whatever this machine shows otherwise."""
BUILT = "" if any(map(os.environ.get, OWN_NUMBERS)) else os.environ.get("BUILT_SITE", "")
"""The folder, if any, in which `make check` has just built the book at this address."""
CHAPTERS = list(chapters_in_nav((ROOT / "mkdocs.yml").read_text(encoding="utf-8")))


@dataclass(frozen=True)
class Site:
    """A built site that can be visited."""

    folder: Path
    url: str
    """Ends in a slash."""


def build(folder: Path) -> Path:
    """The folder of the book: `BUILT`, or this empty one, once it is built. Raises `RuntimeError` with what it says."""
    if BUILT:
        return ROOT / BUILT
    python(ROOT, "mkdocs", "build", "--strict", "--clean", "--site-dir", str(folder))
    python(ROOT, "snippets.lab", "finish", str(folder))
    return folder


def python(root: Path, *arguments: str) -> str:
    """The output of `python -m arguments` in the folder `root`."""
    command = [sys.executable, "-m", *arguments]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "SITE_URL": SITE_URL, **OWN_NUMBERS}
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return done.stdout


class Pages(SimpleHTTPRequestHandler):
    """A static host: files below `BELOW`, the site's own page for what is missing there, nothing elsewhere."""

    protocol_version = "HTTP/1.1"

    def translate_path(self, path: str) -> str:
        """The file at an address below `BELOW`."""
        return super().translate_path(path.removeprefix(BELOW))

    def send_head(self) -> BinaryIO | BytesIO | None:
        """Answer with the file, or with 404.html under the status that a host gives it."""
        if not self.path.startswith(f"{BELOW}/"):
            self.send_error(HTTPStatus.NOT_FOUND)
            return None
        if Path(self.translate_path(self.path)).exists():
            return super().send_head()
        content = (Path(self.directory) / "404.html").read_bytes()
        self.send_response(HTTPStatus.NOT_FOUND)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        return BytesIO(content)

    def end_headers(self) -> None:
        """Let the browser keep what it has got for a while, as hosts of project pages do."""
        self.send_header("Cache-Control", "max-age=600")
        super().end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing: what goes wrong is seen in the browser."""


@contextmanager
def served(folder: Path) -> Iterator[Site]:
    """The site in `folder`, at an address of its own."""
    with listening(partial(Pages, directory=str(folder))) as origin:
        yield Site(folder, f"{origin}{BELOW}/")


@contextmanager
def listening(handler: Callable[..., BaseHTTPRequestHandler]) -> Iterator[str]:
    """A web server on a free port of the loopback address; yields its origin."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
