"""The command `open`: serve one trace to Perfetto in this machine's browser, and to no other page or machine.

Perfetto is a page that reads a trace in the browser. The server sends the file over the loopback address, under one
path and to one page only, and stops after the browser has fetched it.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
import threading
import webbrowser
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from snippets.lab.trace.kineto import read_trace
from snippets.lab.trace.text import printable

PERFETTO = "https://ui.perfetto.dev"
HOST = "127.0.0.1"
PORT = 9001
"""The only loopback port that Perfetto's content security policy allows."""
HELP = "show a trace in Perfetto; it does not leave this machine"
DESCRIPTION = """\
Serve one trace to Perfetto, which reads it in this machine's browser, then stop. Nothing is uploaded.

  python -m snippets.lab open trace.json.gz
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `open`."""
    parser.add_argument("trace", type=Path, metavar="TRACE", help="a .json or .json.gz of the PyTorch profiler")
    parser.add_argument("--no-browser", action="store_true", help="only print the address")
    parser.add_argument(
        "--timeout", type=_seconds, default=300.0, metavar="S", help="seconds to wait for the browser (default 300)"
    )


def command(arguments: argparse.Namespace) -> int:
    """Show a trace in Perfetto."""
    browser = None if arguments.no_browser else webbrowser.open
    return open_in_perfetto(arguments.trace, browser=browser, timeout_s=arguments.timeout)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not seconds > 0:  # nan, too
        raise argparse.ArgumentTypeError(f"must be a positive number of seconds, not {text!r}")
    return seconds


class TraceServer(ThreadingHTTPServer):
    """Serves one file to Perfetto alone. Threaded, because a browser may open connections early and send nothing."""

    def __init__(self, path: Path, port: int = PORT) -> None:
        super().__init__((HOST, port), _Handler)
        self.path = path
        self.name = safe_name(path.name)
        self.fetched = threading.Event()
        """Set after the whole file has been sent once."""

    @property
    def authority(self) -> str:
        """Host and port, as in a browser's `Host` header."""
        return f"{HOST}:{self.server_port}"

    @property
    def address(self) -> str:
        """The address to open in a browser on this machine."""
        return f"{PERFETTO}/#!/?url=http://{self.authority}/{self.name}"

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore disconnects; print other OS errors in one line, and all other errors in full."""
        error = sys.exception()
        if not isinstance(error, OSError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]
        elif not isinstance(error, ConnectionError):
            print(f"error: {error}", file=sys.stderr)


class _Handler(BaseHTTPRequestHandler):
    server: TraceServer

    def do_GET(self) -> None:
        with self.server.path.open("rb") as file:
            if self._begin(HTTPStatus.OK, os.fstat(file.fileno()).st_size):
                shutil.copyfileobj(file, self.wfile)
                self.server.fetched.set()

    def do_HEAD(self) -> None:
        self._begin(HTTPStatus.OK, self.server.path.stat().st_size)

    def do_OPTIONS(self) -> None:
        self._begin(HTTPStatus.NO_CONTENT, 0)

    def _begin(self, status: HTTPStatus, length: int) -> bool:
        """Send the head of a reply; return False after refusing the request.

        It also checks the request's host name, because another site could point its own name at this address.
        """
        if self.path != f"/{self.server.name}" or self.headers["Host"] != self.server.authority:
            self.send_error(HTTPStatus.NOT_FOUND)
            return False
        self.send_response(status)
        self.send_header("Access-Control-Allow-Origin", PERFETTO)
        self.send_header("Access-Control-Allow-Methods", "GET, HEAD, OPTIONS")
        self.send_header("Access-Control-Allow-Private-Network", "true")
        self.send_header("Cache-Control", "no-store")
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(length))
        self.end_headers()
        return True

    def log_message(self, format: str, *args: object) -> None:
        """Do not log requests."""


def safe_name(name: str) -> str:
    """A file name without characters that an address must quote: `my trace (2).json.gz` -> `my_trace_2_.json.gz`."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", name).lstrip("._-") or "trace.json"


def open_in_perfetto(
    path: Path, *, browser: Callable[[str], bool] | None, timeout_s: float = 300, port: int = PORT
) -> int:
    """Serve a trace until Perfetto has fetched it; return 0, or 1 if the port is in use or the time runs out.

    Args:
        path: the trace.
        browser: opens an address and returns whether it succeeded; None only prints the address.
        timeout_s: the longest wait.
        port: 0 selects a free port.

    Raises `TraceError` for a file that is not a trace.
    """
    read_trace(path)
    try:
        server = TraceServer(path, port)
    except OSError as error:
        print(
            f"error: port {port} of {HOST} is not available ({error.strerror}), and Perfetto reads from no other port: "
            "stop the program that uses it (another `open`, a trace_processor) and try again",
            file=sys.stderr,
        )
        return 1
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        return _wait(server, browser, timeout_s)
    finally:
        server.shutdown()
        server.server_close()


def _wait(server: TraceServer, browser: Callable[[str], bool] | None, timeout_s: float) -> int:
    name = printable(str(server.path))
    print(f"{name}: waiting at most {timeout_s:g} s for Perfetto to fetch it. It stays on this machine.")
    print(server.address, flush=True)
    if browser is None or not browser(server.address):
        print(
            f"Open this address in a browser. If the browser is on another machine, first run there: ssh -L "
            f"{server.server_port}:{server.authority} this-machine",
            flush=True,
        )
    if server.fetched.wait(min(timeout_s, threading.TIMEOUT_MAX)):
        print("fetched")
        return 0
    print(f"error: no fetch within {timeout_s:g} s; run the command again and open its address", file=sys.stderr)
    return 1
