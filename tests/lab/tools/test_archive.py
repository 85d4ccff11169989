"""Recordings on their way home: all of them, unaltered, or none."""

from __future__ import annotations

import gzip
import io
import json
import random
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from snippets.lab.recording.loading import load_recording
from snippets.lab.tools.archive import Imported, pack_archive, unpack_archive
from snippets.lab.tools.archive_members import LIMITS, ArchiveError, Limits
from tests.lab import samples
from tests.lab.samples import DEVICE, as_dict, files, sample, save_all

JSON, TRACE = f"{DEVICE}/mlp/eager.json", f"{DEVICE}/mlp/eager.trace.json.gz"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Where recordings live, with one that must survive whatever comes."""
    save_all(tmp_path / "home", sample(label="as it was"))
    return tmp_path / "home"


def packed(tmp_path: Path) -> Path:
    save_all(tmp_path / "away", sample(), sample("mlp/new", has_trace=False), sample("linear/eager"))
    pack_archive(tmp_path / "away", DEVICE, tmp_path / "out" / "a.tar.gz")
    return tmp_path / "out" / "a.tar.gz"


def tarred(path: Path, *members: tuple[str | tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for member, content in members:
            info = member if isinstance(member, tarfile.TarInfo) else tarfile.TarInfo(member)
            if info.isfile():
                info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def good() -> dict[str, bytes]:
    return {JSON: json.dumps(as_dict(sample())).encode(), TRACE: samples.gzipped(samples.trace_json())}


def refused(source: Path, home: Path, message: str, limits: Limits = LIMITS) -> None:
    before = files(home)
    with pytest.raises(ArchiveError) as raised:
        unpack_archive(home, source, limits)
    assert message in str(raised.value)
    assert source.name in str(raised.value)
    assert files(home) == before


def test_what_is_packed_is_what_is_unpacked(tmp_path: Path) -> None:
    source = packed(tmp_path)
    ids = [f"{DEVICE} linear/eager", f"{DEVICE} mlp/eager", f"{DEVICE} mlp/new"]
    assert unpack_archive(tmp_path / "home", source) == Imported(ids)
    assert files(tmp_path / "home") == files(tmp_path / "away")
    assert len(files(tmp_path / "home")) == 5


def test_packing_counts_and_takes_only_recordings_of_the_device(tmp_path: Path) -> None:
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


def test_the_same_file_by_hand_is_taken(tmp_path: Path, home: Path) -> None:
    """What the refusals below differ from."""
    assert unpack_archive(home, tarred(tmp_path / "a.tar.gz", *good().items())) == Imported([f"{DEVICE} mlp/eager"])
    assert load_recording(home, DEVICE, "mlp/eager").label == "mlp_fwd"


@pytest.mark.parametrize(
    ("session", "is_kept"),
    [("2026-10-19T10:00:01Z", False), ("2026-10-20T10:00:00Z", False), ("2026-10-21T00:00:00Z", True)],
)
def test_a_newer_recording_is_kept(session: str, is_kept: bool, tmp_path: Path) -> None:
    """Another machine's archive also holds what that machine was given, which may be older than what is here."""
    old = tmp_path / "away", sample(session="2026-10-20T10:00:00Z", label="theirs")
    save_all(*old, sample("mlp/new", has_trace=False, session="2026-10-20T10:00:00Z"))
    pack_archive(tmp_path / "away", DEVICE, tmp_path / "a.tar.gz")
    save_all(tmp_path / "home", sample(session=session, label="ours"))
    imported = unpack_archive(tmp_path / "home", tmp_path / "a.tar.gz")
    assert imported.kept == [f"{DEVICE} mlp/eager"] * is_kept
    assert imported.written == [f"{DEVICE} mlp/eager"] * (not is_kept) + [f"{DEVICE} mlp/new"]
    assert load_recording(tmp_path / "home", DEVICE, "mlp/eager").label == ("ours" if is_kept else "theirs")


