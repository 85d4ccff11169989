"""Under which circumstances a chapter was measured: only what its recordings say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from snippets.lab.page.frame import provenance
from snippets.lab.page.machine import machine_table
from snippets.lab.recording.schema import Recording
from tests.lab import samples
from tests.lab.samples import EVIL, Markup, assert_only_text, sample, save_all

FULL: dict[str, Any] = {
    "cpu": "Xeon 8480",
    "cpu_cores": 32,
    "cpu_affinity": 16,
    "cpu_governor": "performance",
    "virtualized": "no",
    "power_limit_w": 700.0,
    "mig": "disabled",
    "ecc": "enabled",
    "persistence": "enabled",
    "clocks": {"sm_mhz": 1650.0, "max_sm_mhz": 1980.0, "max_memory_mhz": 2619.0, "application_sm_mhz": 1755.0},
    "throttle": {"before": ("idle",), "during": ("power cap",), "after": ()},
    "other_processes": ("python3", "Xorg"),
}


def rows(*environments: dict[str, Any]) -> dict[str, str]:
    """The table's rows for recordings with these environments."""
    recordings = [sample(f"mlp/e{i}", environment=samples.environment(**each)) for i, each in enumerate(environments)]
    cells = [list(row) for row in samples.cells(machine_table(recordings))]
    return dict(cells[1:])


def test_all_fields() -> None:
    assert rows(FULL) == {
        "CPU": "Xeon 8480",
        "cores that the process may use": "16 of 32",
        "CPU frequency governor": "performance",
        "virtual machine": "no",
        "GPU power limit": "700 W",
        "maximum clock": "1980 MHz, memory 2619 MHz",
        "application clock": "1755 MHz",
        "MIG": "disabled",
        "ECC": "enabled",
        "persistence mode": "enabled",
        "GPU clock lowered before timing": "idle",
        "GPU clock lowered during timing": "power cap",
        "GPU clock lowered after timing": "no",
        "other programs on the GPU": "python3; Xorg",
    }


def test_several_gpus() -> None:
    link = "NVLink 4.0, 18 links, peer access"
    assert rows({"gpus": 2, "link": link, "versions": {"torch": "2.11.0", "nccl": "2.28.9"}}) == {
        "several GPUs": f"2 GPUs, {link}",
        "NCCL": "2.28.9",
    }


def test_only_what_a_recording_has() -> None:
    assert rows({"virtualized": "yes"}) == {"virtual machine": "yes"}
    assert machine_table([sample()]) == "", "an old recording says none of this"
    assert machine_table([]) == ""


def test_recordings_of_several_machines() -> None:
    """Every value, the newest first; a reason once."""
    old = {"date": "2026-01-01", "cpu": "Old", "throttle": {"during": ()}}
    new = {"date": "2026-02-01", "cpu": "New", "throttle": {"during": ("thermal", "power cap")}}
    also = {"date": "2026-01-15", "cpu": "Old", "throttle": {"during": ("power cap",)}}
    assert rows(old, new, also) == {"CPU": "New; Old", "GPU clock lowered during timing": "power cap, thermal"}
    assert rows(old)["GPU clock lowered during timing"] == "no"


def test_the_page_shows_it_in_the_fold_of_its_provenance(tmp_path: Path) -> None:
    device = save_all(tmp_path, sample(environment=samples.environment(cpu="Xeon 8480")))
    content = provenance(device, "mlp")
    fold, _, below = content.partition("</details>")
    assert fold.count("<details") == 1
    assert "Xeon 8480" in Markup(fold).text
    assert "Xeon 8480" not in below
    assert "Disturbed" not in content


def test_reasons_during_timing_are_those_of_every_timing() -> None:
    def lowered(clock_mhz: float, *reasons: str) -> Recording:
        interleaved = msgspec.structs.replace(samples.timing(1, 2), clock_mhz=clock_mhz, throttle=reasons)
        timed = msgspec.structs.replace(samples.timings(), interleaved=interleaved)
        return sample(points=(samples.point(timed=timed),))

    row = "GPU clock lowered during timing"
    both = [lowered(1500, "power cap"), lowered(1400, "thermal")]
    assert f"{row}\npower cap, thermal" in Markup(machine_table(both)).text
    assert f"{row}\nno" in Markup(machine_table([lowered(1980)])).text
    assert row not in Markup(machine_table([lowered(0)])).text


@pytest.mark.parametrize("name", EVIL)
def test_untrusted_names(name: str) -> None:
    environment = samples.environment(cpu=name, mig=name, throttle={"during": (name,)}, other_processes=(name,))
    recordings = [sample(environment=environment)]
    assert_only_text(machine_table(recordings), name)
