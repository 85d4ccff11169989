"""How fast each way is, and what longer sequences do to it: claims on recordings, and on altered ones."""

from __future__ import annotations

import copy
import re
from typing import Any

import msgspec
import pytest

from snippets.attention.findings import growing, speed
from snippets.attention.findings.measures import WAYS
from snippets.lab.finding.book import Verdict, judge
from snippets.lab.finding.claim import Status
from snippets.lab.recording.device import DEFAULT_DEVICE
from snippets.lab.recording.loading import load_recording
from snippets.lab.recording.schema import RecordingError, Timing
from tests.bench import AlteredRecordings

CLAIMS = {claim.id: claim for claim in (*speed.CLAIMS, *growing.CLAIMS)}
replace = msgspec.structs.replace


def judged(name: str) -> Verdict:
    return judge(CLAIMS[name], "attention", DEFAULT_DEVICE)


def verdict(name: str) -> Status:
    return judged(name).word


def constant(us: float) -> Timing:
    return Timing(us, us, us, (us, us, us))


class Altered(AlteredRecordings):
    """The builder's recordings with a way's time, or what it gave at a length, put in by hand."""

    def timed(self, kind: str, **times_us: float) -> None:
        """Give forwards of one session a constant time; `kind` is a field of `Timings`."""
        for name, us in times_us.items():
            found = self.load(f"attention/{name}", DEFAULT_DEVICE)
            at = found.points[0]
            assert at.timings is not None
            self.recordings[found.id] = replace(
                found, points=(replace(at, timings=replace(at.timings, **{kind: constant(us)})),)
            )

    def at_length(self, head_dim: int, tokens: int, name: str, **given: Any) -> None:
        """Put in what a way gave at a length, in the place of all that it gave."""
        found = load_recording(f"attention/lengths_{head_dim}", DEFAULT_DEVICE)
        data = copy.deepcopy(found.data)
        data[str(tokens)]["variants"][name] = given
        self.recordings[found.id] = replace(found, data=data)

    def picked(self, head_dim: int, tokens: int, name: str) -> None:
        """Let PyTorch pick another backend at a length."""
        found = load_recording(f"attention/lengths_{head_dim}", DEFAULT_DEVICE)
        data = copy.deepcopy(found.data)
        data[str(tokens)]["auto"] = name
        self.recordings[found.id] = replace(found, data=data)


@pytest.fixture
def altered(monkeypatch: pytest.MonkeyPatch) -> Altered:
    return Altered(monkeypatch)


def time_us(us: float) -> list[float]:
    return [us, us, us]


def test_every_verdict_is_the_one_the_prose_was_written_for() -> None:
    found = [judge(claim, "attention", DEFAULT_DEVICE) for claim in CLAIMS.values()]
    assert [(one.claim.id, one.word, one.reason) for one in found if not one.is_expected] == []
    assert [one.claim.id for one in found if one.word == "differs"] == ["A4", "A11"]
    assert list(CLAIMS) == ["A4", "A11", *(f"O-A{number}" for number in range(30, 43))]


def test_every_difference_is_explained_without_numbers() -> None:
    for claim in CLAIMS.values():
        assert bool(claim.why) == (claim.expected.get(DEFAULT_DEVICE) == "differs"), claim.id
        assert not re.search(r"\d\s?(?:[mµn]s|us|[MGT]B|%|T?FLOP)", claim.why), claim.id


def test_every_figure_is_computed() -> None:
    for figures in (speed.FIGURES, growing.FIGURES):
        assert all(of(DEFAULT_DEVICE).text for of in figures.values())


# One length


@pytest.mark.parametrize(
    ("in_place_us", "math_us", "word"),
    [(100.0, 370.0, "holds"), (100.0, 340.0, "holds"), (100.0, 320.0, "differs"), (100.0, 420.0, "differs")],
)
def test_math_over_in_place(altered: Altered, in_place_us: float, math_us: float, word: Status) -> None:
    altered.timed("warm", in_place=in_place_us, math=math_us)
    assert verdict("A4") == word


def test_the_series_order_of_backends(altered: Altered) -> None:
    altered.timed("warm", flash=10, cudnn=20, efficient=30)
    found = judged("A11")
    assert found.word == "holds"
    assert found.measured is not None
    assert found.measured.value == "flash, cuDNN, efficient"
    assert found.measured.text == "flash 10.0 µs, cuDNN 20.0 µs, efficient 30.0 µs"


def test_the_order_on_the_cpu_is_of_the_cpu(altered: Altered) -> None:
    altered.timed("warm", flash=1, cudnn=2, efficient=3)
    assert verdict("O-A30") == "holds"
    altered.timed("enqueue", flash=30, cudnn=20, efficient=10)
    assert verdict("O-A30") == "differs"


