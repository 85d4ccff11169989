"""Other shapes, new shapes, errors, training and use: claims on recordings, and on numbers by hand."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kinetoscope.html import Html
from snippets.fused_mlp.findings import in_use, shapes
from snippets.lab.finding import Device, NotTimed
from snippets.lab.finding.claim import Status
from snippets.lab.recording.schema import Point, Timing, Timings
from tests.chapters.altered import AlteredDevice
from tests.chapters.fused_mlp.verdicts import measured, status, statuses, text_of, value
from tests.lab.samples import sample

WIDE, THIN = (8, 64, 128), (512, 16, 32)
SERIES = (8192, 768, 3072)
replace = msgspec.structs.replace


def constant(us: float) -> Timing:
    return Timing(us, us, us, (us, us, us))


def point_of(shape: shapes.Shape, us: float, error: float = 1e-3, enqueue_us: float = 5.0) -> Point:
    timings = Timings(constant(us), constant(us), constant(2 * us), constant(enqueue_us), 4, 0)
    parameters: dict[str, int | str] = dict(zip(("tokens", "dim", "hidden"), shape, strict=True))
    return Point(parameters, 0, 0, error, "float64", 0, timings)


def put(device: AlteredDevice, experiment: str, *points: Point, session: str = "one", **data: Any) -> None:
    """Put a recording by hand in the place of one of the chapter's."""
    name = f"fused_mlp/{experiment}"
    device.recordings[name] = sample(name, points=points, session=session, data=data, has_trace=False)


def put_rows(device: AlteredDevice, ours_us: Mapping[shapes.Shape, float], dtype: str = "bfloat16") -> None:
    """A table in which the others take 100 us, Liger 99, in every row."""
    for name in shapes.PEERS_OF[dtype].values():
        times = {shape: {"fused": us, "liger": 99.0}.get(name, 100.0) for shape, us in ours_us.items()}
        put(device, f"{dtype}_{name}", *(point_of(shape, us) for shape, us in times.items()))
    put(device, "bfloat16_portable", *(point_of(shape, 70.0) for shape in ours_us))


def put_steady_rows(device: AlteredDevice, ours_joules: float, thin_us: float = 98.0) -> None:
    """A table in which each step takes a hundredth longer steady, and a joule, ours as many as given."""
    for dtype in shapes.DTYPES:
        put_rows(device, {WIDE: 33.0, THIN: thin_us}, dtype)
    names = [f"{dtype}_{name}" for dtype in shapes.DTYPES for name in shapes.PEERS_OF[dtype].values()]
    for name in (*names, "bfloat16_portable"):
        points = []
        for point in device.recordings[f"fused_mlp/{name}"].points:
            assert point.timings
            joules = ours_joules if name.endswith("fused") else 1.0
            steady = replace(constant(1.01 * point.timings.interleaved.median_us), joules=joules)
            points.append(replace(point, timings=replace(point.timings, steady=steady)))
        put(device, name, *points)


@pytest.mark.parametrize(("dtype", "claim_id"), [("bfloat16", "F50"), ("float16", "F51")])
@pytest.mark.parametrize(("thin_us", "expected"), [(99.0, "holds"), (99.99, "differs")])
def test_one_row_in_which_another_is_faster_is_noticed(
    thin_us: float, expected: Status, dtype: str, claim_id: str, device: AlteredDevice
) -> None:
    put_rows(device, {WIDE: 49.5, THIN: thin_us, shapes.ONE_TOKEN: 60.0}, dtype)
    assert (measured(device, claim_id).value, status(device, claim_id)) == (pytest.approx(thin_us / 99), expected)


def test_where_ours_gains_the_most_and_the_least(device: AlteredDevice) -> None:
    put_rows(device, {WIDE: 50.0, shapes.TALL_AND_THIN: 40.0, shapes.WIDEST: 90.0})
    assert [measured(device, name).text for name in ("F57", "F112")] == ["65536x256x1024", "1024x4096x14336"]
    assert statuses(device, "F57", "F112") == ["holds"] * 2
    assert value(device, "least_gain_percent") == pytest.approx(100 * 90 / 99)
    put_rows(device, {WIDE: 30.0, shapes.TALL_AND_THIN: 200.0, shapes.WIDEST: 90.0})
    assert [measured(device, name).text for name in ("F57", "F112")] == ["8x64x128", "65536x256x1024"]
    assert statuses(device, "F57", "F112") == ["differs"] * 2