@pytest.mark.parametrize(
    "name",
    [
        f"../{JSON}",
        f"{DEVICE}/../mlp/eager.json",
        f"{DEVICE}/mlp/../../../../etc/cron.json",
        f"/{JSON}",
        f"/etc/{JSON}",
        f"./{JSON}",
        f"{DEVICE}/mlp/eager.py",
        f"{DEVICE}/mlp/sub/eager.json",
        f"{DEVICE}/eager.json",
        f"{DEVICE}/mlp/.eager.json",
        f"{DEVICE}\\mlp\\eager.json",
        f"{DEVICE}/mlp/eager.json\n",
        "",
    ],
)
def test_a_foreign_name(tmp_path: Path, home: Path, name: str) -> None:
    source = tarred(tmp_path / "a.tar.gz", *good().items(), (name, b"{}"))
    refused(source, home, f"a.tar.gz: {name!r} is not a recording; nothing was unpacked")
    assert not (tmp_path / "etc").exists()


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE]
)
def test_not_a_file(tmp_path: Path, home: Path, kind: bytes) -> None:
    info = tarfile.TarInfo(f"{DEVICE}/mlp/other.json")
    info.type, info.linkname = kind, "/etc/passwd"
    source = tarred(tmp_path / "a.tar.gz", *good().items(), (info, b""))
    refused(source, home, f"'{DEVICE}/mlp/other.json' is not a recording; nothing was unpacked")


def test_a_huge_member(tmp_path: Path, home: Path) -> None:
    source = tarred(tmp_path / "a.tar.gz", *good().items(), (f"{DEVICE}/mlp/other.json", bytes(4_000_001)))
    assert source.stat().st_size < 20_000
    refused(source, home, f"{DEVICE}/mlp/other.json is too large; nothing was unpacked")


def test_an_archive_that_unpacks_to_a_huge_one(tmp_path: Path, home: Path) -> None:
    members = [(f"{DEVICE}/mlp/n{place}.json", bytes(300_000)) for place in range(4)]
    source = tarred(tmp_path / "a.tar.gz", *members)
    refused(source, home, "a.tar.gz is too large for recordings", Limits(archive_bytes=1_000_000))


def test_a_trace_that_unpacks_to_a_huge_one(tmp_path: Path, home: Path) -> None:
    bomb = samples.gzipped(b'{"traceEvents": []' + b" " * 2_000_000 + b"}")
    source = tarred(tmp_path / "a.tar.gz", *{**good(), TRACE: bomb}.items())
    refused(source, home, "over 1,000,000 bytes", Limits(trace_bytes=1_000_000))


def test_a_trace_above_the_limit_keeps_the_others_out(tmp_path: Path, home: Path) -> None:
    """Found while checking, not while writing, when half of it would be unpacked."""
    noise = samples.gzipped(json.dumps({"traceEvents": [], "n": random.Random(0).randbytes(1_000_000).hex()}).encode())
    other = {name.replace("eager", "zz"): content for name, content in good().items()}
    other[f"{DEVICE}/mlp/zz.json"] = json.dumps(as_dict(sample("mlp/zz"))).encode()
    members = {**good(), **other, f"{DEVICE}/mlp/zz.trace.json.gz": noise}
    refused(tarred(tmp_path / "a.tar.gz", *members.items()), home, "and the limit is 1,000,000")


@pytest.mark.parametrize("left", [0, 1, 10, 200, -200, -9, -1])
def test_a_truncated_archive(tmp_path: Path, home: Path, left: int) -> None:
    source = packed(tmp_path)
    samples.damage(source, lambda content: content[:left])
    refused(source, home, "a.tar.gz is not an archive of recordings: ")


