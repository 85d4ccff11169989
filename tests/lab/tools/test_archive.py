"""Recordings on their way home: all of them, unaltered, or none. What a stranger packs is refused, or harmless."""

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
from snippets.lab.recording.device import MAX_DEVICES
from snippets.lab.recording.loading import load_recording, load_trace
from snippets.lab.recording.schema import Recording
from snippets.lab.tools import archive
from snippets.lab.tools.archive import ArchiveError, Imported, pack_archive, unpack_archive
from tests.lab import samples
from tests.lab.rank_samples import merged_trace
from tests.lab.samples import as_dict, environment, files, gzipped, recordings

DEVICE = "nvidia-t100"
JSON, TRACE = f"{DEVICE}/mlp/eager.json", f"{DEVICE}/mlp/eager.trace.json.gz"
VALUES: tuple[Any, ...] = (None, [], {}, 7, -1, 2**70, 1.5, True, "", "\x1b[31m\n", [[None]], {"a": {"b": []}})
Members = dict[str, bytes]


def sample(name: str = "mlp/eager", device: str = "NVIDIA T100", **changed: Any) -> Recording:
    return samples.sample(name, **{"environment": environment(device=device), **changed})


def save_all(root: Path, *recordings: Recording, device: str = DEVICE) -> None:
    samples.save_all(root, *recordings, device=device)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Where recordings live, with one that must survive whatever comes."""
    save_all(tmp_path / "home" / "recordings", sample(label="as it was"))
    return tmp_path / "home" / "recordings"


def tarred(*members: tuple[str | tarfile.TarInfo, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for member, content in members:
            info = member if isinstance(member, tarfile.TarInfo) else tarfile.TarInfo(member)
            info.size = len(content) if info.isfile() else 0
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def good(**changed: Any) -> Members:
    return {JSON: json.dumps({**as_dict(sample()), **changed}).encode(), TRACE: gzipped(samples.trace_json())}


def packed(members: Members) -> bytes:
    return gzipped(tarred(*members.items()))


def attack(home: Path, content: bytes) -> str:
    """Import an archive: the message if it was refused, and nothing has changed; else its recordings can be read."""
    source = home.parents[1] / "a.tar.gz"
    source.write_bytes(content)
    before = files(home.parent)
    message, imported = "", Imported()
    try:
        imported = unpack_archive(home, source)
    except ArchiveError as error:
        message = str(error)
    if message:
        assert files(home.parent) == before
        assert "a.tar.gz" in message
        assert message.endswith("; nothing was unpacked")
    for name in imported.written:
        device, experiment = name.split()
        if load_recording(home, device, experiment).has_trace:
            load_trace(home, device, experiment)
    return message


# ---- packed and unpacked


def test_what_is_packed_is_what_is_unpacked(tmp_path: Path) -> None:
    save_all(tmp_path / "away", sample(), sample("mlp/new", has_trace=False), sample("linear/eager"))
    assert pack_archive(tmp_path / "away", DEVICE, tmp_path / "out" / "a.tar.gz") == 5
    ids = [f"{DEVICE} linear/eager", f"{DEVICE} mlp/eager", f"{DEVICE} mlp/new"]
    assert unpack_archive(tmp_path / "home", tmp_path / "out" / "a.tar.gz") == Imported(ids)
    assert files(tmp_path / "home") == files(tmp_path / "away")


def test_ranks_are_packed_as_one_trace(tmp_path: Path) -> None:
    on_two = sample(environment=environment(device="NVIDIA T100", gpus=2))
    samples.save_all(tmp_path / "away", on_two, device=DEVICE, trace=merged_trace((1.0, 2.0)))
    assert pack_archive(tmp_path / "away", DEVICE, tmp_path / "a.tar.gz") == 2
    assert unpack_archive(tmp_path / "home", tmp_path / "a.tar.gz") == Imported([f"{DEVICE} mlp/eager"])
    assert files(tmp_path / "home") == files(tmp_path / "away")


def test_packing_takes_only_recordings_of_the_device(tmp_path: Path) -> None:
    save_all(tmp_path / "away", sample(), sample("mlp/new", has_trace=False))
    save_all(tmp_path / "away", sample(), device="nvidia-other")
    (tmp_path / "away" / DEVICE / "mlp" / ".eager.json.1.new").write_text("half")
    (tmp_path / "away" / DEVICE / "notes.txt").write_text("not ours")
    assert pack_archive(tmp_path / "away", DEVICE, tmp_path / "a.tar.gz") == 3
    with tarfile.open(tmp_path / "a.tar.gz") as tar:
        assert tar.getnames() == [JSON, TRACE, f"{DEVICE}/mlp/new.json"]


def test_packing_the_same_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        save_all(tmp_path / name, sample(), sample("mlp/new", has_trace=False))
        for path in (tmp_path / name).rglob("*"):
            path.chmod(0o700 if name == "a" or path.is_dir() else 0o600)
        pack_archive(tmp_path / name, DEVICE, tmp_path / f"{name}.tar.gz")
    packed_bytes = (tmp_path / "a.tar.gz").read_bytes()
    assert packed_bytes == (tmp_path / "b.tar.gz").read_bytes()
    assert packed_bytes[4:8] == bytes(4), "no time of packing"


@pytest.mark.parametrize(
    ("session", "is_kept"),
    [
        ("2026-10-19T10:00:01Z", False),
        ("2026-10-20T10:00:00Z", False),
        ("2026-10-21T00:00:00Z", True),
        ("9999-12-31T23:59:59Z", False),  # imported before dates were checked
    ],
)
def test_a_newer_recording_is_kept(session: str, is_kept: bool, home: Path, tmp_path: Path) -> None:
    """Another machine's archive also holds what that machine was given, which may be older than what is here."""
    old = {"session": "2026-10-20T10:00:00Z", "label": "theirs"}
    save_all(tmp_path / "away", sample(**old), sample("mlp/new", has_trace=False, **old))
    pack_archive(tmp_path / "away", DEVICE, tmp_path / "a.tar.gz")
    save_all(home, sample(session=session, label="ours"))
    imported = unpack_archive(home, tmp_path / "a.tar.gz")
    assert imported.kept == [f"{DEVICE} mlp/eager"] * is_kept
    assert imported.written == [f"{DEVICE} mlp/eager"] * (not is_kept) + [f"{DEVICE} mlp/new"]
    assert load_recording(home, DEVICE, "mlp/eager").label == ("ours" if is_kept else "theirs")