def test_the_table_marks_the_fastest_and_divides_by_the_fastest_other(device: AlteredDevice) -> None:
    for dtype in shapes.DTYPES:
        put_rows(device, {WIDE: 33.0, THIN: 198.0}, dtype)
    piece = shapes.shape_table(device, "interleaved")
    assert re.findall("<strong>(.*?)</strong>", piece) == ["33.0 µs", "99.0 µs"] * 2
    assert "8x64x128 33.0 µs 0.333x 0.333x 70.0 µs 100 µs 100 µs 100 µs 99.0 µs" in text_of(piece)
    assert "512x16x32 198 µs 2.000x 2.000x 100 µs 100 µs 99.0 µs" in text_of(piece), "float16 has no max-autotune"
    assert "8x64x128 66.0 µs 0.333x 5.00 µs 140 µs 200 µs 200 µs 200 µs 198 µs" in text_of(
        shapes.shape_table(device, "from_python")
    )


@pytest.mark.parametrize(
    ("recorded", "expected"),
    [
        (("bfloat16_fused", "float16_fused"), "bfloat16 The same in float16 float16 "),
        (("float16_fused",), "float16 The same in bfloat16 is not recorded yet. "),
        ((), "bfloat16 The same in float16 float16 "),
    ],
)
def test_where_only_float16_is_recorded_it_stands_alone(
    recorded: tuple[str, ...], expected: str, tmp_path: Path
) -> None:
    folder = tmp_path / "nvidia-sample" / "fused_mlp"
    folder.mkdir(parents=True)
    for name in recorded:
        (folder / f"{name}.json").touch()
    piece = shapes.both_types(Device(tmp_path, "nvidia-sample"), lambda dtype: Html(f"<p>{dtype}</p>"))
    assert text_of(piece).strip() == expected.strip()


def test_steady_rows(device: AlteredDevice) -> None:
    put_steady_rows(device, ours_joules=0.75)
    text = text_of(shapes.shape_table(device, "steady"))
    assert "8x64x128 33.3 µs 0.333x 0.75x 70.7 µs 101 µs 101 µs 101 µs 100 µs" in text
    assert (measured(device, "F114").value, status(device, "F114")) == (pytest.approx(98 / 99), "holds")


@pytest.mark.parametrize(
    ("thin_us", "expected"),
    [
        (98.0, "none"),
        (99.5, "Liger at 512x16x32"),
        (100.5, "eager at 512x16x32; compiled at 512x16x32; max-autotune at 512x16x32; Liger at 512x16x32"),
    ],
)
def test_which_others_are_ahead_steady(thin_us: float, expected: str, device: AlteredDevice) -> None:
    put_steady_rows(device, ours_joules=1.0, thin_us=thin_us)
    assert value(device, "ahead_steady") == expected


def test_the_clock_over_that_of_the_compiled_forward(device: AlteredDevice) -> None:
    for name, mhz in (("fused", 1350.0), ("compiled", 1500.0)):
        point = point_of(shapes.WIDEST, 100.0)
        assert point.timings
        steady = replace(constant(101.0), clock_mhz=mhz)
        put(device, f"bfloat16_{name}", replace(point, timings=replace(point.timings, steady=steady)))
    assert value(device, "widest_clock") == 0.9


def test_one_token_over_the_fastest_other(device: AlteredDevice) -> None:
    put_rows(device, {WIDE: 50.0, shapes.ONE_TOKEN: 49.5})
    assert value(device, "one_token") == 0.5


def test_the_cpu_time_of_128_tokens(device: AlteredDevice) -> None:
    few, many = (16, *shapes.WIDE), (128, *shapes.WIDE)
    put(device, "bfloat16_fused", point_of(few, 33.0, enqueue_us=5.0), point_of(many, 33.0, enqueue_us=8.0))
    assert value(device, "cpu_of_128_tokens") == pytest.approx(1.6)


