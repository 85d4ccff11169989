"""The command `open`: serve one trace to Perfetto in this machine's browser, and to no other page, program or machine.

Perfetto is a page that reads a trace in the browser. The server sends what was checked over the loopback address, to
that page only, under an address that cannot be guessed, and stops after the browser has fetched it.
"""

from __future__ import annotations

import argparse
import os
import re
import secrets
import socket
import stat
import sys
import tempfile
import threading
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedIOBase
from pathlib import Path
from typing import BinaryIO

from kinetoscope.terminal import CommandError, print_error
from kinetoscope.trace.content import BLOCK_BYTES, Opened, open_source
from kinetoscope.trace.events import TraceError
from kinetoscope.trace.kineto import LIMIT_BYTES, read_trace
from kinetoscope.trace.text import printable

PERFETTO = "https://ui.perfetto.dev"
HOST = "127.0.0.1"
PORT = 9001
"""The only loopback port that Perfetto's content security policy allows."""
HANG_UP_S = 5
"""The longest wait for a browser that has everything to say so by closing the connection."""
DESCRIPTION = """\
Serve one trace to Perfetto, which reads it in this machine's browser, then stop. Nothing is uploaded.

  %(prog)s trace.json.gz
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
    open_in_perfetto(arguments.trace, browser=browser, timeout_s=arguments.timeout)
    return 0


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not seconds > 0:  # nan, too
        raise argparse.ArgumentTypeError(f"must be a positive number of seconds, not {text!r}")
    return seconds


class CheckedTrace:
    """A trace that was read and is one, held open: another file in its place is not served."""

    def __init__(self, name: str, file: Opened | BinaryIO) -> None:
        self.name = name
        self._file = file
        self._stamp = self._now()

    @property
    def size(self) -> int:
        """In bytes."""
        return self._stamp[0]

    def copy_to(self, target: BufferedIOBase) -> None:
        """Write the whole content. Raises `TraceError` if it changed since it was checked."""
        if self._now() != self._stamp:
            raise TraceError(f"{self.name}: changed since it was checked; run the command again")
        position = 0
        while position < self.size and (block := os.pread(self._file.fileno(), BLOCK_BYTES, position)):
            target.write(block)
            position += len(block)
        if position < self.size or self._now() != self._stamp:
            raise TraceError(f"{self.name}: changed while it was sent; run the command again")

    def _now(self) -> tuple[int, int]:
        status = os.fstat(self._file.fileno())
        return status.st_size, status.st_mtime_ns


class _Copying:
    """An open pipe; what is read from it is kept in a file."""

    def __init__(self, pipe: Opened, name: str, copy: BinaryIO) -> None:
        self.name, self._pipe, self._copy = name, pipe, copy

    def fileno(self) -> int:
        return self._pipe.fileno()

    def read(self, size: int) -> bytes:
        block = self._pipe.read(size)
        self._copy.write(block)
        return block


@contextmanager
def checked_trace(path: Path) -> Iterator[CheckedTrace]:
    """Open a file once, check that it is a trace, and hold it open; of a pipe, hold a copy. Raises `TraceError`."""
    with tempfile.TemporaryFile() as copy:
        try:
            source = open_source(os.fspath(path))
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise TraceError(f"{path}: cannot be read ({reason}); give the path of a trace") from error
        with source as file:
            status = os.fstat(file.fileno())
            if stat.S_ISREG(status.st_mode) and status.st_size:
                trace = CheckedTrace(str(path), file)
                read_trace(file)
                yield trace
                return
            read_trace(_Copying(file, str(path), copy))
            while (block := file.read(BLOCK_BYTES)) and copy.tell() < LIMIT_BYTES:  # what follows the trace
                copy.write(block)
            copy.flush()
            yield CheckedTrace(str(path), copy)


class TraceServer(ThreadingHTTPServer):
    """Serves one file to Perfetto alone. Threaded, because a browser may open connections early and send nothing."""

    def __init__(self, trace: CheckedTrace, port: int = PORT) -> None:
        super().__init__((HOST, port), _Handler)
        self.trace = trace
        self.path = f"/{secrets.token_urlsafe(12)}/{safe_name(Path(trace.name).name)}"
        self.ended = threading.Event()
        """Set after the whole file has been fetched once, or cannot be sent any more."""
        self.error: TraceError | None = None

    @property
    def authority(self) -> str:
        """Host and port, as in a browser's `Host` header."""
        return f"{HOST}:{self.server_port}"

    @property
    def address(self) -> str:
        """The address to open in a browser on this machine."""
        return f"{PERFETTO}/#!/?url=http://{self.authority}{self.path}"

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore disconnects; end after a changed file; print other errors in one line."""
        error = sys.exception()
        if isinstance(error, TraceError):
            self.error = error
            self.ended.set()
        elif not isinstance(error, ConnectionError | TimeoutError):
            print_error(f"{type(error).__name__}: {error}")


class _Handler(BaseHTTPRequestHandler):
    server: TraceServer

    def do_GET(self) -> None:
        if self._begin(HTTPStatus.OK, self.server.trace.size):
            self.server.trace.copy_to(self.wfile)
            self._wait_for_hang_up()
            self.server.ended.set()

    def do_HEAD(self) -> None:
        self._begin(HTTPStatus.OK, self.server.trace.size)

    def do_OPTIONS(self) -> None:
        self._begin(HTTPStatus.NO_CONTENT, 0)

    def _begin(self, status: HTTPStatus, length: int) -> bool:
        """Send the head of a reply; return False after refusing the request.

        A browser states the page that asks as `Origin`. `Host` is checked because another site could point its own
        name at this address.
        """
        asked = (self.path, self.headers.get_all("Host"), self.headers.get_all("Origin"))
        if asked != (self.server.path, [self.server.authority], [PERFETTO]):
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

    def _wait_for_hang_up(self) -> None:
        """Return once the browser took everything; raise `ConnectionError` if it closed with unread data."""
        self.connection.shutdown(socket.SHUT_WR)
        self.connection.settimeout(HANG_UP_S)
        with suppress(TimeoutError):
            while self.connection.recv(BLOCK_BYTES):
                pass

    def log_message(self, format: str, *args: object) -> None:
        """Do not log requests."""


def safe_name(name: str) -> str:
    """A file name without characters that an address must quote: `my trace (2).json.gz` -> `my_trace_2_.json.gz`."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", name).lstrip("._-") or "trace.json"


def open_in_perfetto(
    path: Path, *, browser: Callable[[str], bool] | None, timeout_s: float = 300, port: int = PORT
) -> None:
    """Serve a trace until Perfetto has fetched it.

    Args:
        path: the trace.
        browser: opens an address and returns whether it succeeded; None only prints the address.
        timeout_s: the longest wait.
        port: 0 selects a free port.

    Raises `TraceError` for a file that is not a trace, `CommandError` if the port is in use or the time runs out.
    """
    with checked_trace(path) as trace:
        try:
            server = TraceServer(trace, port)
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
    name = printable(server.trace.name)
    print(f"{name}: waiting at most {timeout_s:g} s for Perfetto to fetch it. It stays on this machine.")
    print(server.address, flush=True)
    if browser is None or not browser(server.address):
        print(
            f"Open this address in a browser. If the browser is on another machine, first run there: ssh -L "
            f"{server.server_port}:{server.authority} this-machine",
            flush=True,
        )
    if not server.ended.wait(min(timeout_s, threading.TIMEOUT_MAX)):
        raise CommandError(f"no fetch within {timeout_s:g} s; run the command again and open its address")
    if server.error is not None:
        raise server.error
    print("fetched")
