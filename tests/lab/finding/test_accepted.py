"""The statuses accepted for a device: written whole, sorted and atomically; read, absent or damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from snippets.lab.finding.accepted import accept_statuses, accepted_statuses, status_of_text
from snippets.lab.finding.device import Device, all_devices
from snippets.lab.recording.device import DEFAULT_DEVICE, recorded_devices, recorded_names
from snippets.lab.recording.loading import load_recordings
from snippets.lab.recording.schema import NotRecorded, RecordingError
from tests.lab.samples import files, sample, save_all


@pytest.fixture
def device(tmp_path: Path) -> Device:
    return save_all(tmp_path, sample(), device=DEFAULT_DEVICE)


def test_what_was_accepted_is_read_again(device: Device) -> None:
    assert accepted_statuses(device) is None
    accept_statuses(device, {"M2": "differs", "M1": "holds"})
    content = files(device.root)[f"{DEFAULT_DEVICE}/accepted.json"]
    assert content == b'{\n "M1": "holds",\n "M2": "differs"\n}\n'
    assert accepted_statuses(device) == {"M1": "holds", "M2": "differs"}
    accept_statuses(device, {"M1": "inconclusive"})
    assert accepted_statuses(device) == {"M1": "inconclusive"}


def test_the_text_describes_the_default_device(device: Device) -> None:
    accept_statuses(device, {"M1": "holds"})
    other = save_all(device.root, sample(), device="nvidia-a")
    accept_statuses(other, {"M1": "differs", "M2": "holds"})
    assert [status_of_text(name, device.root) for name in ("M1", "M2")] == ["holds", None]


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"M1": "perhaps"}', b'"\xff"'])
def test_a_damaged_file_is_an_error(device: Device, content: bytes) -> None:
    (device.root / DEFAULT_DEVICE / "accepted.json").write_bytes(content)
    message = rf"^accepted\.json of {DEFAULT_DEVICE} is damaged: .*; .*claims --accept --device {DEFAULT_DEVICE}$"
    with pytest.raises(RecordingError, match=message):
        accepted_statuses(device)


def test_nothing_is_accepted_where_nothing_is_recorded(tmp_path: Path) -> None:
    with pytest.raises(NotRecorded, match=r"^nothing is recorded for nvidia-a;"):
        accept_statuses(Device(tmp_path, "nvidia-a"), {"M1": "holds"})
    assert files(tmp_path) == {}


def test_it_is_not_a_recording(device: Device) -> None:
    accept_statuses(device, {"M1": "holds"})
    alone = device.root / "nvidia-b"
    alone.mkdir()
    (alone / "accepted.json").write_text("{}")
    assert recorded_devices(device.root) == (DEFAULT_DEVICE,)
    assert [each.name for each in all_devices(device.root)] == [DEFAULT_DEVICE]
    assert recorded_names(device.root, DEFAULT_DEVICE, "mlp") == ("eager",)
    assert [recording.id for recording in load_recordings(device.root, DEFAULT_DEVICE)] == ["mlp/eager"]
