"""The page devices: exact rates from hand-made ceilings, and the builder's own recordings."""

import re
from pathlib import Path

import msgspec
import pytest

from snippets.devices import findings
from snippets.lab.finding.figure import format_value
from snippets.lab.recording.device import DEFAULT_DEVICE
from snippets.lab.recording.loading import load_recording, load_recordings
from snippets.lab.recording.schema import Ceiling, NotRecorded, Recording, Timing

# KEEP recording
from tests.lab import samples

ONE_MS = Timing(1000.0, 990.0, 1010.0, (990.0, 1000.0, 1010.0))


def test_a_copy_is_rated_by_its_bytes_and_a_product_by_its_operations():
    assert findings.rate(Ceiling("copy", 4_000_000_000, 0, ONE_MS)) == (4e12, "bytes/s")
    assert findings.rate(Ceiling("matmul 10x10x10", 600, 2000, ONE_MS)) == (2e6, "flop/s")


def test_the_range_of_a_ceiling_is_its_median_and_bounds():
    rates = [(3e12, "flop/s"), (1e12, "flop/s"), (2e12, "flop/s")]
    assert findings._range(rates) == ["2.00 TFLOP/s", "1.00 TFLOP/s", "3.00 TFLOP/s", 3]


def test_ceilings_are_ordered_by_size_as_numbers():
    assert sorted(["matmul 1024x32x64", "matmul 64x64x64", "matmul 128x1x1"], key=findings._sizes) == [
        "matmul 64x64x64",
        "matmul 128x1x1",
        "matmul 1024x32x64",
    ]


def test_circumstances_are_those_of_a_timed_recording(monkeypatch):
    timed = next(one for one in load_recordings(DEFAULT_DEVICE) if one.ceilings)
    later = msgspec.structs.replace(timed.circumstances, date="2999-01-01T00:00:00Z", driver="idle")
    untimed = msgspec.structs.replace(timed, points=(), circumstances=later)
    monkeypatch.setattr(recording, "every", lambda device: iter([timed, untimed]))
    assert [one.driver for one in findings.sessions_of("any")] == [timed.circumstances.driver]


def cells(table: str) -> dict[str, str]:
    """A table of two columns: name of a row -> what stands beside it."""
    rows = re.findall(r"<tr>\s*<td>(.*?)</td>\s*<td.*?>(.*?)</td>\s*</tr>", table, re.DOTALL)
    return {name: samples.Markup(cell).text for name, cell in rows}


def test_clocks_are_a_range_over_sessions_and_the_rest_is_the_latest(monkeypatch):
    timed = next(one for one in load_recordings(DEFAULT_DEVICE) if one.ceilings)
    monkeypatch.setattr(recording, "devices", lambda: ("any",))

    def session(date: str, driver: str, **clocks: float) -> Recording:
        found = msgspec.structs.replace(timed.circumstances, date=date, driver=driver, clocks=clocks)
        return msgspec.structs.replace(timed, circumstances=found)

    late = session("2026-02-02", "new", sm_mhz=1980.0, power_w=337.4)
    middle = session("2026-02-01", "old", sm_mhz=1290.4, power_w=685.0)
    early = session("2026-01-31", "oldest", sm_mhz=1500.0)
    monkeypatch.setattr(recording, "every", lambda device: iter([middle, late, early]))
    shown = cells(findings.circumstances())
    assert (shown["driver"], shown["last recorded"]) == ("new", "2026-02-02")
    assert (shown["SM clock under load"], shown["power under load"]) == ("1290 to 1980 MHz", "337 to 685 W")
    assert shown["temperature"] == "–", "nobody read it"
    monkeypatch.setattr(recording, "every", lambda device: iter([late]))
    assert cells(findings.circumstances())["SM clock under load"] == "1980 MHz"


def test_every_ceiling_of_the_builder_is_in_the_table(monkeypatch):
    monkeypatch.setenv("DEVICE", DEFAULT_DEVICE)
    shown = findings.ceilings()
    for one in load_recordings(DEFAULT_DEVICE):
        for ceiling in one.ceilings:
            assert f"<td>{ceiling.what}</td>" in shown


def test_the_book_s_steps_are_shown_by_their_timings(monkeypatch):
    monkeypatch.setenv("DEVICE", DEFAULT_DEVICE)
    (layer,) = load_recording("linear/eager", DEFAULT_DEVICE).points
    cells = [format_value(us, "us") for us in (layer.timings.warm.median_us, layer.timings.enqueue.median_us)]
    bars = "".join(findings.gpu_and_cpu().splitlines())
    for name, cell in zip(("GPU", "CPU"), cells, strict=True):
        assert f'<td>a linear layer</td><td>{name}</td><td class="number">{cell}</td>' in bars
    roofline = "".join(findings.roofline().splitlines())
    rate = format_value(layer.flops / layer.timings.warm.median_us * 1e6, "flop/s")
    assert (
        f'<td>linear</td><td class="number">{layer.flops / layer.bytes:.1f}</td><td class="number">{rate}' in roofline
    )
    assert all(f"<td>{name}</td>" in roofline for name in findings.STEPS)


def test_without_recordings_the_page_says_what_to_run(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(recording, "devices", lambda: ())
    with pytest.raises(NotRecorded, match="make record"):
        findings.circumstances()


def test_the_claim_about_copies_fails_where_both_take_the_same_time():
    (claim,) = findings.CLAIMS
    same = findings.ratio(ONE_MS, ONE_MS)
    slower = findings.ratio(Timing(2000.0, 0, 0, (1980.0, 2000.0, 2020.0)), ONE_MS)
    assert (claim.holds(same), claim.holds(slower)) == (False, True)
