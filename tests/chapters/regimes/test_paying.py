"""When a compilation has paid for itself, and the modes alone for seconds, on sample recordings."""

from __future__ import annotations

from pathlib import Path

import pytest

from snippets.lab.finding import Device
from snippets.regimes.findings import compiling, paying
from snippets.regimes.findings.compiling import GEGLU, STACK
from snippets.regimes.findings.paying import NEVER
from tests.chapters.altered import status, verdict
from tests.chapters.regimes.altering import SAMPLES, Data, alone, alter, from_python
from tests.lab.sample_recordings import save_samples


@pytest.fixture
def device(tmp_path: Path) -> Device:
    return save_samples(tmp_path, SAMPLES.values())


def test_calls_until_a_compilation_has_paid(device: Device) -> None:
    """0.5027 s are lost, and 40 us less 16 us are saved by each call."""
    assert compiling.compile_time(device, STACK, "reduce-overhead").number == pytest.approx(502_700)
    assert paying.saved(device, STACK, "reduce-overhead").number == pytest.approx(24)
    assert paying.break_even(device, STACK, "reduce-overhead").value == 20_946
    assert paying.break_even(device, STACK, "default").value == NEVER
    assert compiling.again_time(device, STACK, "reduce-overhead").number == pytest.approx(52_700)
    assert paying.break_even(device, STACK, "reduce-overhead", "full").value == 2_196
    assert paying.break_even(device, STACK, "default", "full").value == NEVER
    assert paying.default_pays(device).value == NEVER
    alter(device, "regimes/modes_stack", from_python("default", 39.9))
    assert paying.default_pays(device).value == "millions"


def test_when_to_use_each_mode(device: Device) -> None:
    """5.0027 s over 27 us for the stack; a mode that was not compiled has no number of calls."""
    alter(device, "regimes/modes_geglu", lambda data: data["modes"].pop("max-autotune"))
    assert paying.ADVICE.keys() == set(compiling.MODES)
    (row,) = (line for line in paying.use_when(device).split("<tr") if ">max-autotune<" in line)
    assert "190,000" in row
    assert row.count("–") == 1


def test_a_gain_that_may_be_a_loss_is_inconclusive(device: Device) -> None:
    def change(data: Data) -> None:
        data["times"]["eager"]["from_python"] = [40.0] * 9
        data["times"]["default"]["from_python"] = [30.0] * 3 + [39.0] * 3 + [50.0] * 3

    alter(device, f"regimes/modes_{GEGLU}", change)
    pays = paying.break_even(device, GEGLU, "default")
    assert (pays.conclusive, pays.text) == (False, "500,000 or never")
    assert verdict(device, "RG36").reason == "a call may save no time"


def test_a_gpu_that_tells_no_energy_has_no_power(device: Device) -> None:
    alter(device, f"regimes/modes_{GEGLU}", alone("eager", "joules", 0.0))
    assert status(device, "RG62") == "not measured"


def test_steady_times_have_a_clock_and_are_shown_where_they_were_taken(device: Device) -> None:
    """260 us steady of 275; 98 % of the power limit."""
    assert paying.steady_over_eager.measure(device).number == pytest.approx(260 / 275)
    assert paying.least_of_limit.measure(device).number == pytest.approx(98)
    shown = paying.pay_table(device, GEGLU)
    assert ("1,700 MHz" in shown, "alone for seconds" in shown) == (True, True)
    assert "alone for seconds" not in paying.pay_table(device, STACK)
