"""Other shapes, errors, training and use in the chapter fused_mlp: claims on recordings, and on numbers by hand."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from html import unescape
from typing import Any

import msgspec
import pytest

from snippets.fused_mlp.findings import peers as findings
from snippets.lab.finding.book import judge
from snippets.lab.finding.claim import Status
from snippets.lab.finding.figure import Figure
from snippets.lab.html import Html
from snippets.lab.recording.device import DEFAULT_DEVICE
from snippets.lab.recording.loading import load_recording, load_trace
from snippets.lab.recording.schema import Environment, NotRecorded, Point, Recording, RecordingError, Timing, Timings
from snippets.lab.trace.events import Trace

# KEEP recording

CLAIMS = {claim.id: claim for claim in findings.CLAIMS}
WIDE, THIN = (8, 64, 128), (512, 16, 32)
replace = msgspec.structs.replace
CIRCUMSTANCES = Environment("", "", "NVIDIA H200", "9.0", 132, 0, 0, "", "", {}, {})


def verdict(name: str) -> Status:
    return judge(CLAIMS[name], "fused_mlp", DEFAULT_DEVICE).word


def measured(name: str) -> Figure:
    found = judge(CLAIMS[name], "fused_mlp", DEFAULT_DEVICE).measured
    assert found is not None
    return found


def constant(us: float) -> Timing:
    return Timing(us, us, us, (us, us, us))


def point_of(shape: tuple[int, int, int], us: float, error: float = 1e-3, enqueue_us: float = 5.0) -> Point:
    timings = Timings(constant(us), constant(us), constant(2 * us), constant(enqueue_us), 4, 0)
    parameters: dict[str, int | str] = dict(zip(("tokens", "dim", "hidden"), shape, strict=True))
    return Point(parameters, 0, 0, error, "float64", 0, timings)


class Shelf:
    """Recordings and traces that stand before the committed ones."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.load, self.trace = load_recording, load_trace
        self.recordings: dict[str, Recording] = {}
        self.traces: dict[str, Trace] = {}
        monkeypatch.setattr(recording, "load", lambda name, device, *_: self.found(name, device))
        monkeypatch.setattr(
            recording, "trace", lambda name, device, *_: self.traces.get(name) or self.trace(name, device)
        )

    def found(self, name: str, device: str) -> Recording:
        return self.recordings.get(name) or self.load(name, device)

    def put(self, experiment: str, *points: Point, session: str = "one", **data: Any) -> None:
        """Put a recording by hand in the place of one of the chapter's."""
        self.recordings[f"fused_mlp/{experiment}"] = Recording(
            1, "fused_mlp", experiment, "", "", session, CIRCUMSTANCES, 0, (1, 1, 3), 3, points, (), data, False
        )

    def rows(self, ours_us: Mapping[tuple[int, int, int], float], dtype: str = "bfloat16") -> None:
        """A table in which the others take 100 us, Liger 99, in every row."""
        for name in findings.PEERS.values():
            times = {shape: {"fused": us, "liger": 99.0}.get(name, 100.0) for shape, us in ours_us.items()}
            self.put(f"{dtype}_{name}", *(point_of(shape, us) for shape, us in times.items()))

    def kernels(self, variant: str, old: str, new: str) -> None:
        """Rename kernels of a variant's steps."""
        name = f"fused_mlp/{variant}"
        traced = self.trace(name, DEFAULT_DEVICE)
        steps = tuple(
            replace(step, activities=tuple(replace(one, name=one.name.replace(old, new)) for one in step.activities))
            for step in traced.steps
        )
        self.traces[name] = replace(traced, steps=steps)


@pytest.fixture
def shelf(monkeypatch: pytest.MonkeyPatch) -> Shelf:
    return Shelf(monkeypatch)


def test_every_verdict_is_the_one_the_prose_was_written_for() -> None:
    judged = [judge(claim, "fused_mlp", DEFAULT_DEVICE) for claim in findings.CLAIMS]
    assert [(one.claim.id, one.word, one.reason) for one in judged if not one.is_expected] == []
    assert [one.claim.id for one in judged if one.word == "not measured" and not one.is_pending] == []