def test_an_archive_with_a_bad_byte(tmp_path: Path, home: Path) -> None:
    """Wherever it is, it is noticed: the gzip stream ends in a checksum."""
    source = packed(tmp_path)
    whole = source.read_bytes()
    for place in range(12, len(whole), len(whole) // 40):
        source.write_bytes(whole[:place] + bytes([whole[place] ^ 0x10]) + whole[place + 1 :])
        refused(source, home, "a.tar.gz")


@pytest.mark.parametrize(
    "content", [b"", b"PK\x03\x04 a zip", gzip.compress(b"not a tar" * 200, mtime=0), b"\x1f\x8b\x08"]
)
def test_not_an_archive(tmp_path: Path, home: Path, content: bytes) -> None:
    (tmp_path / "a.tar.gz").write_bytes(content)
    refused(tmp_path / "a.tar.gz", home, "a.tar.gz is not an archive of recordings: ")


def test_an_archive_that_is_not_there(tmp_path: Path, home: Path) -> None:
    refused(tmp_path / "a.tar.gz", home, f"cannot read {tmp_path / 'a.tar.gz'}: no such file")
    (tmp_path / "a.tar.gz").mkdir()
    refused(tmp_path / "a.tar.gz", home, f"cannot read {tmp_path / 'a.tar.gz'}: not a file")


def test_an_empty_archive(tmp_path: Path, home: Path) -> None:
    refused(tarred(tmp_path / "a.tar.gz"), home, "a.tar.gz contains no recordings")


def changed(**fields: object) -> Callable[[dict[str, bytes]], dict[str, bytes]]:
    return lambda members: {**members, JSON: json.dumps({**as_dict(sample()), **fields}).encode()}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (changed(experiment="compiled"), f"{JSON}: it does not match its name, or its trace is missing"),
        (changed(chapter="linear"), f"{JSON}: it does not match its name, or its trace is missing"),
        (changed(has_trace=False), f"{JSON}: it does not match its name, or its trace is missing"),
        (lambda members: {JSON: members[JSON]}, f"{JSON}: it does not match its name, or its trace is missing"),
        (lambda members: {TRACE: members[TRACE]}, f"{TRACE}: has no recording beside it; nothing was unpacked"),
        (changed(schema=9), "has schema 9 and this version reads 2; record it again; nothing was unpacked"),
        (changed(points=3), "is damaged: Expected `array`, got `int` - at `$.points`"),
        (lambda members: {**members, JSON: b"{"}, "is not a recording (Input data was truncated)"),
        (lambda members: {**members, JSON: b"[" * 100_000}, "is not a recording ("),
        (lambda members: {**members, TRACE: b""}, f"{JSON}: trace: empty"),
        (lambda members: {**members, TRACE: members[TRACE][:-20]}, "the file is cut off"),
        (lambda members: {**members, TRACE: samples.gzipped(b'{"a": 1}')}, "JSON, but not a Kineto trace"),
        (lambda members: {**members, TRACE: samples.gzipped(b"[" * 100_000)}, "is not complete JSON"),
        (
            lambda members: {**members, TRACE: samples.trace_json()},
            f"{JSON}: its trace is not compressed; record it again; nothing was unpacked",
        ),
    ],
)
def test_a_recording_that_is_not_sound(
    tmp_path: Path, home: Path, change: Callable[[dict[str, bytes]], dict[str, bytes]], message: str
) -> None:
    sound = {name.replace("eager", "aa"): content for name, content in good().items()}
    sound[f"{DEVICE}/mlp/aa.json"] = json.dumps(as_dict(sample("mlp/aa"))).encode()
    source = tarred(tmp_path / "a.tar.gz", *sound.items(), *change(good()).items())
    refused(source, home, message)


def test_a_recording_of_another_device(tmp_path: Path, home: Path) -> None:
    members = {name.replace(DEVICE, "nvidia-h200"): content for name, content in good().items()}
    source = tarred(tmp_path / "a.tar.gz", *members.items())
    refused(source, home, "a.tar.gz: nvidia-h200/mlp/eager.json: it was recorded on 'NVIDIA Sample'")
