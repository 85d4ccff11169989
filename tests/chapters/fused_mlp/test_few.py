"""Few tokens: claims on numbers by hand."""

from __future__ import annotations

import pytest

from snippets.fused_mlp.findings import few_tokens, shapes
from snippets.lab.finding.claim import Status
from tests.chapters.altered import AlteredDevice
from tests.chapters.fused_mlp.test_shapes import point_of, put
from tests.chapters.fused_mlp.verdicts import measured, statuses, text_of, value


def few(device: AlteredDevice, one_us: float = 100.0, sixteen_us: float = 110.0, steady_us: float = 100.0) -> None:
    """Max-autotune takes 100 us for one token, 110 for 16, and steady always 100."""

    def samples(us: float, ours_us: float) -> dict[str, list[float]]:
        return {name: [ours_us if name == "fused" else us] * 3 for name in few_tokens.VARIANTS.values()}

    interleaved = {"1": samples(100.0, one_us), "16": samples(110.0, sixteen_us), "64": samples(150.0, 150.0)}
    steady = {
        tokens: {
            name: {"samples_us": [steady_us if name == "fused" else 100.0] * 3, "clock_mhz": 1980.0, "watts": 500.0}
            for name in few_tokens.VARIANTS.values()
        }
        for tokens in few_tokens.STEADY_TOKENS
    }
    put(device, "few_tokens", interleaved=interleaved, steady=steady)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, ["holds", "holds", "holds"]),
        ({"one_us": 101.0}, ["differs", "holds", "holds"]),
        ({"sixteen_us": 111.0}, ["differs", "holds", "differs"]),
        ({"steady_us": 101.0}, ["holds", "differs", "holds"]),
    ],
)
def test_one_and_sixteen_tokens(device: AlteredDevice, changed: dict[str, float], expected: list[Status]) -> None:
    few(device, **changed)
    assert measured(device, "F105").value == pytest.approx(changed.get("sixteen_us", 110) / changed.get("one_us", 100))
    assert statuses(device, "F103", "F104", "F105") == expected


def test_the_floor_and_the_pieces(device: AlteredDevice) -> None:
    few(device)
    name = "fused_mlp/bfloat16_fused"
    assert device[name].is_recorded
    floor_us = value(device, "few_floor_us")
    rate = shapes.row_run(device, "bfloat16", "fused", shapes.ONE_TOKEN).ceiling("copy").rate
    assert floor_us == pytest.approx(2 * 3 * 4096 * 14336 / rate * 1e6)
    assert value(device, "one_token_over_floor") == pytest.approx(100 / floor_us)
    assert value(device, "few_weights_bytes") == 352_321_536
    text = text_of(few_tokens.few_table(device))
    assert "16 1.000x 110 µs 110 µs 110 µs 110 µs" in text
    assert "1, ours 100 µs 1,980 MHz 50.0 mJ" in text
    assert "64 tokens" in few_tokens.few_bars(device)
    put(device, "bfloat16_fused", point_of(shapes.ONE_TOKEN, 100.0))
    assert value(device, "few_floor_us") == pytest.approx(352_321_536 / 2_000_000 * 2)
