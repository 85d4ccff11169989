"""Files among the recordings that are none: never opened, and the build of the site ends with the name of one."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kinetoscope.trace.text import printable
from snippets.lab.__main__ import main
from snippets.lab.finding.device import Device
from snippets.lab.recording.device import DEFAULT_DEVICE, recorded_devices, require_only_recordings
from snippets.lab.recording.loading import load_recording, load_trace
from snippets.lab.recording.schema import RecordingError
from tests.lab.samples import BOOK, recordings, sample, save_all

OTHER = "nvidia-t100"


@pytest.fixture
def device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Device:
    save_all(tmp_path / "recordings", sample(), device=DEFAULT_DEVICE)
    recordings(monkeypatch, tmp_path / "recordings")
    return save_all(tmp_path / "recordings", sample(), sample("mlp/compiled"), device=OTHER)


def link(to: str) -> Callable[[Path], None]:
    return lambda path: path.symlink_to(to)


def text(path: Path) -> None:
    path.write_text("{}")


FOREIGN: dict[str, Callable[[Path], None]] = {
    f"{OTHER}/mlp/linked.json": link("eager.json"),
    f"{OTHER}/mlp/dangling.trace.json.gz": link("nowhere"),
    f"{OTHER}/mlp/loop.json": link("loop.json"),
    f"{OTHER}/mlp/endless.json": link("/dev/zero"),
    f"{OTHER}/mlp/pipe.json": os.mkfifo,
    f"{OTHER}/mlp/a.b.json": text,
    f"{OTHER}/self": link("."),
    f"{OTHER}/page.md": text,
    f"{OTHER}/mlp/page.md": text,
    "evil \u202e.json": text,
    "README.txt": text,
}


def test_the_book_and_a_sound_folder_have_none(device: Device) -> None:
    require_only_recordings(BOOK.root)
    (device.root / OTHER / "mlp" / ".eager.json.7.new").write_text("{")
    (device.root / OTHER / "accepted.json").write_text("{}")
    require_only_recordings(device.root)


@pytest.mark.parametrize("name", FOREIGN)
def test_one_ends_the_build(device: Device, capsys: pytest.CaptureFixture[str], name: str) -> None:
    """By another code than a capture that failed, after which pages are built."""
    FOREIGN[name](device.root / name)
    assert main(["prepare"]) == 2
    assert f"{printable(name)} is not a recording, but a link or a file of another kind" in capsys.readouterr().err
    assert recorded_devices(device.root) == (DEFAULT_DEVICE, OTHER)


@pytest.mark.parametrize("name", ["linked", "loop", "endless", "pipe", "folder"])
def test_none_is_read(device: Device, name: str) -> None:
    path = f"{OTHER}/mlp/{name}.json"
    FOREIGN.get(path, Path.mkdir)(device.root / path)
    with pytest.raises(RecordingError, match=rf"^{name}\.json is not a regular file; delete it, then on a machine"):
        load_recording(device.root, OTHER, f"mlp/{name}")


def test_a_folder_in_place_of_a_trace(device: Device) -> None:
    path = device.root / OTHER / "mlp/eager.trace.json.gz"
    path.unlink()
    path.mkdir()
    with pytest.raises(RecordingError, match="is not a regular file; delete it"):
        load_trace(device.root, OTHER, "mlp/eager")


def test_damage_of_another_gpu_is_listed_and_not_red(device: Device, capsys: pytest.CaptureFixture[str]) -> None:
    (device.root / OTHER / "accepted.json").touch()
    (device.root / OTHER / "mlp/compiled.json").write_text("{")
    assert main(["list", "--check"]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert any(line.startswith(f"accepted.json unreadable: accepted.json of {OTHER} is damaged: ") for line in lines)
    assert any(line.startswith("mlp/compiled unreadable: compiled.json is not a recording") for line in lines)


def test_damaged_statuses_of_another_gpu(device: Device, capsys: pytest.CaptureFixture[str]) -> None:
    """Said, never red, and mended by the command that the message names."""
    path = device.root / OTHER / "accepted.json"
    path.touch()
    assert main(["claims", "--check", "--device", OTHER]) == 0
    assert f"accepted.json of {OTHER} is damaged" in capsys.readouterr().err
    assert main(["claims", "--json", "--device", OTHER]) == 0
    assert {each["accepted"] for each in json.loads(capsys.readouterr().out)} == {None}
    assert main(["claims", "--accept", "--device", OTHER]) == 0
    assert json.loads(path.read_bytes())
    (device.root / DEFAULT_DEVICE / "accepted.json").touch()
    assert main(["claims", "--check", "--device", DEFAULT_DEVICE]) == 1
