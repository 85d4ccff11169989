"""Handing a trace to Perfetto: real requests over the loopback address, to a port that is free."""

from __future__ import annotations

import http.client
import math
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from kinetoscope.terminal import CommandError
from kinetoscope.trace.events import TraceError
from kinetoscope.viewer import PORT, TraceServer, checked_trace, open_in_perfetto, safe_name
from tests.tool.simple import gzipped, trace_json

PATIENCE_S = 60
"""For what takes milliseconds on a machine that has nothing else to do."""


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "my trace.json.gz"
    path.write_bytes(gzipped(trace_json()))
    return path


@contextmanager
def serving(path: Path) -> Iterator[TraceServer]:
    with checked_trace(path) as checked, TraceServer(checked, 0) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def ask(server: TraceServer, method: str = "GET", path: str = "", **heads: str) -> tuple[int, dict[str, str], bytes]:
    """A reply to a request of Perfetto's page, but for what is given."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=PATIENCE_S)
    try:
        heads = {"Origin": "https://ui.perfetto.dev", **heads}
        connection.request(method, path or server.path, headers={name: text for name, text in heads.items() if text})
        reply = connection.getresponse()
        return reply.status, dict(reply.getheaders()), reply.read()
    finally:
        connection.close()


def test_the_file_is_served_to_perfetto_and_to_no_other_page(trace: Path) -> None:
    with serving(trace) as server:
        status, heads, body = ask(server)
        assert (status, body) == (200, trace.read_bytes())
        assert heads["Access-Control-Allow-Origin"] == "https://ui.perfetto.dev"
        assert heads["Content-Length"] == str(trace.stat().st_size)
        assert server.ended.wait(5)


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS"])
def test_asking_about_the_file_is_not_fetching_it(trace: Path, method: str) -> None:
    with serving(trace) as server:
        status, heads, body = ask(server, method)
        assert (status, body) == (200 if method == "HEAD" else 204, b"")
        assert heads["Access-Control-Allow-Origin"] == "https://ui.perfetto.dev"
        assert heads["Content-Length"] == (str(trace.stat().st_size) if method == "HEAD" else "0")
        assert not server.ended.is_set()


@pytest.mark.parametrize(
    "path",
    ["/", "/my_trace.json.gz", "{}/", "{}?x", "/..{}", "{}%00", "/viewer.py"],
)
@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
def test_nothing_else_is_served(trace: Path, path: str, method: str) -> None:
    with serving(trace) as server:
        status, heads, _ = ask(server, method, path.format(server.path))
        assert status == 404
        assert "Access-Control-Allow-Origin" not in heads
        assert not server.ended.is_set()


@pytest.mark.parametrize(
    "heads",
    [
        {"Host": "evil.example:9001"},
        {"Host": "localhost:9001"},
        {"Origin": ""},
        {"Origin": "null"},
        {"Origin": "https://evil.example"},
        {"Origin": "https://ui.perfetto.dev.evil.example"},
    ],
    ids=str,
)
@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
def test_no_other_site_or_program_gets_it_or_ends_the_server(trace: Path, method: str, heads: dict[str, str]) -> None:
    with serving(trace) as server:
        status, replied, body = ask(server, method, **heads)
        assert status == 404
        assert trace.read_bytes() not in body
        assert "Access-Control-Allow-Origin" not in replied
        assert ask(server, "POST")[0] == 501
        assert not server.ended.wait(0.02)


def test_its_address_cannot_be_guessed(trace: Path) -> None:
    with serving(trace) as one, serving(trace) as other:
        assert one.path != other.path
        assert len(one.path.split("/")[1]) == 16


def test_what_was_checked_is_served_though_the_file_is_replaced(trace: Path) -> None:
    checked = trace.read_bytes()
    with serving(trace) as server:
        other = trace.with_name("other")
        other.write_bytes(b"another file")
        other.replace(trace)
        assert ask(server)[2] == checked


def test_a_file_that_was_rewritten_is_not_served(trace: Path) -> None:
    with serving(trace) as server:
        trace.write_bytes(b"another content")
        with pytest.raises(http.client.IncompleteRead):
            ask(server)
        assert server.ended.wait(5)
        assert str(server.error) == f"{trace}: changed since it was checked; run the command again"


@pytest.mark.parametrize("content", [trace_json(), gzipped(trace_json())])
def test_a_pipe_is_served_whole(tmp_path: Path, content: bytes) -> None:
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(content,))
    writer.start()
    with serving(pipe) as server:
        writer.join()
        assert ask(server)[2] == content
        assert ask(server)[2] == content


def test_only_this_machine_is_listened_to(trace: Path) -> None:
    with serving(trace) as server:
        assert server.server_address[0] == "127.0.0.1"


def test_a_browser_that_hangs_up_has_not_fetched_it(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    large = tmp_path / "large.json"
    large.write_bytes(trace_json() + b" " * 20_000_000)
    with serving(large) as server:
        talk = socket.create_connection(("127.0.0.1", server.server_port), timeout=PATIENCE_S)
        heads = f"Host: {server.authority}\r\nOrigin: https://ui.perfetto.dev"
        talk.sendall(f"GET {server.path} HTTP/1.1\r\n{heads}\r\n\r\n".encode())
        assert talk.recv(1000)
        talk.close()
        silent = socket.create_connection(("127.0.0.1", server.server_port), timeout=PATIENCE_S)
        assert ask(server, "HEAD")[0] == 200
        silent.close()
        assert not server.ended.is_set()
    assert capfd.readouterr().err == ""


def test_a_browser_that_takes_only_the_beginning_has_not_fetched_it(trace: Path) -> None:
    """The rest waits unread in its own buffer, so that the server could send everything."""
    with serving(trace) as server:
        talk = socket.create_connection(("127.0.0.1", server.server_port), timeout=PATIENCE_S)
        heads = f"Host: {server.authority}\r\nOrigin: https://ui.perfetto.dev"
        talk.sendall(f"GET {server.path} HTTP/1.1\r\n{heads}\r\n\r\n".encode())
        assert talk.recv(10)
        time.sleep(0.1)
        talk.close()
        assert not server.ended.wait(0.2)


@pytest.mark.parametrize(
    ("name", "served"),
    [
        ("trace.json.gz", "trace.json.gz"),
        ("my trace (2).json", "my_trace_2_.json"),
        ("../../etc/passwd", "etc_passwd"),
        ("ü#?&=%.json", "json"),
        (".hidden", "hidden"),
        ("'\"<script>", "script_"),
        ("日本", "trace.json"),
    ],
)
def test_a_name_that_an_address_can_have(name: str, served: str) -> None:
    assert safe_name(name) == served


def browser_opening(address: Future[str], works: bool = True) -> Callable[[str], bool]:
    """A browser that passes on what it opens."""

    def start(url: str) -> bool:
        address.set_result(url)
        return works

    return start


def test_open_waits_until_the_trace_has_been_fetched(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    address: Future[str] = Future()
    with ThreadPoolExecutor() as pool:
        done = pool.submit(open_in_perfetto, trace, browser=browser_opening(address), port=0, timeout_s=60)
        url = address.result(PATIENCE_S)
        page, _, served = url.partition("#!/?url=")
        place = urlsplit(served)
        connection = http.client.HTTPConnection(place.netloc, timeout=PATIENCE_S)
        connection.request("GET", place.path, headers={"Origin": "https://ui.perfetto.dev"})
        assert connection.getresponse().read() == trace.read_bytes()
        connection.close()
        done.result(PATIENCE_S)
    assert page == "https://ui.perfetto.dev/"
    assert served.startswith(f"http://127.0.0.1:{place.port}/")
    assert served.endswith("/my_trace.json.gz")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith(
        "my trace.json.gz: waiting at most 60 s for Perfetto to fetch it. It stays on this machine."
    )
    assert lines[1:] == [url, "fetched"]
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", place.port or 0), timeout=1)


@pytest.mark.parametrize("timeout_s", [1e10, math.inf])
def test_waiting_forever_is_allowed(trace: Path, timeout_s: float) -> None:
    def fetch(url: str) -> bool:
        place = urlsplit(url.partition("#!/?url=")[2])
        connection = http.client.HTTPConnection(place.netloc, timeout=PATIENCE_S)
        connection.request("GET", place.path, headers={"Origin": "https://ui.perfetto.dev"})
        connection.getresponse().read()
        connection.close()
        return True

    open_in_perfetto(trace, browser=fetch, port=0, timeout_s=timeout_s)


def test_a_file_name_cannot_steer_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a\x1b[2J\nb\udcff.json"
    path.write_bytes(trace_json())
    with pytest.raises(CommandError):
        open_in_perfetto(path, browser=None, timeout_s=0, port=0)
    assert "/a\\x1b[2J\\nb\\udcff.json: waiting at most 0 s" in capsys.readouterr().out


@pytest.mark.parametrize("browser", [None, lambda url: False])
def test_without_a_browser_it_prints_what_to_do(
    trace: Path, capsys: pytest.CaptureFixture[str], browser: Callable[[str], bool] | None
) -> None:
    with pytest.raises(CommandError, match=r"^no fetch within 0\.01 s; run the command again and open its address$"):
        open_in_perfetto(trace, browser=browser, timeout_s=0.01, port=0)
    out = capsys.readouterr().out
    assert "Open this address in a browser" in out
    assert "ssh -L" in out


def test_a_taken_port(trace: Path) -> None:
    address: Future[str] = Future()
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        taken = (
            rf"^port {port} of 127\.0\.0\.1 is not available \(Address already in use\).*stop the program that uses it"
        )
        with pytest.raises(CommandError, match=taken):
            open_in_perfetto(trace, browser=browser_opening(address), port=port)
    assert not address.done()


def test_the_port_is_the_one_that_perfetto_reads_from() -> None:
    assert PORT == 9001


@pytest.mark.parametrize("content", [b"", b"{}", b"\x1f\x8b broken", b"not a trace"])
def test_only_a_trace_is_served(tmp_path: Path, content: bytes) -> None:
    address: Future[str] = Future()
    path = tmp_path / "it.json"
    path.write_bytes(content)
    with pytest.raises(TraceError):
        open_in_perfetto(path, browser=browser_opening(address), port=0)
    with pytest.raises(TraceError):
        open_in_perfetto(tmp_path / "missing.json", browser=browser_opening(address), port=0)
    assert not address.done()