def test_without_power_there_is_no_energy(device: AlteredDevice) -> None:
    put_steady_rows(device, ours_joules=0.0)
    assert "8x64x128 33.3 µs 0.333x – 70.7 µs" in text_of(shapes.shape_table(device, "steady"))


def test_the_choice_is_the_fastest_candidate_wherever_it_stands(device: AlteredDevice) -> None:
    times = {"ping-pong 128x64, 6 slots, group 8": 3.0, "few Hopper 8x64x64, 9 slots": 2.0, "two products": 1.0}
    one, many = (shapes.shape_name((tokens, *shapes.WIDE)) for tokens in (1, 128))
    put(device, "chosen", **{one: {"gate_up": times}, many: {"gate_up": times}})
    expected = "1: two products; 128: two products"
    assert (measured(device, "F53").value, status(device, "F53")) == (expected, "differs")
    without = {**times, "two products": 9.0}
    pingpong = {**without, "ping-pong 128x64, 6 slots, group 8": 1.5}
    device.data("fused_mlp/chosen", **{one: {"gate_up": without}, many: {"gate_up": pingpong}})
    assert (measured(device, "F53").value, status(device, "F53")) == ("1: few Hopper; 128: ping-pong", "holds")


def test_a_pause_is_where_something_was_built(device: AlteredDevice) -> None:
    calls = {"first_call_ms": [900.0, 20.0, 20.0, 0.5, 0.5], "second_call_ms": [1.0] * 5}
    sizes = [8192, 8184, 6144, 4096, 3996]
    built = {"static": [1, 2, 3, 4, 5], "automatic": [1, 2, 2, 2, 2], "fused": [1, 1, 1, 2, 2]}
    put(device, "new_shapes", tokens=sizes, **{name: {**calls, "built": counts} for name, counts in built.items()})
    assert statuses(device, "F60", "F61", "F62") == ["holds"] * 3
    for name, claim_id in {"static": "F60", "automatic": "F61", "fused": "F62"}.items():
        device.data("fused_mlp/new_shapes", **{name: {**calls, "built": [1, 1, 2, 2, 2]}})
        assert (measured(device, claim_id).value, status(device, claim_id)) == ("8192, 6144", "differs")


def test_one_row_with_a_larger_error_is_noticed(device: AlteredDevice) -> None:
    for dtype in shapes.DTYPES:
        put(device, f"{dtype}_eager", point_of(WIDE, 1.0, 2e-3), point_of(THIN, 1.0, 2e-3))
        put(device, f"{dtype}_fused", point_of(WIDE, 1.0, 1e-3), point_of(THIN, 1.0, 2e-3))
    assert (measured(device, "F65").value, measured(device, "F65").spread) == (1.0, (0.5, 1.0))
    assert status(device, "F65") == "holds"
    put(device, "float16_fused", point_of(WIDE, 1.0, 1e-3), point_of(THIN, 1.0, 2.1e-3))
    assert status(device, "F65") == "differs"


@pytest.mark.parametrize(
    ("float16_error", "expected"), [(1e-3 / 8, "holds"), (1e-3 / 7.8, "differs"), (1e-3 / 8.2, "differs")]
)
def test_three_digits_more_are_an_eighth_of_the_error(
    float16_error: float, expected: Status, device: AlteredDevice
) -> None:
    put(device, "bfloat16_fused", point_of(SERIES, 1.0, 1e-3))
    put(device, "float16_fused", point_of(SERIES, 1.0, float16_error))
    assert status(device, "F69") == expected


@pytest.mark.parametrize(("roundings", "expected"), [(1, "differs"), (2, "holds"), (3, "differs")])
def test_roundings_are_counted_by_the_error(roundings: int, expected: Status, device: AlteredDevice) -> None:
    put(device, "gate_up_bare", point_of(WIDE, 1.0, 1.66e-3))
    put(device, "fused", point_of(WIDE, 1.0, 1.66e-3 * roundings**0.5))
    assert status(device, "F66") == expected


