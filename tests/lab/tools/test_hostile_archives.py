"""Archives as nobody packs them: refused in one line, within the limits of `archive_members`, or harmless."""

from __future__ import annotations

import io
import json
import tarfile
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from snippets.lab.__main__ import main
from snippets.lab.recording.loading import load_recording, load_trace
from snippets.lab.tools.archive import Imported, unpack_archive
from snippets.lab.tools.archive_members import ArchiveError
from tests.lab import samples
from tests.lab.samples import DEVICE, as_dict, files, gzipped, sample, save_all

JSON, TRACE = f"{DEVICE}/mlp/eager.json", f"{DEVICE}/mlp/eager.trace.json.gz"
VALUES: tuple[Any, ...] = (None, [], {}, 7, -1, 2**70, 1.5, True, "", "\x1b[31m\n", [[None]], {"a": {"b": []}})


def tarred(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def good(**changed: Any) -> dict[str, bytes]:
    return {JSON: json.dumps({**as_dict(sample()), **changed}).encode(), TRACE: gzipped(samples.trace_json())}


def header(at: int = 0, value: bytes = b"", kind: bytes = b"0", name: str = JSON) -> bytes:
    """A tar header with some bytes replaced and the right checksum."""
    info = tarfile.TarInfo(name)
    info.type = kind
    block = bytearray(info.tobuf(tarfile.USTAR_FORMAT))
    block[at : at + len(value)] = value
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def zeros(count: int) -> bytes:
    """Compressed zeros, made without holding them."""
    packer = zlib.compressobj(9, wbits=31)
    block = bytes(1 << 20)
    return b"".join([*(packer.compress(block) for _ in range(count >> 20)), packer.flush()])


def headers() -> Iterator[tuple[str, bytes]]:
    numbers = {"size": (124, 12), "mode": (100, 8), "uid": (108, 8), "mtime": (136, 12), "devmajor": (329, 8)}
    for field, (at, length) in numbers.items():
        for kind, value in {
            "negative": b"\xff" * length,
            "very negative": b"\xff" + bytes(length - 1),
            "minus a block": b"\xff" * (length - 2) + b"\xfe\0",
            "minus": b"-1".ljust(length, b"\0"),
            "huge": b"\x80" + b"\xff" * (length - 1),
            "text": b"null".ljust(length, b"\0"),
            "not ASCII": b"\xc3\x28".ljust(length, b"\0"),
            "underscores": b"1_0".ljust(length, b"\0"),
        }.items():
            yield f"{field} {kind}", gzipped(header(at, value) + bytes(1024))
    for kind in (*b"123456789ADKLMNSVXgx\xff", 0x20):
        yield f"type {kind}", gzipped(header(kind=bytes([kind])) + bytes(1024))
        with_size = header(124, b"00000010000\0", kind=bytes([kind]))
        yield f"type {kind} with content", gzipped(with_size + b"A" * 4096 + bytes(1024))
    back = header(124, b"\xff" * 10 + b"\xfe\0")  # tarfile would read this header again and again
    yield "a header that leads back to itself", gzipped(header() + back + bytes(1024))
    sparse = header(386, b"00000000000\0-0000000001\0" * 4, kind=b"S")
    yield "sparse", gzipped(sparse + bytes(1024))
    yield "nested long names", gzipped(header(124, b"00000001000\0", kind=b"L") * 3_000)
    yield "pax size", gzipped(header(124, b"00000000024\0", kind=b"x") + b"20 size=-99999999999".ljust(512, b"\0"))
    yield "a wrong checksum", gzipped(b"\0" + header()[1:] + bytes(1024))
    yield "no end", gzipped(tarred(good())[:-10240])
    yield "no content", gzipped(header(124, b"00000010000\0"))
    yield "no member", gzipped(bytes(10240))
    yield "twice", gzipped(tarred(good())[:-10240].rstrip(b"\0").ljust(4096, b"\0") + tarred(good()))
    yield "more behind its end", gzipped(tarred(good()) + b"more")
    yield "two gzip members", gzipped(tarred(good())) + gzipped(b"")
    yield "three thousand empty members", gzipped(b"") * 3_000 + gzipped(tarred(good()))
    yield "many members", gzipped(tarred({f"{DEVICE}/mlp/n{number}.json": b"" for number in range(2_001)}))
    yield "invalid UTF-8 in a name", gzipped(header(0, b"\xff\xfe") + bytes(1024))
    yield "a gzip header with a name of 1 MB", b"\x1f\x8b\x08\x08" + bytes(6) + b"a" * 1_000_000
    yield "a zip file", b"PK\x03\x04" * 200
    yield "nothing", b""


def bombs(scale: int) -> Iterator[tuple[str, bytes]]:
    """Small archives of many bytes: tests scale them by 1, a campaign by 64."""
    yield "a trace of zeros", gzipped(tarred({**good(), TRACE: zeros(scale << 26)}))
    yield "a compressed trace within", gzipped(tarred({**good(), TRACE: gzipped(zeros(scale << 20))}))
    blanks = gzipped(b'{"traceEvents": []' + b" " * 17_000_000 + b"}")
    yield "a trace of blanks", gzipped(tarred({**good(), TRACE: blanks}))
    yield "an archive of zeros", zeros(scale << 26)
    yield "zeros behind its end", gzipped(tarred(good()) + bytes(scale * 2_000_000))
    events = gzipped(b'{"traceEvents": [' + b"{}," * (scale * 80_000) + b"{}]}")
    yield "smallest events", gzipped(tarred({**good(), TRACE: events}))
    objects = b'{"schema":2,"data":[' + b"{}," * min(1_300_000, scale * 100_000) + b"{}]}"
    yield "JSON of small objects", gzipped(tarred({**good(), JSON: objects}))


def contents() -> Iterator[tuple[str, bytes]]:
    for field in as_dict(sample()):
        for value in VALUES:
            yield f"{field} = {value!r}", gzipped(tarred(good(**{field: value})))
    for value in (*VALUES, "9999-12-31T23:59:59Z", "2126-01-01T00:00:00Z", "zzz", "2026-1-1T1:1:1Z", "0000-00-00"):
        circumstances = {**as_dict(sample())["circumstances"], "date": value}
        yield f"date = {value!r}", gzipped(tarred(good(circumstances=circumstances)))
        yield f"session = {value!r}", gzipped(tarred(good(session=value)))
    for value in VALUES:
        yield f"JSON is {value!r}", gzipped(tarred({**good(), JSON: json.dumps(value).encode()}))
        yield f"trace is {value!r}", gzipped(tarred({**good(), TRACE: gzipped(json.dumps(value).encode())}))
        notebook = {"nvidia-h200/labs/mlp.ipynb": json.dumps(value).encode()}
        yield f"notebook is {value!r}", gzipped(tarred({**good(), **notebook}))
    for depth in (33, 400, 900, 100_000):
        nested = b'{"a":' * depth + b"1" + b"}" * depth
        yield (
            f"data {depth} deep",
            gzipped(tarred({**good(), JSON: good(data=7)[JSON].replace(b'"data": 7', b'"data": ' + nested)})),
        )
        yield f"notebook {depth} deep", gzipped(tarred({"nvidia-h200/labs/mlp.ipynb": nested}))
    named = bytearray(gzipped(samples.trace_json()))
    named[3] = 8
    named[10:10] = b"host\0"
    yield "a trace with a file name", gzipped(tarred({**good(), TRACE: bytes(named)}))
    yield "a trace of two members", gzipped(tarred({**good(), TRACE: gzipped(samples.trace_json()) + gzipped(b"")}))
    yield "a digest of another trace", gzipped(tarred(good(trace_sha256="0" * 64)))


def attack(home: Path, source: Path, content: bytes) -> str:
    """Import an archive: the message if it was refused; then nothing has changed."""
    source.write_bytes(content)
    before = files(home.parent)
    try:
        imported = unpack_archive(home, source)
    except ArchiveError as error:
        assert files(home.parent) == before
        return str(error)
    for name in imported.written:
        device, experiment = name.split()
        if load_recording(home, device, experiment).has_trace:
            load_trace(home, device, experiment)
    return ""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    save_all(tmp_path / "home" / "recordings", sample(label="as it was"))
    return tmp_path / "home" / "recordings"


@pytest.mark.parametrize("attacks", [headers, contents])
def test_an_archive_is_refused_or_harmless(
    home: Path, tmp_path: Path, attacks: Callable[[], Iterator[tuple[str, bytes]]]
) -> None:
    refused = 0
    for place, (name, content) in enumerate(attacks()):
        message = attack(home, tmp_path / "a.tar.gz", content)
        refused += bool(message)
        assert not message or message.startswith(("a.tar.gz", "cannot read")), name
        if not message:  # a field whose value is as good as another
            assert name.partition(" ")[0] in {"mode", "uid", "mtime", "devmajor", "trace", *as_dict(sample())}, name
        assert place < 500
    assert refused > 50


def test_a_bomb_is_refused_at_once(home: Path, tmp_path: Path) -> None:
    for name, content in bombs(1):
        begin = time.process_time()
        assert attack(home, tmp_path / "a.tar.gz", content) or name == "smallest events"
        assert time.process_time() - begin < 10


def test_a_recording_of_the_future_does_not_block_later_ones(home: Path, tmp_path: Path) -> None:
    """One that is here already, imported before dates were checked."""
    save_all(home, sample(session="9999-12-31T23:59:59Z"))
    (tmp_path / "a.tar.gz").write_bytes(gzipped(tarred(good())))
    assert unpack_archive(home, tmp_path / "a.tar.gz") == Imported([f"{DEVICE} mlp/eager"])


def test_a_recording_from_before_the_digest_is_not_rewritten(home: Path, tmp_path: Path) -> None:
    """An archive has all recordings of its machine: those that it cloned are the same here."""
    samples.untie(home / TRACE)
    before = files(home)
    here = {name: before[name] for name in (JSON, TRACE)}
    (tmp_path / "a.tar.gz").write_bytes(gzipped(tarred(here)))
    assert unpack_archive(home, tmp_path / "a.tar.gz") == Imported(unchanged=[f"{DEVICE} mlp/eager"])
    assert files(home) == before


def test_ctrl_c_before_the_import_is_complete_changes_nothing(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message is true."""
    before = files(home)
    (tmp_path / "a.tar.gz").write_bytes(gzipped(tarred(good())))
    monkeypatch.setenv("RECORDINGS", str(home))

    def interrupted(*arguments: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("snippets.lab.tools.archive.hold_root", interrupted)
    assert main(["import", str(tmp_path / "a.tar.gz")]) == 130
    assert capsys.readouterr().err == "\nstopped; every recording is whole, the old or the new one\n"
    assert files(home) == before


def test_a_full_disk_imports_nothing(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    message = attack(home, tmp_path / "a.tar.gz", gzipped(tarred(good())))
    assert message == "a.tar.gz: cannot write recordings: [Errno 28] No space left on device; nothing was unpacked"
