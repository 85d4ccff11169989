"""Energy is counted between ticks of NVML's counter."""

from __future__ import annotations

import pytest

from snippets.lab.capture.gpu import Reading
from snippets.lab.capture.steady import counted_watts, steady_timing


def readings(*joules: float) -> list[tuple[float, Reading]]:
    """One reading each 0.1 s."""
    return [(0.1 * index, Reading(1500, 650, counter, ("power cap",))) for index, counter in enumerate(joules)]


def test_power_is_counted_from_the_first_tick_to_the_last() -> None:
    """Ticks at 0.2 s (100 J) and at 0.6 s (380 J): the ends of the block are not the counter's."""
    assert counted_watts(readings(0, 0, 100, 100, 240, 240, 380, 380)) == pytest.approx(280 / 0.4)


@pytest.mark.parametrize("joules", [(0, 0, 0), (0, 100, 100)])
def test_without_two_ticks_nothing_is_counted(joules: tuple[float, ...]) -> None:
    assert counted_watts(readings(*joules)) == 0


def test_energy_of_a_step() -> None:
    timing = steady_timing([200.0, 210.0, 220.0], readings(*range(0, 700, 70)))
    assert (timing.watts, timing.joules, timing.clock_mhz) == (700, 0.147, 1500)
    assert steady_timing([200.0, 210.0, 220.0], readings(*(0,) * 10)).watts == 650
    few = steady_timing([200.0, 210.0, 220.0], readings(*range(0, 630, 70)))
    assert (few.watts, few.joules, few.clock_mhz) == (0.0, 0.0, 1500)
