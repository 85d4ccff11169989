"""The book is built whatever another GPU's recordings hold. All of it, for many: python -m tests.other_devices 100."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from snippets.lab.finding.device import Device
from snippets.lab.recording.device import DEFAULT_DEVICE
from tests.other_devices import DEEP, Maker, attempt, claims_of, in_place, lay_out, pieces

SOME = 60
"""Pieces for each device."""


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> Device:
    return lay_out(tmp_path_factory.mktemp("recordings"))


@pytest.fixture(autouse=True)
def _shown(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECORDINGS", str(device.root))
    monkeypatch.setenv("DEVICE", "")


@pytest.mark.parametrize("seed", range(5))
def test_no_recording_of_another_gpu_stops_a_page(device: Device, seed: int) -> None:
    with in_place(device, Maker(seed)):
        some = random.Random(seed).sample(pieces(), SOME)
        assert [fault for name, build in some if (fault := attempt(device, name, build)[1])] == []


def test_nor_what_machines_read_of_its_claims(device: Device) -> None:
    with in_place(device, Maker(5)):
        assert len(json.loads(claims_of(device))) > 300


class Deep(Maker):
    """The middle step of each trace has a thousand operators within each other."""

    def _altered_events(self, dice: random.Random, events: list[dict[str, Any]]) -> list[dict[str, Any]]:
        op = [event for event in events if event.get("cat") == "cpu_op"]
        inner = ({"name": f"aten::deep{level}", "args": {}} for level in range(DEEP))
        return [*events, *(op[len(op) // 2] | each for each in inner)]


def test_a_thousand_nested_operators(device: Device) -> None:
    """Their tree is deeper than Python recurses: its tab says so, and on the default device it is an error."""
    ((place, build),) = [(place, build) for place, build in pieces() if "matmul-add-tree'" in place]
    with in_place(device, Deep(1)):
        content, fault = attempt(device, place, build)
        assert fault == ""
        assert "on the T100 does not fit this part of the page: it is nested too deeply." in content
    default = Device(device.root, DEFAULT_DEVICE)
    with in_place(default, Deep(1)):
        assert "RecursionError" in attempt(default, place, build)[1]