def test_training_has_to_beat_every_other(device: AlteredDevice) -> None:
    for name, us in (("eager", 100.0), ("compiled", 90.0), ("liger", 95.0), ("fused", 80.0)):
        put(device, f"training_{name}", point_of(WIDE, us))
    assert measured(device, "F70").value == pytest.approx(80 / 90)
    assert statuses(device, "F70", "F71") == ["holds", "holds"]
    put(device, "training_compiled", point_of(WIDE, 80.0))
    assert statuses(device, "F70", "F71") == ["differs", "holds"]
    put(device, "training_eager", point_of(WIDE, 99.0))
    assert status(device, "F71") == "differs"


def test_training_against_the_compiler(device: AlteredDevice) -> None:
    put(device, "training_compiled", replace(point_of(WIDE, 100.0), peak_memory_bytes=100))
    for us, peak, expected in ((86.0, 80, "holds"), (87.0, 81, "differs")):
        put(device, "training_fused", replace(point_of(WIDE, us), peak_memory_bytes=peak))
        assert measured(device, "F107").value == pytest.approx(us / 100)
        assert statuses(device, "F107", "F108") == [expected] * 2


def test_the_energy_of_a_training_step(device: AlteredDevice) -> None:
    for ours_joules, expected in ((0.93, "holds"), (0.94, "differs")):
        for name, joules in (("compiled", 1.0), ("fused", ours_joules)):
            point = point_of(WIDE, 100.0)
            assert point.timings
            steady = replace(constant(100.0), joules=joules)
            put(device, f"training_{name}", replace(point, timings=replace(point.timings, steady=steady)))
        assert (measured(device, "F113").value, status(device, "F113")) == (ours_joules, expected)


def test_what_each_kind_of_recomputing_holds_and_takes(device: AlteredDevice) -> None:
    for name, us in (("compiled", 90.0), ("fused", 80.0), ("fused_recompute_hidden", 84.0), ("fused_recompute", 99.0)):
        put(device, f"training_{name}", point_of(WIDE, us))
    held = {"fused": 300, "fused_recompute_hidden": 200, "fused_recompute": 10}
    put(device, "kept_bytes", **{name: {"held_bytes": held_bytes} for name, held_bytes in held.items()})
    assert [value(device, name) for name in ("recompute_one_saves", "recompute_saves")] == [100, 290]
    assert value(device, "recomputing_one_over_saving") == pytest.approx(1.05)
    assert value(device, "recomputing_over_compiled") == pytest.approx(1.1)


def test_training_from_python(device: AlteredDevice) -> None:
    put(device, "training_eager", point_of(WIDE, 100.0))
    for us, expected in ((90.0, "holds"), (91.0, "differs")):
        put(device, "training_fused", point_of(WIDE, us))
        assert (measured(device, "F75").value, status(device, "F75")) == (pytest.approx(us / 100), expected)


def test_exercises_by_hand(device: AlteredDevice) -> None:
    put(
        device,
        "steps",
        gate_up={"hand over at the end": [103.0, 104.0, 105.0], "hand over early": [99.0, 100.0, 101.0]},
        activation={"none": [9, 10, 11], "silu": [9, 10, 11], "gelu_tanh": [10, 11, 12], "gelu": [10, 11, 12]},
    )
    assert (measured(device, "F85").value, measured(device, "F85").spread) == (1.04, (105 / 101, 103 / 99))
    assert statuses(device, "F85", "F86", "F87") == ["holds", "differs", "differs"]
    assert "GELU by tanh 11.0 µs" in text_of(in_use.activations(device))
    put(device, "steps")
    assert status(device, "F85") == "not measured"


def test_what_was_never_timed_is_an_error(device: AlteredDevice) -> None:
    put(device, "fused", replace(point_of(WIDE, 1.0), timings=None))
    with pytest.raises(
        NotTimed, match=r"^fused_mlp/fused was recorded without timings; make record CHAPTER=fused_mlp$"
    ):
        value(device, "cpu_over_gpu")