def test_every_difference_is_explained_without_numbers() -> None:
    for claim in findings.CLAIMS:
        assert bool(claim.why) == (claim.expected.get(DEFAULT_DEVICE) == "differs"), claim.id
        assert not re.search(r"\d\s?(?:[mµn]s|us|[MGT]B|%|T?FLOP)", claim.why), claim.id


@pytest.mark.parametrize(
    ("ours_us", "won", "word"),
    [
        ((50.0, 50.0, 50.0), "3 of 3", "holds"),
        ((50.0, 100.9, 120.0), "2 of 3", "holds"),
        ((50.0, 101.1, 120.0), "1 of 3", "differs"),
    ],
)
def test_a_row_is_won_within_two_percent_of_the_fastest(
    ours_us: tuple[float, ...], won: str, word: Status, shelf: Shelf
) -> None:
    shelf.rows(dict(zip((WIDE, THIN, findings.ONE_TOKEN), ours_us, strict=True)))
    assert (measured("F50").text, verdict("F50")) == (won, word)


def test_rows_of_both_types_are_counted_together(shelf: Shelf) -> None:
    shelf.rows({WIDE: 50.0, THIN: 50.0})
    shelf.rows({WIDE: 50.0, THIN: 200.0}, "float16")
    assert [measured(name).text for name in ("F50", "F51", "F52")] == ["2 of 2", "1 of 2", "3 of 4"]
    assert [verdict(name) for name in ("F50", "F51", "F52")] == ["holds", "differs", "holds"]
    assert findings.FIGURES["rows_won"](DEFAULT_DEVICE).value == 2
    assert findings.FIGURES["rows_lost"](DEFAULT_DEVICE).value == "none"
    assert findings.FIGURES["rows_lost_float16"](DEFAULT_DEVICE).value == "512x16x32"


def test_who_wins_where_ours_loses_and_where_ours_gains_the_most(shelf: Shelf) -> None:
    for dtype in findings.DTYPES:
        shelf.rows({WIDE: 50.0, findings.TALL_AND_THIN: 40.0}, dtype)
    assert (measured("F56").text, verdict("F56")) == ("nobody", "holds")
    assert (measured("F57").text, verdict("F57")) == ("65536x256x1024", "holds")
    shelf.rows({WIDE: 30.0, findings.TALL_AND_THIN: 200.0})
    assert (measured("F56").text, verdict("F56")) == ("Liger", "differs")
    assert (measured("F57").text, verdict("F57")) == ("8x64x128", "differs")


def test_the_table_marks_the_fastest_and_divides_by_the_fastest_other(shelf: Shelf) -> None:
    for dtype in findings.DTYPES:
        shelf.rows({WIDE: 33.0, THIN: 198.0}, dtype)
    shown = findings.shape_table()
    assert re.findall("<strong>(.*?)</strong>", shown) == ["33.0 µs", "99.0 µs"] * 2
    assert "8x64x128 33.0 µs 0.333x 100 µs 100 µs 100 µs 100 µs 99.0 µs" in text_of(shown)
    assert "512x16x32 198 µs 2.000x 100 µs 100 µs 100 µs 100 µs 99.0 µs" in text_of(shown)
    assert "8x64x128 66.0 µs 0.333x 200 µs 200 µs 200 µs 200 µs 198 µs 5.00 µs" in text_of(findings.python_table())


def test_rows_of_two_sessions_are_not_compared(shelf: Shelf) -> None:
    shelf.rows({WIDE: 50.0})
    shelf.put("bfloat16_fused", point_of(WIDE, 50.0), session="another")
    found = judge(CLAIMS["F50"], "fused_mlp", DEFAULT_DEVICE)
    assert (found.word, "recorded apart" in found.reason) == ("not measured", True)


def test_the_choice_is_the_fastest_candidate_wherever_it_stands(shelf: Shelf) -> None:
    times = {"ping-pong 128x64, 6 slots, group 8": 3.0, "ping-pong 64x64, 8 slots, group 8": 2.0, "two products": 1.0}
    one, two, three = map(findings.shape_name, findings.FEW_TOKENS)
    shelf.put("chosen", **{one: {"gate_up": times}, two: {"gate_up": times}, three: {"gate_up": times}})
    assert (measured("F53").value, verdict("F53")) == (
        "1: two products; 16: two products; 128: two products",
        "differs",
    )
    shelf.put(
        "chosen", **{one: {"gate_up": times}, two: {"gate_up": times}, three: {"gate_up": {**times, "two products": 9}}}
    )
    assert verdict("F53") == "holds"


