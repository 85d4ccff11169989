"""Kernels for every GPU: claims on machine code by hand, and what a GPU that is not Hopper shows."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from snippets.fused_mlp.findings import architectures, halves, ideas
from snippets.lab.finding import NotTimed
from tests.chapters.altered import AlteredDevice
from tests.chapters.fused_mlp.test_shapes import WIDE, point_of, put
from tests.chapters.fused_mlp.verdicts import measured, status, statuses, text_of
from tests.lab.samples import environment

replace = msgspec.structs.replace
ROW = {
    "capability": 80,
    "kernel": "gate_up",
    "tiles": "128x64x64, 3 stages",
    "instruction": "HMMA",
    "copies": 24,
    "registers": 136,
    "spills": 0,
    "shared_bytes": 65_536,
}


def compiled(device: AlteredDevice, *changed: dict[str, Any]) -> None:
    rows = [list((ROW | each).values()) for each in changed]
    put(device, "architectures", columns=list(ROW), rows=rows, limits={"80": 166_912, "90": 232_448})


def test_spills_and_copies_are_counted(device: AlteredDevice) -> None:
    hopper = {"capability": 90, "instruction": "HGMMA", "registers": 168, "copies": 12}
    compiled(device, hopper, {}, {"tiles": "64x64x64, 3 stages", "registers": 90})
    assert [measured(device, name).text for name in ("F91", "F92")] == ["0 of 3", "12"]
    assert statuses(device, "F91", "F92") == ["holds", "holds"]
    text = text_of(architectures.architectures(device))
    assert "8.0, Ampere (A100) 2 HMMA 24 90 to 136 0 65.5 kB 167 kB" in text
    assert "9.0, Hopper (H100, H200) 1 HGMMA 12 168 0 65.5 kB 232 kB" in text
    assert "gate_up 128x64x64, 3 stages 136 168" in text
    compiled(device, {"spills": 4}, {"copies": 3})
    assert [measured(device, name).text for name in ("F91", "F92")] == ["1 of 2", "3"]
    assert statuses(device, "F91", "F92") == ["differs", "differs"]
    compiled(device)
    assert statuses(device, "F91", "F92") == ["not measured", "not measured"]


@pytest.mark.parametrize(("error", "old_us"), [(2e-3, 140.0), (2.1e-3, 139.0)])
def test_code_for_an_older_gpu(device: AlteredDevice, error: float, old_us: float) -> None:
    interleaved = {"code for 8.0": [old_us] * 3, "own code": [100.0] * 3}
    sizes = {"77x264x344": {"error": error, "eager_error": 2e-3}, "8x8x8": {"error": 1e-3, "eager_error": 2e-3}}
    put(device, "ampere_code", tiles="64x32x64, 3 stages", interleaved=interleaved, errors=sizes)
    expected = "holds" if error == 2e-3 else "differs"
    assert (measured(device, "F93").value, measured(device, "F94").value) == (error / 2e-3, old_us / 100)
    assert statuses(device, "F93", "F94") == [expected] * 2
    text = text_of(architectures.old_code(device))
    assert "code for 8.0 140 µs own code 100 µs" in text or expected == "differs"
    assert "tiles of 64x32x64, 3 stages" in text
    assert f"77x264x344 {error:.2e} 2.00e-03" in text


def test_the_first_half_on_every_gpu_and_on_hopper(device: AlteredDevice) -> None:
    times = {"eager": 100.0, "bare": 80.0, "portable": 78.0, "fused": 62.0}
    for name, us in times.items():
        put(device, f"gate_up_{name}", point_of(WIDE, us))
    assert [measured(device, name).value for name in ("F88", "F90")] == [0.78, pytest.approx(62 / 78)]
    assert statuses(device, "F88", "F90") == ["holds", "holds"]
    put(device, "gate_up_portable", point_of(WIDE, 77.0))
    assert statuses(device, "F88", "F90") == ["holds", "differs"]
    put(device, "gate_up_portable", point_of(WIDE, 79.0))
    assert statuses(device, "F88", "F90") == ["differs", "holds"]


def test_the_whole_forward_of_portable_kernels(device: AlteredDevice) -> None:
    put(device, "compiled", point_of(WIDE, 100.0))
    for us, expected in ((95.0, "holds"), (96.0, "differs")):
        put(device, "portable", point_of(WIDE, us))
        assert (measured(device, "F89").value, status(device, "F89")) == (us / 100, expected)


def test_elsewhere_than_on_hopper_its_kernels_are_not_asked_for(device: AlteredDevice) -> None:
    for name in ("eager", "gate_up_fused", "gate_up_bare", "gate_up_portable", "steps"):
        put(device, name, point_of(WIDE, 100.0))
        run = f"fused_mlp/{name}"
        ampere = environment(compute_capability="8.0")
        device.recordings[run] = replace(device.recordings[run], environment=ampere)
    with pytest.raises(NotTimed, match=r"need Hopper \(compute capability 9\.0\); the H200 has 8\.0"):
        ideas.step_ratio(device, "gate_up", "stacked", "four slots")
    assert set(statuses(device, "F20", "F21", "F22", "F24", "F30", "F90")) == {"not measured"}
    with pytest.raises(NotTimed, match="takes the portable ones"):
        halves.halves(device)
