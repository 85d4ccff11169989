"""The boundary: written whole or not at all, read strictly or not at all, and stale when the code has changed."""

from __future__ import annotations

import errno
import gzip
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from snippets.lab.recording.device import (
    PROJECT,
    chapter_folder,
    recorded_devices,
    recorded_names,
    shown_device,
    slug,
    this_device,
)
from snippets.lab.recording.digest import HASHED_FILES, PROTOCOL, is_stale, source_digest
from snippets.lab.recording.loading import load_recording, load_recordings, load_trace, trace_path
from snippets.lab.recording.schema import NotRecorded, Recording, RecordingError
from snippets.lab.recording.scrub import scrub
from snippets.lab.trace.kineto import read_trace

# KEEP recording
from tests.lab import samples
from tests.lab.samples import DEVICE, as_dict, files, put, sample

AGAIN = "on a machine with this GPU run make record CHAPTER=mlp"


def load(root: Path) -> Recording:
    return load_recording("mlp/eager", DEVICE, root)


def test_what_is_saved_is_what_is_loaded(tmp_path: Path) -> None:
    one = sample(data={"graphs": [1, 2], "said": "é µ"}, points=(samples.point(), samples.point({"size": 1}, None)))
    trace = samples.trace_json()
    put(tmp_path, one, trace=trace)
    assert load(tmp_path) == one
    assert load_trace("mlp/eager", DEVICE, tmp_path) == read_trace(trace)
    assert sorted(files(tmp_path)) == [f"{DEVICE}/mlp/eager.json", f"{DEVICE}/mlp/eager.trace.json.gz"]


def test_the_same_recording_is_the_same_bytes(tmp_path: Path) -> None:
    one = sample()
    put(tmp_path / "a", one)
    put(tmp_path / "b", sample(data=dict(reversed(one.data.items()))))
    assert files(tmp_path / "a") == files(tmp_path / "b")
    text = files(tmp_path / "a")[f"{DEVICE}/mlp/eager.json"].decode()
    assert text.startswith('{\n "schema": 1,\n "chapter": "mlp",\n')
    assert text.endswith("}\n")


def test_the_order_of_keys_does_not_matter(tmp_path: Path) -> None:
    put(tmp_path / "a", sample(data={"a": 1, "b": {"c": 1, "d": 2}}))
    put(tmp_path / "b", sample(data={"b": {"d": 2, "c": 1}, "a": 1}))
    assert files(tmp_path / "a") == files(tmp_path / "b")


def test_what_is_recorded_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert recorded_devices(tmp_path / "none") == ()
    for device in ("zeta", "alpha", "nvidia-h200"):
        put(tmp_path, sample(), sample("mlp/new", has_trace=False), device=device)
    (tmp_path / "empty" / "mlp").mkdir(parents=True)
    assert recorded_devices(tmp_path) == ("nvidia-h200", "alpha", "zeta")
    assert recorded_names("zeta", "mlp", tmp_path) == ("eager", "new")
    assert recorded_names("zeta", "linear", tmp_path) == ()
    assert [one.id for one in load_recordings("zeta", tmp_path)] == ["mlp/eager", "mlp/new"]


def noise(count: int) -> bytes:
    return json.dumps({"traceEvents": [], "noise": random.Random(0).randbytes(count).hex()}).encode()


def test_a_trace_above_one_megabyte_is_refused(tmp_path: Path) -> None:
    put(tmp_path, sample())
    before = files(tmp_path)
    message = r"^the trace of mlp/eager is 1,\d{3},\d{3} bytes and the limit is 1,000,000: profile fewer steps"
    with pytest.raises(RecordingError, match=message):
        put(tmp_path, sample(label="new"), trace=noise(950_000))
    assert files(tmp_path) == before
    put(tmp_path, sample(label="new"), trace=noise(800_000))
    assert load(tmp_path).label == "new"