def test_from_python_it_is_the_cpu_that_counts(shelf: Shelf) -> None:
    shelf.put("fused", point_of(WIDE, 100.0, enqueue_us=150.0))
    shelf.put("eager", point_of(WIDE, 300.0, enqueue_us=100.0))
    assert (measured("F55").value, verdict("F55")) == (1.5, "holds")
    assert findings.FIGURES["cpu_over_gpu"](DEFAULT_DEVICE).value == 1.5
    shelf.put("eager", point_of(WIDE, 300.0, enqueue_us=101.0))
    assert verdict("F55") == "differs"


def test_a_pause_is_a_first_call_that_takes_twenty_times_the_second(shelf: Shelf) -> None:
    calls = {"first_call_ms": [900.0, 20.0, 19.9, 0.5], "second_call_ms": [1.0, 1.0, 1.0, 0.5]}
    shelf.put("new_shapes", tokens=[8, 6, 4, 2], fused=calls, static={**calls, "first_call_ms": [1800.0, 1, 1, 1]})
    assert findings.pauses("fused", DEFAULT_DEVICE) == [8, 6]
    assert findings.FIGURES["pauses"](DEFAULT_DEVICE).value == 2
    assert [verdict(name) for name in ("F60", "F61", "F62", "F63")] == ["differs", "not measured", "differs", "differs"]
    assert (measured("F62").value, measured("F63").value) == ("8, 6", 0.5)


def test_one_row_with_a_larger_error_is_noticed(shelf: Shelf) -> None:
    for dtype in findings.DTYPES:
        shelf.put(f"{dtype}_eager", point_of(WIDE, 1.0, 2e-3), point_of(THIN, 1.0, 2e-3))
        shelf.put(f"{dtype}_fused", point_of(WIDE, 1.0, 1e-3), point_of(THIN, 1.0, 2e-3))
    assert (measured("F65").value, measured("F65").spread, verdict("F65")) == (1.0, (0.5, 1.0), "holds")
    shelf.put("float16_fused", point_of(WIDE, 1.0, 1e-3), point_of(THIN, 1.0, 2.1e-3))
    assert verdict("F65") == "differs"


@pytest.mark.parametrize(
    ("float16_error", "word"), [(1e-3 / 8, "holds"), (1e-3 / 7.8, "differs"), (1e-3 / 8.2, "differs")]
)
def test_three_digits_more_are_an_eighth_of_the_error(float16_error: float, word: Status, shelf: Shelf) -> None:
    series = findings.SERIES
    shelf.put("bfloat16_fused", point_of(series, 1.0, 1e-3))
    shelf.put("float16_fused", point_of(series, 1.0, float16_error))
    assert verdict("F69") == word


@pytest.mark.parametrize(("roundings", "word"), [(1, "differs"), (2, "holds"), (3, "differs")])
def test_roundings_are_counted_by_the_error(roundings: int, word: Status, shelf: Shelf) -> None:
    shelf.put("gate_up_bare", point_of(WIDE, 1.0, 1.66e-3))
    shelf.put("fused", point_of(WIDE, 1.0, 1.66e-3 * roundings**0.5))
    assert verdict("F66") == word


def test_training_has_to_beat_every_other(shelf: Shelf) -> None:
    for name, us in (("eager", 100.0), ("compiled", 90.0), ("liger", 95.0), ("fused", 85.0)):
        shelf.put(f"training_{name}", point_of(WIDE, us))
    assert (measured("F70").value, verdict("F70"), verdict("F71")) == (pytest.approx(85 / 90), "holds", "holds")
    shelf.put("training_compiled", point_of(WIDE, 85.0))
    assert (verdict("F70"), verdict("F71")) == ("differs", "holds")
    shelf.put("training_eager", point_of(WIDE, 90.0))
    assert verdict("F71") == "differs"


