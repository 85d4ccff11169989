"""The command `open`: serve one trace to Perfetto in this machine's browser, then stop.

Perfetto is a page that reads a trace in the browser. The server listens on the loopback address only. Its address
cannot be guessed, and the browser hands the reply to no other page than Perfetto's.
"""

from __future__ import annotations

import argparse
import os
import re
import secrets
import shutil
import sys
import threading
import webbrowser
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from kinetoscope.ranks.joined import is_merged, read_ranks
from kinetoscope.terminal import CommandError, positive, print_error
from kinetoscope.trace.events import TraceError
from kinetoscope.trace.kineto import read_trace
from kinetoscope.trace.progress import notice

PERFETTO = "https://ui.perfetto.dev"
HOST = "127.0.0.1"
PORT = 9001
"""The only loopback port that Perfetto's content security policy allows."""
DESCRIPTION = """\
Serve one trace to Perfetto, which reads it in this machine's browser, then stop. Nothing is uploaded.

  %(prog)s trace.json.gz
  %(prog)s trace.json.gz --no-browser    print the address, for a browser on another machine
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `open`."""
    parser.add_argument("trace", type=Path, metavar="TRACE", help="a .json or .json.gz of the PyTorch profiler")
    parser.add_argument("--no-browser", action="store_true", help="only print the address")
    parser.add_argument(
        "--timeout",
        type=positive("seconds"),
        default=300.0,
        metavar="S",
        help="seconds to wait for the browser (default 300)",
    )


def command(arguments: argparse.Namespace) -> int:
    """Show a trace in Perfetto."""
    browser = None if arguments.no_browser else webbrowser.open
    open_in_perfetto(arguments.trace, browser=browser, timeout_s=arguments.timeout)
    return 0


class TraceServer(ThreadingHTTPServer):
    """Serves one file. Threaded, because a browser may open connections early and send nothing."""

    allow_reuse_address = os.name != "nt"  # on Windows, two programs would share the port

    def __init__(self, trace: Path, port: int) -> None:
        super().__init__((HOST, port), _Handler)
        self.trace = trace
        name = re.sub(r"[^A-Za-z0-9._-]+", "_", trace.name)
        self.path = f"/{secrets.token_urlsafe(12)}/{name}"
        self.fetched = threading.Event()

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore a browser that hangs up: it may ask again."""
        error = sys.exception()
        if not isinstance(error, ConnectionError):
            print_error(f"{type(error).__name__}: {error}")


class _Handler(BaseHTTPRequestHandler):
    server: TraceServer

    def do_GET(self) -> None:
        if self.path != self.server.path:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        with self.server.trace.open("rb") as file:
            self._begin(HTTPStatus.OK, os.fstat(file.fileno()).st_size)
            shutil.copyfileobj(file, self.wfile)
        self.server.fetched.set()

    def do_OPTIONS(self) -> None:
        """A browser asks first whether a public page may read from this machine."""
        self._begin(HTTPStatus.NO_CONTENT, 0)

    def _begin(self, status: HTTPStatus, length: int) -> None:
        self.send_response(status)
        self.send_header("Access-Control-Allow-Origin", PERFETTO)
        self.send_header("Access-Control-Allow-Private-Network", "true")
        self.send_header("Cache-Control", "no-store")
        self.send_header("Content-Length", str(length))
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Do not log requests."""


def open_in_perfetto(
    path: Path, *, browser: Callable[[str], bool] | None, timeout_s: float = 300, port: int = PORT
) -> None:
    """Serve a trace until it was fetched once.

    Args:
        path: the trace.
        browser: opens an address and returns whether it succeeded; None only prints the address.
        timeout_s: the longest wait.
        port: 0 selects a free port.

    Raises `TraceError` for a file that is not a trace, `CommandError` if the port is in use or the time runs out.
    """
    if path.exists() and not path.is_file():
        raise TraceError(f"{path}: is not a file; save the trace first")
    for _ in read_ranks(path) if is_merged(path) else [read_trace(path)]:
        pass
    try:
        server = TraceServer(path, port)
    except OSError as error:
        raise CommandError(
            f"port {port} of {HOST} is not available ({error.strerror}), and Perfetto reads from no other port: "
            "stop the program that uses it (another `open`, a trace_processor) and try again"
        ) from error
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        _wait(server, browser, timeout_s)
    finally:
        server.shutdown()
        server.server_close()


def _wait(server: TraceServer, browser: Callable[[str], bool] | None, timeout_s: float) -> None:
    authority = f"{HOST}:{server.server_port}"
    address = f"{PERFETTO}/#!/?url=http://{authority}{server.path}"
    notice(f"{server.trace}: waiting at most {timeout_s:g} s for Perfetto to fetch it. It stays on this machine.")
    print(address, flush=True)
    if browser is None or not browser(address):
        print(
            f"Open this address in a browser. If the browser is on another machine, first run there: ssh -L "
            f"{server.server_port}:{authority} this-machine",
            flush=True,
        )
    if not server.fetched.wait(min(timeout_s, threading.TIMEOUT_MAX)):
        raise CommandError(f"no fetch within {timeout_s:g} s; run the command again and open its address")
    notice("fetched")