def failing(error: OSError, at_call: int, real: Callable[..., Any]) -> Callable[..., Any]:
    """`real`, but its call number `at_call` raises."""
    calls = 0

    def function(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == at_call:
            raise error
        return real(*arguments, **options)

    return function


FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("name", ["replace", "fsync"])
@pytest.mark.parametrize("at_call", [1, 2])
@pytest.mark.parametrize("before", ["with trace", "without trace", "nothing"])
def test_a_disk_that_fails_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, at_call: int, before: str
) -> None:
    if before != "nothing":
        put(tmp_path, sample(has_trace=before == "with trace"))
    was = files(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(os, name, failing(FULL, at_call, getattr(os, name)))
        with pytest.raises(OSError, match="No space left on device") as raised:
            put(tmp_path, sample(label="new"), trace=samples.trace_json(name="new"))
    assert raised.value.errno == errno.ENOSPC
    assert files(tmp_path) == was
    put(tmp_path, sample(label="new"), trace=samples.trace_json(name="new"))
    assert (load(tmp_path).label, len(files(tmp_path))) == ("new", 2)


def test_a_real_full_disk_loses_nothing(tmp_path: Path) -> None:
    """In a process whose files may have 700 bytes at most: the trace fits, the JSON does not."""
    resource = pytest.importorskip("resource")
    put(tmp_path, sample(), trace=b'{"traceEvents": []}')
    was = files(tmp_path)
    code = (
        "import resource, signal, sys\nfrom pathlib import Path\nfrom tests.lab import samples\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\nresource.setrlimit(resource.RLIMIT_FSIZE, (700, 700))\n"
        "samples.put(Path(sys.argv[1]), samples.sample(label='new'), trace=b'{\"traceEvents\": [ ]}')\n"
    )
    done = subprocess.run(
        [sys.executable, "-B", "-c", code, str(tmp_path)],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert resource is not None
    assert "OSError: [Errno 27] File too large" in done.stderr
    assert files(tmp_path) == was


def test_a_read_only_place_loses_nothing(tmp_path: Path) -> None:
    """A file where the folder should be: to root, a folder without write permission is no obstacle."""
    (tmp_path / DEVICE).mkdir()
    (tmp_path / DEVICE / "mlp").write_text("in the way")
    with pytest.raises(OSError, match="mlp"):
        put(tmp_path, sample())
    assert files(tmp_path) == {f"{DEVICE}/mlp": b"in the way"}


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes into any folder")
def test_a_folder_without_write_permission(tmp_path: Path) -> None:
    put(tmp_path, sample())
    was = files(tmp_path)
    folder = chapter_folder(DEVICE, "mlp", tmp_path)
    folder.chmod(0o555)
    try:
        with pytest.raises(PermissionError):
            put(tmp_path, sample(label="new"))
    finally:
        folder.chmod(0o755)
    assert files(tmp_path) == was


def test_an_interruption_while_writing_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, sample())
    was = files(tmp_path)

    def interrupted(descriptor: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        put(tmp_path, sample(label="new"))
    assert files(tmp_path) == was


def test_a_trace_that_is_no_longer_recorded_goes(tmp_path: Path) -> None:
    put(tmp_path, sample())
    put(tmp_path, sample(has_trace=False))
    assert sorted(files(tmp_path)) == [f"{DEVICE}/mlp/eager.json"]


def test_a_missing_recording_says_how_to_make_it(tmp_path: Path) -> None:
    with pytest.raises(NotRecorded) as raised:
        load(tmp_path)
    assert str(raised.value) == f"no recording 'mlp/eager' for {DEVICE}; {AGAIN}"


@pytest.mark.parametrize("has_trace", [True, False])
def test_a_missing_trace_says_how_to_make_it(tmp_path: Path, has_trace: bool) -> None:
    put(tmp_path, sample(has_trace=has_trace))
    trace_path(sample(), DEVICE, tmp_path).unlink(missing_ok=True)
    with pytest.raises(NotRecorded) as raised:
        load_trace("mlp/eager", DEVICE, tmp_path)
    assert str(raised.value) == f"mlp/eager has no trace for {DEVICE}; make record CHAPTER=mlp"


def without(*path: str) -> Callable[[dict[str, Any]], None]:
    def change(decoded: dict[str, Any]) -> None:
        for key in path[:-1]:
            decoded = decoded[key]
        del decoded[path[-1]]

    return change


def with_value(value: Any, *path: str | int) -> Callable[[dict[str, Any]], None]:
    def change(decoded: Any) -> None:
        for key in path[:-1]:
            decoded = decoded[key]
        decoded[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (with_value(2, "schema"), "has schema 2 and this version reads 1"),
        (with_value("1", "schema"), "has schema '1' and this version reads 1"),
        (without("schema"), "has schema None and this version reads 1"),
        (without("digest"), "is damaged: Object missing required field `digest`"),
        (without("circumstances", "driver"), "missing required field `driver` - at `$.circumstances`"),
        (with_value("4", "circumstances", "multiprocessors"), "Expected `int`, got `str`"),
        (with_value([1, 1], "schedule"), "is damaged: Expected `array` of length 3 - at `$.schedule`"),
        (
            with_value(None, "points", 0, "relative_error"),
            "Expected `float`, got `null` - at `$.points[0].relative_error`",
        ),
        (with_value("no", "has_trace"), "Expected `bool`, got `str` - at `$.has_trace`"),
        (with_value([1.5, "x"], "ceilings", 0, "timing", "samples_us"), "Expected `float`, got `str`"),
        (with_value("compiled", "experiment"), "is a recording of 'mlp/compiled', not of 'mlp/eager'"),
        (with_value("../../x", "chapter"), "is a recording of '../../x/eager', not of 'mlp/eager'"),
    ],
)
def test_a_field_that_is_not_what_it_should_be(
    tmp_path: Path, change: Callable[[dict[str, Any]], None], message: str
) -> None:
    decoded = as_dict(sample())
    change(decoded)
    path = chapter_folder(DEVICE, "mlp", tmp_path) / "eager.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(decoded))
    with pytest.raises(RecordingError) as raised:
        load(tmp_path)
    assert not isinstance(raised.value, NotRecorded)
    assert str(raised.value).startswith("eager.json ")
    assert message in str(raised.value)
    assert str(raised.value).endswith(f"; {AGAIN}")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        json.dumps(as_dict(sample())).encode()[:-40],
        b"[]",
        b"null",
        b'"schema"',
        b"\xff\xfe\x00",
        b'{"schema": "\xff"}',
        b"version https://git-lfs.github.com/spec/v1\n",
        gzip.compress(b"{}", mtime=0),
        b"[" * 100_000,
    ],
)
def test_a_file_that_is_no_recording(tmp_path: Path, content: bytes) -> None:
    path = chapter_folder(DEVICE, "mlp", tmp_path) / "eager.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    with pytest.raises(RecordingError) as raised:
        load(tmp_path)
    assert str(raised.value).startswith("eager.json is no recording (")
    assert str(raised.value).endswith(f"); {AGAIN}")