def test_a_kernel_that_only_writes_zeros_is_noticed(shelf: Shelf) -> None:
    traced = load_trace("fused_mlp/training_fused", DEFAULT_DEVICE)
    assert (measured("F77").value, verdict("F77")) == ("0 and 0", "holds")
    ops = tuple(replace(op, name=op.name.replace("addmm", "zero_")) for op in traced.cpu_ops)
    shelf.traces["fused_mlp/training_fused"] = replace(traced, cpu_ops=ops)
    assert (measured("F77").value, verdict("F77")) == ("1 and 0", "differs")


def test_another_kernel_in_the_package_is_noticed(shelf: Shelf) -> None:
    assert measured("F80").text.startswith("pingpong_kernel, ")
    shelf.kernels("kernelized", "pingpong", "pointwise")
    assert verdict("F80") == "differs"
    assert measured("F80").text == "pointwise_kernel, pointwise_kernel, ours pingpong_kernel, pingpong_kernel"


def test_exercises_by_hand(shelf: Shelf) -> None:
    shelf.put(
        "steps",
        gate_up={"hand over at the end": [103.0, 104.0, 105.0], "hand over early": [99.0, 100.0, 101.0]},
        activation={"none": [9, 10, 11], "silu": [9, 10, 11], "gelu_tanh": [9, 11, 12], "gelu": [9, 11, 12]},
    )
    assert (measured("F85").value, measured("F85").spread) == (1.04, (103 / 101, 105 / 99))
    assert [verdict(name) for name in ("F85", "F86", "F87")] == ["holds", "differs", "differs"]
    assert "with the last block 104 µs 103 to 105 µs with the block before it 100 µs" in text_of(findings.handed_over())
    shelf.put("steps")
    assert verdict("F85") == "not measured"


def test_what_was_never_timed_is_said(shelf: Shelf) -> None:
    shelf.put("fused", replace(point_of(WIDE, 1.0), timings=None))
    with pytest.raises(RecordingError, match=r"^fused_mlp/fused was not timed; make record CHAPTER=fused_mlp$"):
        findings.timed_at("fused_mlp/fused", DEFAULT_DEVICE)


@contextmanager
def waiting_for_recordings() -> Iterator[None]:
    """Skips what needs a recording that was never made."""
    try:
        yield
    except NotRecorded as error:
        pytest.skip(f"not recorded yet: {error}")


@pytest.mark.parametrize("name", findings.FIGURES)
def test_every_figure_has_a_text(name: str) -> None:
    with waiting_for_recordings():
        shown = findings.FIGURES[name](DEFAULT_DEVICE)
    assert shown.text
    assert shown.conclusive


def text_of(shown: Html) -> str:
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", shown)))


SHOWN: Mapping[str, tuple[Callable[[], Html], tuple[str, ...]]] = {
    "shapes": (findings.shape_table, ("One forward in bfloat16", "The same in float16", "65536x256x1024")),
    "from Python": (findings.python_table, ("from Python, until the GPU is done", "ours, CPU", "8192x768x3080")),
    "roofline": (findings.shape_roofline, ("1 token", "16,384 tokens", "copy")),
    "first calls": (findings.first_calls, ("dynamic=False, first call", "8184", "3996")),
    "errors": (findings.errors_table, ("Relative error against float64, float16", "8192x768x3072")),
    "training": (findings.training_table, ("ours, recomputing", "peak memory of a step", "of it the CPU's")),
    "training kernels": (findings.training_kernels, ("ours, saving", "gated activation backward")),
    "package": (findings.packaged_kernels, ("pingpong_kernel", "132x1x1")),
    "hand over": (findings.handed_over, ("with the last block",)),
    "activations": (findings.activations, ("GELU by erf", "SiLU")),
}


@pytest.mark.parametrize("name", SHOWN)
def test_what_is_shown_says_what_it_promises(name: str) -> None:
    make, expected = SHOWN[name]
    with waiting_for_recordings():
        shown = text_of(make())
    assert [words for words in expected if words not in shown] == []


def test_a_missing_recording_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str, *_: object) -> Trace:
        raise NotRecorded(f"no recording {name!r}; run make record CHAPTER=fused_mlp")

    monkeypatch.setattr(recording, "load", missing)
    monkeypatch.setattr(recording, "trace", missing)
    assert {judge(claim, "fused_mlp", DEFAULT_DEVICE).word for claim in findings.CLAIMS} == {"not measured"}
