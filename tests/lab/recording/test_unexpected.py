"""Files that are not recordings: listed with a reason, never opened, and omitted from pages."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from snippets.lab.__main__ import main
from snippets.lab.finding.device import Device
from snippets.lab.recording.device import DEFAULT_DEVICE, recorded_devices
from snippets.lab.recording.loading import load_recording, load_trace
from snippets.lab.recording.schema import RecordingError
from snippets.lab.recording.unexpected import unexpected_files
from tests.lab.samples import recordings, sample, save_all

OTHER = "nvidia-t100"
ODD = "evil \u202e\x1b[31m"


@pytest.fixture
def device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Device:
    save_all(tmp_path / "recordings", sample(), device=DEFAULT_DEVICE)
    recordings(monkeypatch, tmp_path / "recordings")
    return save_all(tmp_path / "recordings", sample(), sample("mlp/compiled"), device=OTHER)


def plant(device: Device) -> dict[str, str]:
    """Put all kinds of odd files into the folders; return the expected reasons."""
    folder = device.root / OTHER
    (folder / "mlp/linked.json").symlink_to(folder / "mlp/eager.json")
    (folder / "mlp/dangling.trace.json.gz").symlink_to("nowhere")
    (folder / "mlp/loop.json").symlink_to("loop.json")
    (folder / "mlp/endless.json").symlink_to("/dev/zero")
    os.mkfifo(folder / "mlp/pipe.json")
    (folder / "mlp/folder.json").mkdir()
    (folder / "mlp/a.b.json").write_text("{}")
    (folder / "self").symlink_to(".")
    (folder / "Chapter").mkdir()
    (folder / "page.md").write_text("# x")
    (folder / "mlp/.eager.json.7.new").write_text("{")
    (device.root / ODD / "mlp").mkdir(parents=True)
    (device.root / ODD / "mlp" / "eager.json").write_bytes((folder / "mlp/eager.json").read_bytes())
    (device.root / "README.txt").write_text("x")
    link, other, none = "a link", "not a regular file", "not a recording"
    inside = {"linked.json": link, "dangling.trace.json.gz": link, "loop.json": link, "endless.json": link}
    inside |= {"pipe.json": other, "folder.json": none, "a.b.json": none}
    return {
        **{f"{OTHER}/mlp/{name}": reason for name, reason in inside.items()},
        f"{OTHER}/self": link,
        f"{OTHER}/Chapter": "not the folder of a chapter",
        f"{OTHER}/page.md": none,
        ODD: "not the folder of a device",
        "README.txt": "not the folder of a device",
    }


def test_a_sound_folder_has_none(device: Device) -> None:
    assert list(unexpected_files(device.root)) == []


def test_each_is_named_with_its_reason(device: Device) -> None:
    planted = plant(device)
    assert dict(unexpected_files(device.root)) == planted
    assert recorded_devices(device.root) == (DEFAULT_DEVICE, OTHER)


@pytest.mark.parametrize("name", ["linked", "loop", "endless", "pipe", "folder"])
def test_none_is_read(device: Device, name: str) -> None:
    plant(device)
    with pytest.raises(RecordingError, match=rf"^{name}\.json is not a regular file; delete it, then on a machine"):
        load_recording(device.root, OTHER, f"mlp/{name}")


def test_a_folder_in_place_of_a_trace(device: Device) -> None:
    path = device.root / OTHER / "mlp/eager.trace.json.gz"
    path.unlink()
    path.mkdir()
    with pytest.raises(RecordingError, match="is not a regular file; delete it"):
        load_trace(device.root, OTHER, "mlp/eager")


def test_the_list_names_them_and_is_not_red(device: Device, capsys: pytest.CaptureFixture[str]) -> None:
    planted = plant(device)
    (device.root / OTHER / "accepted.json").touch()
    (device.root / OTHER / "mlp/compiled.json").write_text("{")
    assert main(["list", "--check"]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    for name, reason in planted.items():
        inside = f"{name.removeprefix(f'{OTHER}/')} unexpected: {reason}; delete it"
        visible = name.replace("\u202e", "\\u202e").replace("\x1b", "\\x1b")
        assert (inside if name.startswith(OTHER) else f"unexpected: {visible}: {reason}; delete it") in lines
    assert any(line.startswith(f"accepted.json unreadable: accepted.json of {OTHER} is damaged: ") for line in lines)
    assert any(line.startswith("mlp/compiled unreadable: compiled.json is not a recording") for line in lines)


def test_the_build_leaves_them_out(device: Device, capsys: pytest.CaptureFixture[str]) -> None:
    planted = plant(device)
    assert main(["list", "--unexpected"]) == 0
    patterns = capsys.readouterr().out.split()
    assert sorted(patterns) == sorted(f"/recordings/{name.replace(ODD, 'evil????31m')}" for name in planted)


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