def test_a_recording_that_was_repaired_is_read_anew(tmp_path: Path) -> None:
    put(tmp_path, sample())
    path = chapter_folder(DEVICE, "mlp", tmp_path) / "eager.json"
    assert load(tmp_path).label == "mlp_fwd"
    path.write_text("{")
    os.utime(path, ns=(1, 1))
    with pytest.raises(RecordingError):
        load(tmp_path)
    put(tmp_path, sample(label="repaired"))
    assert load(tmp_path).label == "repaired"


SOURCE = '''\
"""A chapter."""
import torch

SCALE = 0.5  # half


def step(x, *, flag=None):
    """One step."""
    if flag:
        return x * SCALE + 1e-3
    return [x, ("a", b"b", ...), {**x}, f"{x:.2f} {x!r}", lambda y: -y]
'''


def digest_of(root: Path, **sources: str) -> str:
    chapter = root / f"sources-{len(list(root.iterdir()))}" / "c"
    chapter.mkdir(parents=True)
    for name, text in sources.items():
        (chapter / f"{name}.py").write_text(text)
    return source_digest("c", chapter.parent)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("  # half", "  # a half,\n# or so"),
        ('"""One step."""', '"""Another word."""\n    "and a bare note"'),
        ('"""A chapter."""', ""),
        ("x * SCALE + 1e-3", "(\n            x*SCALE  +  0.001\n        )"),
        ('("a", b"b", ...)', "(\n        'a', u'a'[:0] or b'b', ...,)".replace("u'a'[:0] or ", "")),
        ("\n\n\n", "\n\n"),
        ('"a"', 'u"a"'),
    ],
)
def test_a_digest_does_not_see_comments_and_formatting(tmp_path: Path, old: str, new: str) -> None:
    assert SOURCE.count(old) == 1
    assert digest_of(tmp_path, model=SOURCE.replace(old, new)) == digest_of(tmp_path, model=SOURCE)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("0.5", "0.25"),
        ("1e-3", "1e-4"),
        ("1e-3", "1"),
        ("flag=None", "flag=False"),
        ("flag=None", "flag=0"),
        ("*, flag", "flag"),
        ("if flag", "if not flag"),
        ("-y", "+y"),
        ("-y", "y"),
        ('"a"', '"A"'),
        ('"a"', 'b"a"'),
        (":.2f", ":.3f"),
        ("!r", ""),
        ("...", "None"),
        ("{**x}", "{}"),
        ("import torch\n", ""),
        ("lambda y", "lambda z"),
    ],
)
def test_a_digest_sees_a_change_of_code(tmp_path: Path, old: str, new: str) -> None:
    assert SOURCE.count(old) == 1
    assert digest_of(tmp_path, model=SOURCE.replace(old, new)) != digest_of(tmp_path, model=SOURCE)