def test_a_recording_from_before_the_digest_is_not_rewritten(home: Path, tmp_path: Path) -> None:
    """An archive has all recordings of its machine: those that it cloned are the same here."""
    samples.untie(home / TRACE)
    before = files(home)
    (tmp_path / "a.tar.gz").write_bytes(packed({name: before[name] for name in (JSON, TRACE)}))
    assert unpack_archive(home, tmp_path / "a.tar.gz") == Imported(unchanged=[f"{DEVICE} mlp/eager"])
    assert files(home) == before


# ---- refused


def test_the_same_file_by_hand_is_taken(home: Path) -> None:
    """What the refusals below differ from."""
    assert attack(home, packed(good())) == ""
    assert load_recording(home, DEVICE, "mlp/eager").label == "mlp_fwd"


def test_a_foreign_name(home: Path) -> None:
    folder = f"{DEVICE}/mlp"
    names = [f"../{JSON}", f"{DEVICE}/../mlp/eager.json", f"{folder}/../../../../etc/cron.json", f"/etc/{JSON}", ""]
    names += [f"./{JSON}", f"{folder}/eager.py", f"{folder}/sub/eager.json", f"{DEVICE}/eager.json", f"/{JSON}"]
    names += [f"{folder}/.eager.json", f"{DEVICE}\\mlp\\eager.json", f"{folder}/eager.json\n"]
    for name in names:
        assert f"{name!r} is not a recording" in attack(home, packed({**good(), name: b"{}"}))