def test_what_cudnn_gains_more_than_flash(altered: Altered) -> None:
    altered.timed("warm", cudnn=186.3 / 3, flash=146.8 / 1.5)
    found = judged("O-A31").measured
    assert found is not None
    assert found.value == pytest.approx(2)
    altered.timed("warm", cudnn=186.3 / 3, flash=146.8 / 3)
    assert verdict("O-A31") == "differs"


def test_one_place_exchanged_is_another_order(altered: Altered) -> None:
    altered.timed("warm", flex=100.0, flash=90.0)
    assert verdict("O-A32") == "differs"


@pytest.mark.parametrize(("named_us", "word"), [(45.0, "holds"), (30.0, "differs"), (25.0, "differs")])
def test_what_naming_costs(altered: Altered, named_us: float, word: Status) -> None:
    altered.timed("enqueue", cudnn=named_us, auto=25.0)
    assert verdict("O-A33") == word


def test_timings_of_two_sessions_are_not_compared(altered: Altered) -> None:
    altered.recordings["attention/math"] = replace(altered.load("attention/math", DEFAULT_DEVICE), session="another")
    found = judged("A4")
    assert (found.word, found.measured) == ("not measured", None)
    assert "FRESH=1" in found.reason


def test_one_fused_way_that_needs_more(altered: Altered) -> None:
    found = altered.load("attention/flex", DEFAULT_DEVICE)
    at = found.points[0]
    result_bytes = at.bytes // 4
    altered.recordings[found.id] = replace(found, points=(replace(at, peak_memory_bytes=2 * result_bytes),))
    measured = judged("O-A34").measured
    assert measured is not None
    assert (measured.value, verdict("O-A34")) == (2, "differs")


def test_tables_of_one_length() -> None:
    gpu, cpu = speed.gpu_times(), speed.cpu_times()
    assert gpu.count("<tr>") == cpu.count("<tr>") == 1 + len(WAYS)
    assert "7.24 ms" in gpu
    assert gpu.count('title="none"') == 2 * (len(WAYS) - len(speed.SERIES_GPU_US))
    assert "214 µs" in cpu


# Many lengths


def test_lengths_and_who_is_measured() -> None:
    for head_dim in growing.HEAD_DIMS:
        found = growing.at_lengths(head_dim, DEFAULT_DEVICE)
        assert list(found) == [128, 256, 512, 1024, 2048, 4096, 8192, 16384]
        assert all(set(one["variants"]) == set(growing.SWEPT.values()) for one in found.values())
    assert growing.longest(DEFAULT_DEVICE) == 16384


def test_growth_by_hand(altered: Altered) -> None:
    altered.at_length(64, 1024, "flash", time_us=[90, 100, 110])
    altered.at_length(64, 2048, "flash", time_us=[297, 300, 330])
    found = growing.growth(64, 2048, "flash")(DEFAULT_DEVICE)
    assert (found.value, found.text) == (3, "3.00x")
    assert found.spread == pytest.approx((297 / 110, 330 / 90))


@pytest.mark.parametrize(("us", "word"), [(4 * 14047.5, "differs"), (14047.5, "holds")])
def test_one_fused_way_that_grows_faster(altered: Altered, us: float, word: Status) -> None:
    altered.at_length(64, 16384, "flash", time_us=time_us(us))
    assert verdict("O-A37") == word


def test_any_way_may_take_the_lead(altered: Altered) -> None:
    altered.at_length(64, 128, "naive", time_us=time_us(1))  # below 256 tokens nothing is claimed
    assert verdict("O-A35") == "holds"
    altered.at_length(128, 512, "naive", time_us=time_us(32.9))
    assert verdict("O-A35") == "differs"


def test_who_is_picked_at_every_length(altered: Altered) -> None:
    altered.picked(128, 128, "flash")
    found = judged("O-A36")
    assert found.measured is not None
    assert (found.word, found.measured.text) == ("differs", "15 of 16")


def test_who_is_out_of_memory(altered: Altered) -> None:
    altered.at_length(64, 16384, "naive", stopped="out of memory for 64.00 GiB more at 16384 tokens")
    found = judged("O-A40")
    assert found.measured is not None
    assert (found.word, found.measured.value) == ("differs", "64: naive, math; 128: naive, in place, math")


def test_another_reason_to_stop_is_not_memory(altered: Altered) -> None:
    altered.at_length(64, 16384, "math", stopped="RuntimeError: no kernel")
    assert verdict("O-A40") == "differs"
    with pytest.raises(LookupError, match="not out of memory"):
        growing.FIGURES["length_math_asked"](DEFAULT_DEVICE)
    assert "RuntimeError: no kernel" in growing.longest_table()