def test_a_digest_covers_three_files_and_the_protocol(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [
        digest_of(tmp_path),
        digest_of(tmp_path, model=SOURCE),
        digest_of(tmp_path, kernels=SOURCE),
        digest_of(tmp_path, experiments=SOURCE),
        digest_of(tmp_path, model=SOURCE, experiments=SOURCE),
    ]
    assert digest_of(tmp_path, model=SOURCE, findings="x = 1") == found[1]
    monkeypatch.setattr(recording, "PROTOCOL", PROTOCOL + 1)
    found.append(digest_of(tmp_path, model=SOURCE))
    assert len(set(found)) == len(found)
    assert all(len(one) == 16 for one in found)


def other_pythons() -> list[str]:
    """Other interpreters of 3.11 or newer on this machine, one of each version."""
    places = [Path(found) for n in range(11, 17) if (found := shutil.which(f"python3.{n}"))]
    places += sorted(Path.home().glob(".pyenv/versions/3.*/bin/python"))
    by_version: dict[str, str] = {}
    for place in places:
        asked = subprocess.run(
            [place, "-c", "import sys; print(*sys.version_info[:2], sep='.')"],
            capture_output=True,
            text=True,
            check=False,
        )
        version = asked.stdout.strip()
        if asked.returncode == 0 and (3, 11) <= tuple(map(int, version.split("."))) != sys.version_info[:2]:
            by_version[version] = str(place)
    return list(by_version.values())


def test_a_digest_is_the_same_under_every_python(tmp_path: Path) -> None:
    """Of the chapters as they are and of `SOURCE`; only the functions that make it, since packages may be missing."""
    pythons = other_pythons()
    if not pythons:
        pytest.skip("no other Python of 3.11 or newer on this machine")
    source = Path(recording.__file__).read_text(encoding="utf-8")
    start = source.index("def source_digest(")
    program = (
        "import ast, hashlib, sys\nfrom functools import lru_cache\nfrom pathlib import Path\n"
        "ROOT = Path(sys.argv[1])\n"
        f"PROTOCOL, HASHED_FILES = {PROTOCOL!r}, {HASHED_FILES!r}\n"
        + source[start : source.index("def is_stale(")]
        + "for where in sys.argv[2:]:\n    print(source_digest(Path(where).name, Path(where).parent))\n"
    )
    digest_of(tmp_path, model=SOURCE)
    folders = [
        tmp_path / "sources-0" / "c",
        *(path.parent for path in sorted(PROJECT.glob("snippets/*/experiments.py"))),
    ]
    expected = [source_digest(folder.name, folder.parent) for folder in folders]
    for python in pythons:
        done = subprocess.run(
            [python, "-c", "from __future__ import annotations\n" + program, str(PROJECT), *map(str, folders)],
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.split() == expected, python


def test_stale_is_when_the_digest_differs() -> None:
    assert not is_stale(sample())
    assert is_stale(sample(digest="0" * 16))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/home/alice/book/model.py(12): forward", "model.py(12): forward"),
        ("see /tmp/torchinductor_alice/ab/cab.py and ~/x/y.py.", "see cab.py and y.py."),
        ("/srv/.cache/a-b_c/d+e/f@1/g.so", "g.so"),
        ("PATH=/usr/bin/:/home/alice/bin/python", "PATH=:python"),
        ("File '/opt/venv/lib/python3.12/site-packages/torch/nn.py'", "File 'nn.py'"),
        ("file:///home/alice/trace.json", "trace.json"),
        ("/home/alice", ""),
        ("of /Users/alice: 3", "of : 3"),
        ("~/notes.txt", "~/notes.txt"),
        ("~/secret/notes.txt", "notes.txt"),
    ],
)
def test_directories_are_scrubbed(text: str, expected: str) -> None:
    assert scrub(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "Torch-Compiled Region: 0/0",
        "## Call CompiledFxGraph fy6t/abc ##",
        "void at::native::vectorized_elementwise_kernel<4, f<float>, std::array<char*, 2ul> >(int, float)",
        "reduce_kernel<512, 1, ReduceOp<a/b/c>>",
        "https://github.com/pytorch/pytorch/issues/1",
        "http://x/a/b/",
        "64x64 / 4096",
        "a / b / c",
        "[[8192, 768], [768, 3072]]",
        "snippets/mlp/model.py",
        "s/GB/s",
        "/",
        "//",
        "triton_poi_fused__unsafe_view_gelu_mul_0",
        "",
    ],
)
def test_what_is_no_directory_is_left_alone(text: str) -> None:
    assert scrub(text) == text