def test_not_a_file(home: Path) -> None:
    for kind in b"123456ADMNSV\xff":
        info = tarfile.TarInfo(f"{DEVICE}/mlp/other.json")
        info.type, info.linkname = bytes([kind]), "/etc/passwd"
        message = attack(home, gzipped(tarred(*good().items(), (info, b""))))
        assert f"'{DEVICE}/mlp/other.json' is not a recording" in message


def broken() -> Iterator[tuple[str, bytes]]:
    """Files that are no archives, or archives that could mislead a reader."""
    whole = tarred(*good().items())
    info = tarfile.TarInfo(JSON)
    info.size = -1024  # a reader that goes back by it reads this header again
    yield "a header that leads back to itself", gzipped(info.tobuf(tarfile.GNU_FORMAT) + bytes(1024))
    yield "nested long names", gzipped(_long_name() * 3_000)
    damaged = bytearray(tarred(*good().items(), (f"{DEVICE}/mlp/other.json", b"{}")))
    damaged[damaged.rindex(b"other.json")] ^= 1
    yield "a damaged header behind whole files", gzipped(bytes(damaged))
    yield "something behind its end", gzipped(whole + b"x" * 512)
    yield "no member", gzipped(bytes(10240))
    yield "twice", gzipped(tarred(*good().items(), (JSON, good()[JSON])))
    yield "many members", gzipped(tarred(*((f"{DEVICE}/mlp/n{number}.json", b"") for number in range(2_001))))
    yield "not an archive", gzipped(b"not a tar" * 200)
    yield "not compressed", whole
    yield "cut off", gzipped(whole)[:-20]
    yield "empty", b""
    yield "zip", b"PK\x03\x04 a zip"
    yield "a huge member", packed({**good(), f"{DEVICE}/mlp/other.json": bytes(4_000_001)})
    yield "a trace of zeros", packed({**good(), TRACE: zeros(1 << 26)})
    yield "a trace of blanks", packed({**good(), TRACE: gzipped(b'{"traceEvents": []' + b" " * 17_000_000 + b"}")})


def _sparse() -> bytes:
    """A file of 4 MB, all of them a hole."""
    info = tarfile.TarInfo(f"{DEVICE}/mlp/other.json")
    info.pax_headers = {"GNU.sparse.size": "4000000", "GNU.sparse.map": "0,0"}
    return info.tobuf(tarfile.PAX_FORMAT)


def _long_name() -> bytes:
    info = tarfile.TarInfo("long")
    info.type, info.size = b"L", 512
    return info.tobuf(tarfile.USTAR_FORMAT)


def zeros(count: int) -> bytes:
    """Compressed zeros, made without holding them."""
    packer = zlib.compressobj(9, wbits=31)
    return b"".join([*(packer.compress(bytes(1 << 20)) for _ in range(count >> 20)), packer.flush()])


def test_what_is_no_archive_is_refused_at_once(home: Path) -> None:
    for name, content in broken():
        begin = time.process_time()
        assert attack(home, content), name
        assert time.process_time() - begin < 10, name


def test_a_hole_is_refused_before_it_is_read(home: Path) -> None:
    assert "mlp/other.json has more than a plain header" in attack(home, gzipped(_sparse() + bytes(1024)))


def test_an_archive_has_a_limit(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "ARCHIVE_BYTES", 10_000)
    assert "a.tar.gz is not an archive of recordings: it is too large" in attack(home, packed(good()))


