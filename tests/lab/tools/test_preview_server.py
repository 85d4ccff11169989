"""The preview's replies to requests over a socket; no page is built."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from snippets.lab.tools.preview import Preview
from snippets.lab.tools.preview_server import PrintableFormatter
from tests.lab.ports import free_port

PAGE = b"<html><body>a page</body></html>"
HOSTS = ("127.0.0.1", "localhost", "LOCALHOST:8000", "127.0.0.1:1", "[::1]:8000")
OTHER_HOSTS = (
    "", "evil.example", "127.0.0.1.evil.example", "127.0.0.1@evil.example", "localhost.", "evil.example:8000",
    "127.0.0.1:8000, evil.example", "127.0.0.1:", "0.0.0.0", "127.0.0.2", "2130706433", "[::]", "\x1b[2J", "l" * 5000,
)  # fmt: skip
PAGES = ("/", "/mlp/", "/mlp/index.html", "/na%C3%AFve/")
ODD_PATHS = (
    "/%00", "/mlp/%00", "/%00/", "/%2e%2e/", "/%2e%2e/%2e%2e/etc/passwd", "/../", "/mlp/../", "/./", "/%2e/",
    "//evil.example/..", "/mlp//", "/%5c", "/%5c%5cevil/", "/..%5c", "/%0a", "/%0d%0aSet-Cookie:x", "/%1b[2J", "/%7f",
    "/%c2%9b", "/%e2%80%ae", "/%ff", "/%c0%ae%c0%ae/", "/%ed%a0%80", "/" + "a" * 255, "/" + "a" * 256, "/" + "a" * 5000,
    "/" + "a/" * 2000, "/livereload/" + "9" * 5000 + "/1", "/mlp/index.html/", "/mlp/index.html/x", "/none", "/none/",
    "/%252e%252e/", "/mlp%2f..%2f..%2f/", "/~root/", "/etc/passwd", "/proc/self/environ", "/mlp;x", "*", "mlp/",
)  # fmt: skip


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """Of a preview with two pages that are never outdated."""
    for page in ("", "mlp/", "naïve/"):
        (tmp_path / "site" / page).mkdir(parents=True, exist_ok=True)
        (tmp_path / "site" / page / "index.html").write_bytes(PAGE)
    (tmp_path / "index.html").write_bytes(b"outside")
    port = free_port()
    preview = Preview(tmp_path / "site", port)
    preview._refresh = lambda *requested: None  # type: ignore[method-assign]
    preview.server.server_bind()
    preview.server.server_activate()
    thread = threading.Thread(target=preview.server.serve_forever, args=(0.01,))
    thread.start()
    yield port
    super(type(preview.server).__mro__[1], preview.server).shutdown()
    thread.join()
    preview.server.server_close()


def ask(port: int, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as talk:
        talk.sendall(request)
        talk.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: talk.recv(65536), b""))


def get(port: int, path: str, host: str | None = "127.0.0.1", method: str = "GET") -> bytes:
    head = "" if host is None else f"Host: {host}\r\n"
    return ask(port, f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode())


def status(reply: bytes) -> int:
    return int(reply.split()[1])


def test_pages_are_served(port: int) -> None:
    for host in HOSTS:
        assert status(get(port, "/", host)) == 200
    for path in PAGES:
        assert b"a page" in get(port, path)
    assert status(get(port, "/mlp")) == 302


@pytest.fixture(autouse=True)
def logged(monkeypatch: pytest.MonkeyPatch) -> list[logging.LogRecord]:
    """What is logged, which else goes to the terminal."""
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    monkeypatch.setattr(handler, "emit", records.append)
    monkeypatch.setattr(logging.getLogger(), "handlers", [handler])
    return records


def test_other_hosts_get_nothing(port: int, capfd: pytest.CaptureFixture[str]) -> None:
    for host in (None, *OTHER_HOSTS):
        for path in ("/", "/mlp/", "/livereload/1/1"):
            reply = get(port, path, host)
            assert (host, status(reply)) == (host, 404)
            assert b"a page" not in reply
    assert capfd.readouterr() == ("", "")


def test_odd_paths_are_not_found(port: int, capfd: pytest.CaptureFixture[str], logged: list[logging.LogRecord]) -> None:
    for path in ODD_PATHS:
        for method in ("GET", "HEAD", "POST"):
            reply = get(port, path, method=method)
            assert (path[:60], method, status(reply)) == (path[:60], method, 404)
            assert b"outside" not in reply
    assert capfd.readouterr() == ("", "")
    assert not [record for record in logged if record.exc_info]


@pytest.mark.parametrize(
    "request_bytes",
    [b"", b"\0\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"GET / x y\r\n\r\n", b"\x16\x03\x01\x02",
     b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 200 + b"\r\n",
     b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\n\r\n", b"GET / HTTP/1.1\r\nx\r\n\r\n"],
    ids=lambda request: str(request[:20]),
)  # fmt: skip
def test_malformed_requests(port: int, request_bytes: bytes, capfd: pytest.CaptureFixture[str]) -> None:
    reply = ask(port, request_bytes)
    assert b"a page" not in reply or request_bytes.count(b"Host") != 1
    assert "Traceback" not in capfd.readouterr().err
    assert status(get(port, "/")) == 200


def test_a_log_cannot_steer_the_terminal() -> None:
    record = logging.LogRecord("mkdocs", logging.WARNING, "", 0, '"GET /\x1b[2J\u202e" code 404\nand so on', None, None)
    assert PrintableFormatter().format(record) == '"GET /\\x1b[2J\\u202e" code 404\nand so on'