def test_scrubbing_goes_everywhere_and_keeps_the_rest() -> None:
    given = {"/home/a/k": ["/tmp/x/f.py", {"n": 1, "t": ("/a/b", None, 1.5, True)}], "host": "gpu7.lan said gpu7"}
    assert scrub(given, ("gpu7.lan", "gpu7")) == {
        "k": ["f.py", {"n": 1, "t": ["b", None, 1.5, True]}],
        "host": "host said host",
    }


def test_host_names_inside_other_words_are_left_alone() -> None:
    given = {"cat": "gpu_memcpy", "name": "gpumatmul gpu-1 gpu.lan (gpu) gpu", "cpu": "my-gpu"}
    expected = {"cat": "gpu_memcpy", "name": "gpumatmul gpu-1 host.lan (host) host", "cpu": "my-gpu"}
    assert scrub(given, ("gpu",)) == expected
    assert scrub("a.b axb", ("a.b",)) == "host axb"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("NVIDIA A100-SXM4-80GB", "nvidia-a100-sxm4-80gb"),
        ("NVIDIA H200", "nvidia-h200"),
        ("  NVIDIA  GeForce RTX™ 4090 ", "nvidia-geforce-rtx-4090"),
        ("../../etc", "etc"),
        ("", "unknown"),
        ("™", "unknown"),
    ],
)
def test_slug(name: str, expected: str) -> None:
    assert slug(name) == expected


@pytest.fixture
def nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str | None]:
    """What `this_device` says where nvidia-smi is this shell script."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    (tmp_path / "bin").mkdir()

    def ask(script: str) -> str | None:
        if script:
            path = tmp_path / "bin" / "nvidia-smi"
            path.write_text(f"#!/bin/sh\n{script}\n")
            path.chmod(0o755)
        this_device.cache_clear()
        return this_device()

    return ask


@pytest.fixture(autouse=True)
def _forget_the_device() -> Any:
    yield
    this_device.cache_clear()


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("", None),
        ("exit 9", None),
        ("echo 'NVIDIA-SMI has failed'; exit 1", None),
        ("true", None),
        ("echo 'NVIDIA H200'; echo 'NVIDIA T4'", "nvidia-h200"),
    ],
)
def test_this_device(nvidia_smi: Callable[[str], str | None], script: str, expected: str | None) -> None:
    assert nvidia_smi(script) == expected


def test_a_driver_that_hangs_is_no_device(
    nvidia_smi: Callable[[str], str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def hanging(command: list[str], **options: Any) -> Any:
        raise subprocess.TimeoutExpired(command, options["timeout"])

    monkeypatch.setattr(subprocess, "run", hanging)
    assert nvidia_smi("true") is None


def test_the_shown_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DEVICE", raising=False)
    here: list[str | None] = [None]
    monkeypatch.setattr(recording, "this_device", lambda: here[0])
    assert shown_device(tmp_path) == "nvidia-h200"
    put(tmp_path, sample(), device="nvidia-t4")
    assert shown_device(tmp_path) == "nvidia-h200"
    here[0] = "nvidia-t4"
    assert shown_device(tmp_path) == "nvidia-t4"
    here[0] = "nvidia-unrecorded"
    assert shown_device(tmp_path) == "nvidia-h200"
    monkeypatch.setenv("DEVICE", "nvidia-t4")
    assert shown_device(tmp_path) == "nvidia-t4"


def test_a_device_asked_for_has_to_be_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEVICE", "nvidia-x")
    with pytest.raises(NotRecorded, match=r"^DEVICE=nvidia-x is not recorded; recorded are none$"):
        shown_device(tmp_path)
    put(tmp_path, sample(), device="nvidia-t4")
    with pytest.raises(NotRecorded, match=r"recorded are nvidia-t4$"):
        shown_device(tmp_path)
