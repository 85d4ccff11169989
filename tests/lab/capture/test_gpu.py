"""NVML's report about the GPU that torch uses."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from snippets.lab.capture.gpu import (
    Gpu,
    Reading,
    open_gpu,
    open_gpus,
    others,
    others_by_pid,
    program_name,
    throttle_words,
)
from tests.lab.capture.nvml import Card, FakeNvml

SETTINGS = {
    "driver": "580.159.04",
    "power_limit_w": 700.0,
    "mig": "disabled",
    "ecc": "enabled",
    "persistence": "disabled",
    "clocks": {
        "sm_mhz": 1650.0,
        "memory_mhz": 2619.0,
        "max_sm_mhz": 1980.0,
        "max_memory_mhz": 2619.0,
        "application_sm_mhz": 1755.0,
        "application_memory_mhz": 2619.0,
        "power_w": 465.25,
        "temperature_c": 41.0,
    },
}


def opened(*cards: Card, visible: str = "0", torch: str = "", **options: Any) -> Gpu:
    return open_gpu(FakeNvml(*cards, **options), visible, lambda: torch)


class TestReading:
    def test_all_sensors(self) -> None:
        assert opened(Card("GPU-a")).reading() == Reading(1650.0, 465.25, 3415.562, ("power cap",))

    def test_the_energy_counter_is_slow_and_can_be_left_out(self) -> None:
        nvml = FakeNvml(Card("GPU-a"))
        assert open_gpu(nvml, "0", str).reading(energy=False) == Reading(1650.0, 465.25, 0.0, ("power cap",))
        assert "TotalEnergy" not in nvml.asked

    @pytest.mark.parametrize(
        ("lacks", "expected"),
        [
            ("ClockInfo", Reading(0.0, 465.25, 3415.562, ("power cap",))),
            ("FieldValues", Reading(1650.0, 243.58, 3415.562, ("power cap",))),
            ("TotalEnergy", Reading(1650.0, 465.25, 0.0, ("power cap",))),
            ("EventReasons", Reading(1650.0, 465.25, 3415.562, ("power cap",))),
            ("Reasons", Reading(1650.0, 465.25, 3415.562, ())),
            ("nvml", Reading()),
        ],
    )
    def test_each_sensor_may_be_missing(self, lacks: str, expected: Reading) -> None:
        assert opened(Card("GPU-a", lacks=lacks)).reading() == expected

    def test_average_power_where_the_card_has_no_other(self) -> None:
        assert opened(Card("GPU-a", instant_mw=0)).reading().watts == 243.58

    def test_an_unthrottled_card_is_asked_once(self) -> None:
        nvml = FakeNvml(Card("GPU-a", reasons=0))
        assert open_gpu(nvml, "0", str).reading().throttle == ()
        assert "ThrottleReasons" not in nvml.asked

    def test_reasons_in_words(self) -> None:
        assert throttle_words(0x7FF) == (
            "idle",
            "application clocks",
            "power cap",
            "hardware slowdown",
            "sync boost",
            "thermal",
            "hardware thermal",
            "power brake",
            "display clocks",
            "board limit",
            "reliability",
        )
        assert throttle_words(0x804) == ("power cap", "reason 0x800")


class TestSettings:
    def test_all(self) -> None:
        assert opened(Card("GPU-a")).circumstances() == SETTINGS

    @pytest.mark.parametrize(
        ("lacks", "changed"),
        [
            ("PowerLimit", {"power_limit_w": 0.0}),
            ("MigMode", {}),
            ("EccMode", {"ecc": ""}),
            ("Persistence", {"persistence": ""}),
            ("nvml", {"power_limit_w": 0.0, "ecc": "", "persistence": "", "clocks": {}}),
        ],
    )
    def test_each_may_be_missing(self, lacks: str, changed: dict[str, Any]) -> None:
        assert opened(Card("GPU-a", lacks=lacks)).circumstances() == {**SETTINGS, **changed}

    def test_active_links(self) -> None:
        def links(*states: int, lacks: str = "") -> str:
            return open_gpu(FakeNvml(Card("GPU-a", nvlinks=states, lacks=lacks)), "0", str).nvlink()

        assert links(*[1] * 18) == "NVLink 4.0, 18 links"
        assert links(0, 1) == "NVLink 4.0, 1 link"
        assert (links(), links(0, 0)) == ("", "")
        assert links(1, lacks="NvLinkVersion") == "NVLink, 1 link"

    def test_no_gpu(self) -> None:
        gpu = Gpu()
        assert (bool(gpu), gpu.uuid, gpu.reading(), gpu.processes()) == (False, "", Reading(), {})
        nothing = {"driver": "", "power_limit_w": 0.0, "mig": "", "ecc": "", "persistence": "", "clocks": {}}
        assert gpu.circumstances() == nothing


class TestWhichGpu:
    @pytest.mark.parametrize(
        ("visible", "expected"),
        [
            ("0", "GPU-aa1"),
            ("1", "GPU-bb2"),
            ("1,0", "GPU-bb2"),
            (" 1 ", "GPU-bb2"),
            ("GPU-bb2", "GPU-bb2"),
            ("GPU-b", "GPU-bb2"),
            ("2", ""),
            ("", ""),
            ("-1", ""),
            ("GPU-c", ""),
            ("NoDevFiles", ""),
        ],
    )
    def test_before_torch_uses_one(self, visible: str, expected: str) -> None:
        assert opened(Card("GPU-aa1"), Card("GPU-bb2"), visible=visible).uuid == expected

    def test_the_variable_of_the_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        nvml = FakeNvml(Card("GPU-aa1"), Card("GPU-bb2"))
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        assert open_gpu(nvml, torch_uuid=str).uuid == "GPU-aa1"
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
        assert open_gpu(nvml, torch_uuid=str).uuid == "GPU-bb2"

    @pytest.mark.parametrize(
        ("count", "visible", "expected"),
        [
            (1, "1,0", ["GPU-bb2"]),
            (2, "1,0", ["GPU-bb2", "GPU-aa1"]),
            (2, " 0 , 1 ", ["GPU-aa1", "GPU-bb2"]),
            (2, "0", ["GPU-aa1"]),
        ],
    )
    def test_the_first_of_several(self, count: int, visible: str, expected: list[str]) -> None:
        cards = FakeNvml(Card("GPU-aa1"), Card("GPU-bb2"))
        assert [gpu.uuid for gpu in open_gpus(count, cards, visible)] == expected

    def test_the_first_of_all(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        assert [gpu.uuid for gpu in open_gpus(2, FakeNvml(*map(Card, ("GPU-a", "GPU-b", "GPU-c"))))] == [
            "GPU-a",
            "GPU-b",
        ]

    def test_the_one_that_torch_uses(self) -> None:
        """CUDA counts the fastest card first, NVML by slot: index 0 may be another card."""
        assert opened(Card("GPU-aa1"), Card("GPU-bb2"), visible="0", torch="bb2").uuid == "GPU-bb2"

    def test_a_slice_has_processes_of_its_own_and_the_sensors_of_its_card(self) -> None:
        slices = (Card("MIG-x", {"Compute": [7]}), Card("MIG-y", {"Compute": [8]}))
        for visible, torch, expected in (("0", "", 0), ("MIG-y", "", 1), ("GPU-aa1", "y", 1)):
            gpu = opened(Card("GPU-aa1", slices=slices), visible=visible, torch=torch, names={7: "a", 8: "b"})
            assert gpu.uuid == slices[expected].uuid
            assert gpu.processes() == ({7: "a"}, {8: "b"})[expected]
            assert gpu.reading() == Reading(1650.0, 465.25, 3415.562, ("power cap",))
            assert gpu.circumstances() == {**SETTINGS, "mig": "enabled"}

    def test_without_nvml(self) -> None:
        assert not opened(Card("GPU-aa1"), fails=True)
        assert not open_gpu(object(), "0", str)


class TestProcesses:
    def test_names_without_folders_or_arguments(self) -> None:
        names = {1: "/home/ann/.venv/bin/python3 train.py --secret", 2: "Xorg", 3: "", 5: "nvidia-cuda-mps-server"}
        card = Card("GPU-a", {"Compute": [1, 4], "Graphics": [2, 3, 1], "MPSCompute": [5]})
        programs = {1: "python3", 2: "Xorg", 3: "unknown", 4: "unknown", 5: "nvidia-cuda-mps-server"}
        assert opened(card, names=names).processes() == programs
        assert program_name(r"C:\tools\game.exe") == "game.exe"

    def test_one_kind_may_be_missing(self) -> None:
        card = Card("GPU-a", {"Compute": [1], "Graphics": [2]}, lacks="Graphics")
        assert opened(card, names={1: "a", 2: "b"}).processes() == {1: "a"}

    def test_others(self) -> None:
        gpu = opened(Card("GPU-a", {"Compute": [1, 2, 3]}), names={1: "c", 2: "b", 3: "a"})
        assert others_by_pid(gpu, set(), lambda pid: True) == {1: "c", 2: "b", 3: "a"}
        assert others_by_pid(gpu, {2}, lambda pid: True) == {1: "c", 3: "a"}
        assert others_by_pid(gpu, {1, 2, 3}, lambda pid: True) == {}

    @pytest.mark.parametrize(("ours", "left"), [(set(), [91, 92]), ({11}, [92]), ({11, 12}, []), ({11, 12, 13}, [])])
    def test_pids_of_the_host_are_only_counted(self, ours: set[int], left: list[int]) -> None:
        gpu = opened(Card("GPU-a", {"Compute": [91, 92]}))
        assert list(others_by_pid(gpu, ours, lambda pid: False)) == left

    def test_a_process_that_is_here_is_never_taken_for_one_of_ours(self) -> None:
        gpu = opened(Card("GPU-a", {"Compute": [5]}), names={5: "game"})
        assert others_by_pid(gpu, {11}, lambda pid: True) == {5: "game"}

    def test_what_a_worker_starts_is_ours(self) -> None:
        """Real processes: a worker leads its session, and its child uses the GPU."""
        script = """
import subprocess, sys
child = subprocess.Popen(["sleep", "60"])
print(child.pid, flush=True)
sys.stdin.read()
"""
        worker = subprocess.Popen(
            [sys.executable, "-c", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert worker.stdout is not None
        child = int(worker.stdout.readline())
        try:
            gpu = opened(Card("GPU-a", {"Compute": [worker.pid, child, os.getpid()]}), names={os.getpid(): "pytest"})
            assert others(gpu, {worker.pid}) == ("pytest",)
            assert others(gpu, {worker.pid, os.getpid()}) == ()
        finally:
            os.killpg(worker.pid, 9)
            worker.communicate()