@pytest.mark.parametrize(("unit", "scale"), [("GiB", 2**30), ("MiB", 2**20)])
def test_what_was_asked_for(altered: Altered, unit: str, scale: int) -> None:
    altered.at_length(64, 16384, "math", stopped=f"out of memory for 1.50 {unit} more at 8192 tokens")
    assert growing.FIGURES["length_math_asked"](DEFAULT_DEVICE).value == 1.5 * scale


def test_a_matrix_of_scores_by_hand() -> None:
    assert growing.scores_bytes(DEFAULT_DEVICE).value == 2 * 8 * 16 * 16384 * 16384


def test_who_stops_first_is_who_stops_at_the_shortest_length(altered: Altered) -> None:
    assert growing.FIGURES["length_first_out"](DEFAULT_DEVICE).value == "math"
    altered.at_length(128, 8192, "compiled", stopped="out of memory for 8.00 GiB more at 8192 tokens")
    assert growing.FIGURES["length_first_out"](DEFAULT_DEVICE).value == "compiled"


def test_rate_and_share_by_hand(altered: Altered) -> None:
    """Two causal products of 8192 tokens, 2 x 2 x 128 x 8192 x 4096 x 64 FLOP; a product of 8192 cubed as ceiling."""
    altered.at_length(64, 8192, "flash", time_us=time_us(1000))
    spot = growing.spot(64, 8192, "flash", DEFAULT_DEVICE)
    assert spot.flops == 2 * 2 * 128 * 8192 * 4096 * 64
    assert spot.bytes == 4 * 2 * 128 * 8192 * 64
    assert spot.rate == pytest.approx(spot.flops / 1e-3)
    altered.at_length(64, 16384, "flash", time_us=time_us(4000))
    found = load_recording("attention/flash", DEFAULT_DEVICE)
    ceilings = tuple(
        replace(one, timing=constant(1000)) if one.what == growing.LARGE_PRODUCT else one for one in found.ceilings
    )
    altered.recordings[found.id] = replace(found, ceilings=ceilings)
    share = growing.product_share(64, "flash")(DEFAULT_DEVICE)
    assert share.value == pytest.approx(100 * (spot.flops * 4 / 4e-3) / (2 * 8192**3 / 1e-3))


def test_a_share_needs_its_ceiling(altered: Altered) -> None:
    found = load_recording("attention/flash", DEFAULT_DEVICE)
    altered.recordings[found.id] = replace(found, ceilings=())
    with pytest.raises(RecordingError, match="make record CHAPTER=attention"):
        growing.product_share(64, "cuDNN")(DEFAULT_DEVICE)


def test_what_stopped_has_no_time() -> None:
    with pytest.raises(growing.Stopped, match=r"math has no time at 16384 tokens: out of memory for 128.00 GiB"):
        growing.length_timing(64, 16384, "math", DEFAULT_DEVICE)


def test_the_fastest_of_a_row_is_bold(altered: Altered) -> None:
    altered.at_length(64, 128, "naive", time_us=time_us(1.5))
    listed = growing.lengths_table()
    assert "<strong>1.50 µs</strong>" in listed
    assert listed.count("<strong>") == 16
    assert listed.count(">stopped<") == 4


def test_what_stopped_is_left_out_of_the_roofline(altered: Altered) -> None:
    assert "naive, 16,384 tokens" in growing.climbing()
    altered.at_length(64, 16384, "naive", stopped="out of memory for 64.00 GiB more at 16384 tokens")
    assert "naive, 16,384 tokens" not in growing.climbing()


@pytest.mark.parametrize(("wide_us", "word"), [(101.0, "holds"), (110.0, "differs"), (90.0, "differs")])
def test_a_wider_head_costs_naive_attention_nothing(altered: Altered, wide_us: float, word: Status) -> None:
    altered.at_length(64, 1024, "naive", time_us=time_us(100))
    altered.at_length(128, 1024, "naive", time_us=time_us(wide_us))
    assert verdict("O-A42") == word


@pytest.mark.parametrize(
    ("name", "tokens", "way", "us"),
    [("O-A38", 256, "cudnn", 16.0), ("O-A39", 16384, "cudnn", 7000.0), ("O-A41", 2048, "compiled", 1300.0)],
)
def test_a_claim_on_growth_can_fail(altered: Altered, name: str, tokens: int, way: str, us: float) -> None:
    altered.at_length(64, tokens, way, time_us=time_us(us))
    assert verdict(name) == "differs"
