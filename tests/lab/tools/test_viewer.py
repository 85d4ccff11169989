"""Handing a trace to Perfetto: real requests over the loopback address, to a port that is free."""

from __future__ import annotations

import http.client
import math
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from snippets.lab.tools.viewer import PORT, TraceServer, open_in_perfetto, safe_name
from snippets.lab.trace.events import TraceError
from tests.lab.samples import gzipped, trace_json


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "my trace.json.gz"
    path.write_bytes(gzipped(trace_json()))
    return path


@contextmanager
def serving(path: Path) -> Iterator[TraceServer]:
    server = TraceServer(path, 0)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def ask(
    server: TraceServer, method: str = "GET", path: str = "/my_trace.json.gz", host: str = ""
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=5)
    try:
        connection.request(method, path, headers={"Host": host} if host else {})
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
        assert server.fetched.wait(5)


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS"])
def test_asking_about_the_file_is_not_fetching_it(trace: Path, method: str) -> None:
    with serving(trace) as server:
        status, heads, body = ask(server, method)
        assert (status, body) == (200 if method == "HEAD" else 204, b"")
        assert heads["Access-Control-Allow-Origin"] == "https://ui.perfetto.dev"
        assert heads["Content-Length"] == (str(trace.stat().st_size) if method == "HEAD" else "0")
        assert not server.fetched.is_set()


@pytest.mark.parametrize(
    "path",
    ["/", "/my%20trace.json.gz", "/my_trace.json.gz/", "/my_trace.json.gz?x", "/../my_trace.json.gz", "/viewer.py"],
)
@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
def test_nothing_else_is_served(trace: Path, path: str, method: str) -> None:
    with serving(trace) as server:
        status, heads, _ = ask(server, method, path)
        assert status == 404
        assert "Access-Control-Allow-Origin" not in heads
        assert not server.fetched.is_set()


def test_a_site_that_calls_itself_this_machine_gets_nothing(trace: Path) -> None:
    with serving(trace) as server:
        assert ask(server, host="evil.example:9001")[0] == 404
        assert ask(server, "POST")[0] == 501


def test_only_this_machine_is_listened_to(trace: Path) -> None:
    with serving(trace) as server:
        assert server.server_address[0] == "127.0.0.1"


def test_a_browser_that_hangs_up_has_not_fetched_it(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    large = tmp_path / "large.json"
    large.write_bytes(b"x" * 50_000_000)
    with serving(large) as server:
        talk = socket.create_connection(("127.0.0.1", server.server_port), timeout=5)
        talk.sendall(f"GET /large.json HTTP/1.1\r\nHost: {server.authority}\r\n\r\n".encode())
        assert talk.recv(1000)
        talk.close()
        silent = socket.create_connection(("127.0.0.1", server.server_port), timeout=5)
        assert ask(server, "HEAD", "/large.json")[0] == 200
        silent.close()
        assert not server.fetched.is_set()
    assert capfd.readouterr().err == ""


def test_a_file_that_is_gone_is_reported_in_a_line(trace: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with serving(trace) as server:
        trace.unlink()
        with pytest.raises(http.client.RemoteDisconnected):
            ask(server)
        assert not server.fetched.is_set()
    assert capfd.readouterr().err == f"error: [Errno 2] No such file or directory: '{trace}'\n"


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
        done = pool.submit(open_in_perfetto, trace, browser=browser_opening(address), port=0, timeout_s=10)
        url = address.result(5)
        page, _, served = url.partition("#!/?url=")
        place = urlsplit(served)
        connection = http.client.HTTPConnection(place.netloc, timeout=5)
        connection.request("GET", place.path, headers={"Origin": "https://ui.perfetto.dev"})
        assert connection.getresponse().read() == trace.read_bytes()
        connection.close()
        assert done.result(5) == 0
    assert page == "https://ui.perfetto.dev/"
    assert served == f"http://127.0.0.1:{place.port}/my_trace.json.gz"
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith(
        "my trace.json.gz: waiting at most 10 s for Perfetto to fetch it. It stays on this machine."
    )
    assert lines[1:] == [url, "fetched"]
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", place.port or 0), timeout=1)


@pytest.mark.parametrize("timeout_s", [1e10, math.inf])
def test_waiting_forever_is_allowed(trace: Path, timeout_s: float) -> None:
    def fetch(url: str) -> bool:
        place = urlsplit(url.partition("#!/?url=")[2])
        connection = http.client.HTTPConnection(place.netloc, timeout=5)
        connection.request("GET", place.path)
        connection.getresponse().read()
        connection.close()
        return True

    assert open_in_perfetto(trace, browser=fetch, port=0, timeout_s=timeout_s) == 0


def test_a_file_name_cannot_steer_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a\x1b[2J\nb\udcff.json"
    path.write_bytes(trace_json())
    assert open_in_perfetto(path, browser=None, timeout_s=0, port=0) == 1
    assert "/a\\x1b[2J\\nb\\udcff.json: waiting at most 0 s" in capsys.readouterr().out


@pytest.mark.parametrize("browser", [None, lambda url: False])
def test_without_a_browser_it_prints_what_to_do(
    trace: Path, capsys: pytest.CaptureFixture[str], browser: Callable[[str], bool] | None
) -> None:
    assert open_in_perfetto(trace, browser=browser, timeout_s=0.01, port=0) == 1
    out, err = capsys.readouterr()
    assert "Open this address in a browser" in out
    assert "ssh -L" in out
    assert err == "error: no fetch within 0.01 s; run the command again and open its address\n"


def test_a_taken_port(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    address: Future[str] = Future()
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert open_in_perfetto(trace, browser=browser_opening(address), port=port) == 1
    assert not address.done()
    err = capsys.readouterr().err
    assert err.startswith(f"error: port {port} of 127.0.0.1 is not available (Address already in use)")
    assert "stop the program that uses it" in err


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