def test_all_traces_have_a_limit(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is small; compressed, they could be 100 times as small."""
    sound = {f"{DEVICE}/mlp/aa.json": json.dumps(as_dict(sample("mlp/aa"))).encode()}
    members = {**sound, f"{DEVICE}/mlp/aa.trace.json.gz": good()[TRACE], **good()}
    monkeypatch.setattr(archive, "TRACES_BYTES", 2 * len(samples.trace_json()) - 1)
    message = attack(home, packed(members))
    assert f"{JSON}: with its trace, all traces have over {archive.TRACES_BYTES:,} bytes" in message
    monkeypatch.setattr(archive, "TRACES_BYTES", 2 * len(samples.trace_json()))
    assert attack(home, packed(members)) == ""


def of(device: str, folder: str) -> Members:
    """A sound recording of a device."""
    recording = json.dumps(as_dict(sample(device=device, has_trace=False))).encode()
    return {f"{folder}/mlp/eager.json": recording}


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({**of("ACME 1", "acme-1"), **of("ACME 2", "acme-2")}, "it has recordings of 2 devices; an archive is of one"),
        (of("NVIDIA Sample", "nvidia-sample"), "the book uses the name nvidia-sample itself"),
        (of("nvidia (sample)", "nvidia-sample"), "the book uses the name nvidia-sample itself"),
        (of("\u4e2d", "unknown"), "the book uses the name unknown itself"),
        (of("NVIDIA T100", "nvidia-h200"), "nvidia-h200/mlp/eager.json: it was recorded on 'NVIDIA T100'"),
        (of("H200", "h200"), "pages would show h200 under the name of nvidia-h200, H200"),
        (of("T100", "t100"), "pages would show t100 under the name of nvidia-t100, T100"),
        (
            {f"{DEVICE}/labs/mlp.json": json.dumps(as_dict(sample("labs/mlp", has_trace=False))).encode()},
            "labs is no chapter",
        ),
    ],
)
def test_a_name_that_pages_could_not_show(home: Path, members: Members, message: str) -> None:
    assert message in attack(home, packed(members))


def test_no_more_devices_than_a_build_can_bear(home: Path) -> None:
    for number in range(1, MAX_DEVICES):
        assert attack(home, packed(of(f"ACME {number}", f"acme-{number}"))) == ""
    assert f"{MAX_DEVICES} devices are recorded, the most that a build" in attack(home, packed(of("ACME 0", "acme-0")))
    assert attack(home, packed(of("ACME 1", "acme-1"))) == "", "a recorded device has its place"


ATTACK = samples.PROJECT.parent / "shared" / "attack"


@pytest.mark.skipif(not ATTACK.is_dir(), reason="no archives in ../shared/attack")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a8-sample-device", "the book uses the name nvidia-sample"),
        ("d5-plain-devices", "recordings of 5 devices"),
    ],
)
def test_an_archive_that_stopped_a_build(home: Path, name: str, message: str) -> None:
    with pytest.raises(ArchiveError, match=message):
        unpack_archive(home, ATTACK / f"{name}.tar.gz")


def test_an_archive_that_is_not_there(tmp_path: Path, home: Path) -> None:
    with pytest.raises(ArchiveError, match=r"cannot read .*b\.tar\.gz: no such file"):
        unpack_archive(home, tmp_path / "b.tar.gz")
    with pytest.raises(ArchiveError, match=r"cannot read .*: not a file"):
        unpack_archive(home, tmp_path)


def changed(**fields: object) -> Callable[[Members], Members]:
    return lambda members: {**members, JSON: json.dumps({**as_dict(sample()), **fields}).encode()}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (changed(experiment="compiled"), f"{JSON}: it does not match its name, or its trace is missing"),
        (changed(chapter="linear"), f"{JSON}: it does not match its name, or its trace is missing"),
        (changed(has_trace=False), f"{JSON}: it does not match its name, or its trace is missing"),
        (lambda members: {JSON: members[JSON]}, f"{JSON}: it does not match its name, or its trace is missing"),
        (lambda members: {TRACE: members[TRACE]}, f"{TRACE}: has no recording beside it"),
        (changed(schema=9), "has schema 9 and this version reads 2; record it again"),
        (changed(points=3), "is damaged: Expected `array`, got `int` - at `$.points`"),
        (changed(trace_sha256="0" * 64), "it is damaged: it was not saved with this trace"),
        (
            changed(
                circumstances=as_dict(sample(environment=environment(device="NVIDIA T100", gpus=2)))["circumstances"]
            ),
            "its member mergedRanks is missing or damaged",
        ),
        (changed(session="2126-01-01T00:00:00Z"), "is in the future"),
        (changed(session="2026-1-1T1:1:1Z"), "is not a date such as"),
        (lambda members: {**members, JSON: b"{"}, "is not a recording (Input data was truncated)"),
        (lambda members: {**members, JSON: b"[" * 100_000}, "is not a recording ("),
        (lambda members: {**members, TRACE: b""}, f"{JSON}: trace: empty"),
        (lambda members: {**members, TRACE: members[TRACE][:-20]}, "the file is cut off"),
        (lambda members: {**members, TRACE: gzipped(b'{"a": 1}')}, "JSON, but not a Kineto trace"),
        (lambda members: {**members, TRACE: gzipped(b"[" * 100_000)}, "is not complete JSON"),
        (lambda members: {**members, TRACE: samples.trace_json()}, "its trace is not compressed as record does it"),
        (
            lambda members: {
                **members,
                TRACE: members[TRACE][:3] + b"\x08" + members[TRACE][4:10] + b"host\0" + members[TRACE][10:],
            },
            "its trace is not compressed as record does it",
        ),
    ],
)
def test_a_recording_that_is_not_sound(home: Path, change: Callable[[Members], Members], message: str) -> None:
    """It also keeps out a sound one before it."""
    sound = {name.replace("eager", "aa"): content for name, content in good().items()}
    sound[f"{DEVICE}/mlp/aa.json"] = json.dumps(as_dict(sample("mlp/aa"))).encode()
    assert message in attack(home, packed({**sound, **change(good())}))


def contents() -> Iterator[tuple[str, Members]]:
    """Every field with values of every kind."""
    for field in as_dict(sample()):
        for value in VALUES:
            yield f"{field} = {value!r}", good(**{field: value})
    for value in (*VALUES, "9999-12-31T23:59:59Z", "0000-00-00"):
        yield f"date = {value!r}", good(circumstances={**as_dict(sample())["circumstances"], "date": value})
    for value in VALUES:
        yield f"JSON is {value!r}", {**good(), JSON: json.dumps(value).encode()}
        yield f"trace is {value!r}", {**good(), TRACE: gzipped(json.dumps(value).encode())}
        yield f"notebook is {value!r}", {"nvidia-h200/labs/mlp.ipynb": json.dumps(value).encode()}
    for depth in (33, 900, 100_000):
        nested = b'{"a":' * depth + b"1" + b"}" * depth
        yield f"{depth} deep", {**good(), JSON: good(data=7)[JSON].replace(b'"data": 7', b'"data": ' + nested)}
        yield f"notebook {depth} deep", {"nvidia-h200/labs/mlp.ipynb": nested}


def test_any_content_is_refused_or_harmless(home: Path) -> None:
    refusals = 0
    for name, members in contents():
        message = attack(home, packed(members))
        refusals += bool(message)
        assert message or name.partition(" ")[0] in {"trace", *as_dict(sample())}, name
    assert refusals > 50


# ---- interrupted


def test_ctrl_c_changes_nothing(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message is true."""
    before = files(home)
    source = home.parents[1] / "a.tar.gz"
    source.write_bytes(packed(good()))

    def interrupted(descriptor: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.fsync", interrupted)
    recordings(monkeypatch, home)
    assert main(["import", str(source)]) == 130
    assert capsys.readouterr().err == "\nstopped; every recording is whole, the old or the new one\n"
    assert files(home) == before


def test_a_full_disk_imports_nothing(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = files(home)
    source = home.parents[1] / "a.tar.gz"
    source.write_bytes(
        packed({**good(), f"{DEVICE}/mlp/new.json": json.dumps(as_dict(sample("mlp/new", has_trace=False))).encode()})
    )
    calls = iter((None, None, OSError(28, "No space left on device")))

    def full(descriptor: int) -> None:
        if error := next(calls):
            raise error

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(ArchiveError) as raised:
        unpack_archive(home, source)
    assert (
        str(raised.value)
        == "a.tar.gz: cannot write recordings: [Errno 28] No space left on device; then import it again"
    )
    assert files(home) == before
