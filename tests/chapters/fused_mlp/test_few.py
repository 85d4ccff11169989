"""Few tokens: claims on numbers by hand."""

from __future__ import annotations

import pytest

from snippets.fused_mlp.findings import few_tokens, shapes
from snippets.lab.finding import NotTimed
from snippets.lab.finding.claim import Status
from tests.chapters.altered import AlteredDevice
from tests.chapters.fused_mlp.test_shapes import point_of, put
from tests.chapters.fused_mlp.verdicts import measured, statuses, text_of, value


def few(
    device: AlteredDevice,
    one_us: float = 97.0,
    sixteen_us: float = 106.0,
    steady_us: float = 97.0,
    watts: float = 500.0,
) -> None:
    """The others take 100 us for one token, 110 for 16, and steady always 100 at 500 W."""

    def samples(us: float, ours_us: float) -> dict[str, list[float]]:
        return {name: [ours_us if name == "fused" else us] * 3 for name in few_tokens.VARIANTS.values()}

    interleaved = {
        "1": samples(100.0, one_us),
        "16": samples(110.0, sixteen_us),
        "4": samples(105.0, 105.0),
        "64": samples(150.0, 150.0),
    }
    steady = {
        tokens: {
            name: {"samples_us": [us] * 3, "clock_mhz": 1980.0, "watts": power}
            for name in few_tokens.VARIANTS.values()
            for us, power in [(steady_us, watts) if name == "fused" else (100.0, 500.0)]
        }
        for tokens in few_tokens.STEADY_TOKENS
    }
    put(device, "few_tokens", interleaved=interleaved, steady=steady)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, ["holds", "holds", "holds"]),
        ({"one_us": 98.0}, ["differs", "holds", "holds"]),
        ({"sixteen_us": 107.0}, ["differs", "holds", "differs"]),
        ({"steady_us": 98.0}, ["holds", "differs", "holds"]),
    ],
)
def test_one_and_sixteen_tokens(device: AlteredDevice, changed: dict[str, float], expected: list[Status]) -> None:
    few(device, **changed)
    assert measured(device, "F105").value == pytest.approx(changed.get("sixteen_us", 106) / changed.get("one_us", 97))
    assert statuses(device, "F103", "F104", "F105") == expected


def test_the_floor_and_the_pieces(device: AlteredDevice) -> None:
    few(device)
    name = "fused_mlp/fused"
    assert device[name].is_recorded
    floor_us = value(device, "few_floor_us")
    rate = device[name].ceiling("copy").rate
    assert floor_us == pytest.approx(2 * 3 * 4096 * 14336 / rate * 1e6)
    assert value(device, "one_token_over_floor") == pytest.approx(97 / floor_us)
    assert value(device, "max_autotune_over_floor") == pytest.approx(100 / floor_us)
    assert value(device, "few_weights_bytes") == 352_321_536
    text = text_of(few_tokens.few_table(device))
    assert "16 0.964x 106 µs 110 µs 110 µs 110 µs" in text
    assert text.index(" 4 1.000x") < text.index(" 16 0.964x") < text.index(" 64 1.000x")
    assert "1, ours 97.0 µs 1,980 MHz 48.5 mJ" in text
    assert "64 tokens" in few_tokens.few_bars(device)
    put(device, "fused", point_of(shapes.SERIES, 100.0))
    assert value(device, "few_floor_us") == pytest.approx(352_321_536 / 2_000_000 * 2)


def test_the_energy_of_few_tokens(device: AlteredDevice) -> None:
    few(device, steady_us=80.0, watts=750.0)
    assert [value(device, f"{tokens}_energy") for tokens in ("one_token", "sixteen_tokens")] == [1.2, 1.2]
    few(device, watts=0.0)
    with pytest.raises(NotTimed, match="no energy of 16 tokens"):
        value(device, "sixteen_tokens_energy")
    assert "16, ours 97.0 µs 1,980 MHz –" in text_of(few_tokens.few_table(device))
