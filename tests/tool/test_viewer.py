"""Handing a trace to Perfetto: real requests over the loopback address, to a port that is free."""

from __future__ import annotations

import http.client
import math
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from kinetoscope.terminal import CommandError
from kinetoscope.trace.events import TraceError
from kinetoscope.viewer import PORT, TraceServer, open_in_perfetto
from tests.tool.events import kernel, step, trace_bytes

CONTENT = trace_bytes(step(1, 0, 100), kernel("k", 1, 10, 5))


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "my trace (2).json"
    path.write_bytes(CONTENT)
    return path


@pytest.fixture
def server(trace: Path) -> Iterator[TraceServer]:
    with TraceServer(trace, 0) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def ask(port: int, path: str, method: str = "GET") -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path)
        reply = connection.getresponse()
        return reply.status, dict(reply.getheaders()), reply.read()
    finally:
        connection.close()


def test_the_file_is_served_to_perfetto_on_this_machine(server: TraceServer) -> None:
    assert server.server_address[0] == "127.0.0.1"
    for method, expected in (("OPTIONS", (204, b"")), ("GET", (200, CONTENT))):
        assert not server.fetched.is_set()
        status, heads, body = ask(server.server_port, server.path, method)
        assert (status, body) == expected
        assert heads["Access-Control-Allow-Origin"] == "https://ui.perfetto.dev"
        assert heads["Content-Length"] == str(len(body))
    assert server.fetched.wait(60)


@pytest.mark.parametrize("path", ["/", "/my_trace_2_.json", "{}/", "{}?x", "/..{}", "{}%00", "/viewer.py"])
def test_nothing_else_is_served(server: TraceServer, path: str) -> None:
    status, heads, _ = ask(server.server_port, path.format(server.path))
    assert status == 404
    assert "Access-Control-Allow-Origin" not in heads
    assert ask(server.server_port, server.path, "POST")[0] == 501
    assert not server.fetched.wait(0.02)


def test_the_address_cannot_be_guessed(server: TraceServer, trace: Path) -> None:
    with TraceServer(trace, 0) as other:
        assert server.path != other.path
    assert [len(part) for part in server.path.split("/")] == [0, 16, len("my_trace_2_.json")]


def test_a_browser_that_hangs_up_may_ask_again(
    server: TraceServer, trace: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    trace.write_bytes(CONTENT + b" " * 20_000_000)
    with (
        socket.create_connection(("127.0.0.1", server.server_port)) as talk,
        socket.create_connection(("127.0.0.1", server.server_port)),  # sends nothing
    ):
        talk.sendall(f"GET {server.path} HTTP/1.1\r\n\r\n".encode())
        assert talk.recv(1000)
        talk.close()
        assert not server.fetched.wait(0.05)
        assert ask(server.server_port, server.path)[0] == 200
    assert server.fetched.wait(60)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("timeout_s", [60, math.inf])
def test_open_waits_until_the_trace_has_been_fetched(
    trace: Path, capsys: pytest.CaptureFixture[str], timeout_s: float
) -> None:
    opened = []

    def browse(url: str) -> bool:
        opened.append(url)
        place = urlsplit(url.removeprefix("https://ui.perfetto.dev/#!/?url="))
        assert ask(place.port or 0, place.path)[2] == CONTENT
        return True

    open_in_perfetto(trace, browser=browse, port=0, timeout_s=timeout_s)
    first, *rest = capsys.readouterr().out.splitlines()
    assert first == f"{trace}: waiting at most {timeout_s:g} s for Perfetto to fetch it. It stays on this machine."
    assert rest == [*opened, "fetched"]
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", urlsplit(opened[0].partition("url=")[2]).port or 0), timeout=1)


def test_ctrl_c_stops_the_server(trace: Path) -> None:
    ports = []

    def browse(url: str) -> bool:
        ports.append(urlsplit(url.partition("url=")[2]).port)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        open_in_perfetto(trace, browser=browse, port=0)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", ports[0]), timeout=1)


@pytest.mark.parametrize("has_browser", [True, False])
def test_without_a_browser_it_prints_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], has_browser: bool
) -> None:
    path = tmp_path / "a\x1b[2J\nb\udcff.json"
    path.write_bytes(CONTENT)
    with pytest.raises(CommandError, match=r"^no fetch within 0\.01 s; run the command again and open its address$"):
        open_in_perfetto(path, browser=(lambda url: False) if has_browser else None, timeout_s=0.01, port=0)
    out = capsys.readouterr().out
    assert "/a\\x1b[2J\\nb\\udcff.json: waiting at most 0.01 s" in out
    assert "Open this address in a browser" in out
    assert "ssh -L" in out


def test_a_taken_port(trace: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        taken = rf"^port {port} of 127\.0\.0\.1 is not available .*: stop the program that uses it"
        with pytest.raises(CommandError, match=taken):
            open_in_perfetto(trace, browser=None, port=port)


def test_the_port_is_the_one_that_perfetto_reads_from() -> None:
    assert PORT == 9001


def test_only_a_trace_is_served(tmp_path: Path) -> None:
    for content in (b"", b"{}", b"\x1f\x8b broken", b"not a trace"):
        path = tmp_path / "it.json"
        path.write_bytes(content)
        with pytest.raises(TraceError):
            open_in_perfetto(path, browser=None, port=0, timeout_s=0.01)
    os.mkfifo(tmp_path / "pipe.json")
    for path, message in (
        ("missing.json", "No such file"),
        (".", "is not a file"),
        ("pipe.json", "save the trace first"),
    ):
        with pytest.raises(TraceError, match=message):
            open_in_perfetto(tmp_path / path, browser=None, port=0, timeout_s=0.01)
