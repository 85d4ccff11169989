"""The bands of claims that measure more than a ratio of two recordings: the value, and on which side it lies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest

from kinetoscope.trace.events import Step
from snippets.fused_mlp.findings import shapes
from snippets.fused_mlp.findings.launching import LATE
from snippets.lab.finding.claim import Status
from tests.chapters.altered import AlteredDevice, scaled_timing
from tests.chapters.fused_mlp.by_hand import (
    ampere_code,
    beside_quack,
    compiled,
    enqueued,
    errors,
    few,
    launches,
    put_rows,
    put_shapes,
    put_steady_rows,
    put_tiles,
    sensed,
    steps,
    times_of,
)
from tests.chapters.fused_mlp.verdicts import (
    FINDINGS,
    SERIES,
    THIN,
    WIDE,
    measured,
    point_of,
    put,
    put_times,
    status,
    statuses,
    value,
)

replace = msgspec.structs.replace
MM, TEMPLATE, POINTWISE = "extern_kernels.mm", "triton_tem_fused_mm_1", "triton_poi_fused_gelu_mul_0"
TRAINING = {"eager": 100.0, "compiled": 90.0, "liger": 95.0, "fused": 80.0}
SIZES = [8192, 8184, 6144, 4096, 3996]
PINGPONG, FEW, TWO = "ping-pong 128x64, 6 slots, group 8", "few Hopper 8x64x64, 9 slots", "two products"


def widths(device: AlteredDevice, ours_us: float, claimed_us: float = 60.0) -> None:
    put_rows(device, {WIDE: 50.0, shapes.TALL_AND_THIN: ours_us, shapes.WIDEST: claimed_us})


def both_errors(device: AlteredDevice, thin_error: float) -> None:
    for dtype in shapes.DTYPES:
        put(device, f"{dtype}_eager", point_of(WIDE, 1.0, 2e-3), point_of(THIN, 1.0, 2e-3))
        put(device, f"{dtype}_fused", point_of(WIDE, 1.0, 1e-3), point_of(THIN, 1.0, thin_error))


def float16_error(device: AlteredDevice, error: float) -> None:
    put(device, "bfloat16_fused", point_of(SERIES, 1.0, 1e-3))
    put(device, "float16_fused", point_of(SERIES, 1.0, error))


def roundings(device: AlteredDevice, times: float) -> None:
    put(device, "gate_up_bare", point_of(WIDE, 1.0, 1.66e-3))
    put(device, "fused", point_of(WIDE, 1.0, 1.66e-3 * times**0.5))


def chosen(device: AlteredDevice, few_us: float, two_us: float) -> None:
    """Of few tokens and of many; 1.5 us where ping-pong may be chosen, which is slower for one token."""
    one, many = (shapes.shape_name((tokens, *shapes.WIDE)) for tokens in (1, 128))
    times = {PINGPONG: 3.0, FEW: few_us, TWO: two_us}
    put(device, "chosen", **{one: {"gate_up": times}, many: {"gate_up": {**times, PINGPONG: 1.5}}})


def built(device: AlteredDevice, **counts: list[int]) -> None:
    calls = {"first_call_ms": [900.0, 20.0, 20.0, 0.5, 0.5], "second_call_ms": [1.0] * 5}
    all_counts = {"static": [1, 2, 3, 4, 5], "automatic": [1, 2, 2, 2, 2], "fused": [1, 1, 1, 2, 2], **counts}
    put(device, "new_shapes", tokens=SIZES, **{name: {**calls, "built": each} for name, each in all_counts.items()})


def training(device: AlteredDevice, **changed_us: float) -> None:
    put_times(device, "training_", **TRAINING | changed_us)


def two_rows(device: AlteredDevice, one_token_us: float) -> None:
    rows = (WIDE, shapes.ONE_TOKEN)
    put(device, "bfloat16_compiled", *(point_of(row, 100.0) for row in rows))
    put(device, "bfloat16_fused", point_of(WIDE, 50.0), point_of(shapes.ONE_TOKEN, one_token_us))


Alter = Callable[[AlteredDevice, Any], None]
HOLDS: Status = "holds"
DIFFERS: Status = "differs"
BANDS: list[tuple[str, Alter, Mapping[Any, tuple[object, Status]]]] = [
    # The activation, and code for other GPUs
    ("F95", lambda device, units: errors(device, right=units),
     {2e-3: (2e-3, HOLDS), 0.005: (0.005, HOLDS), 0.0051: (0.0051, DIFFERS)}),
    ("F96", lambda device, units: errors(device, rough=units),
     {250.0: (250, HOLDS), 128.0: (128, HOLDS), 127.0: (127, DIFFERS)}),
    ("F91", lambda device, spills: compiled(device, {}, {"spills": spills}),
     {0: ("0 of 2", HOLDS), 4: ("1 of 2", DIFFERS)}),
    ("F92", lambda device, copies: compiled(device, {}, {"copies": copies}), {12: ("12", HOLDS), 3: ("3", DIFFERS)}),
    ("F93", lambda device, error: ampere_code(device, error=error), {2e-3: (1, HOLDS), 2.1e-3: (1.05, DIFFERS)}),
    ("F94", lambda device, us: ampere_code(device, old_us=us), {140.0: (1.4, HOLDS), 139.0: (1.39, DIFFERS)}),
    # Calls from Python
    ("F98", lambda device, us: enqueued(device, triton=us), {120.0: (0.1, HOLDS), 75.0: (0.16, DIFFERS)}),
    ("F99", lambda device, us: enqueued(device, operator=us), {30.0: (0.9, HOLDS), 33.0: (1.05, DIFFERS)}),
    ("F99", lambda device, us: enqueued(device, empty=us), {17.0: (18 / 17, DIFFERS)}),
    ("F100", two_rows, {100.0: (1.0, HOLDS), 101.0: (1.01, DIFFERS)}),
    # Launches
    ("F34", lambda device, us: launches(device, early_us=us), {104.0: (1.04, DIFFERS), 106.0: (1.06, HOLDS)}),
    ("F33", lambda device, us: launches(device, rested_us=us), {90.0: (100 / 90, HOLDS), 92.0: (100 / 92, DIFFERS)}),
    # Few tokens
    ("F103", lambda device, us: few(device, one_us=us), {97.0: (0.97, HOLDS), 98.0: (0.98, DIFFERS)}),
    ("F104", lambda device, us: few(device, steady_us=us), {97.0: (0.97, HOLDS), 98.0: (0.98, DIFFERS)}),
    ("F105", lambda device, us: few(device, sixteen_us=us), {106.0: (106 / 97, HOLDS), 107.0: (107 / 97, DIFFERS)}),
    # Tables of shapes: one row decides
    *((claim_id, lambda device, us, dtype=dtype: put_rows(device, {WIDE: 49.5, THIN: us, shapes.SERIES: 60.0}, dtype),
       {99.0: (1.0, HOLDS), 99.99: (1.01, DIFFERS)}) for claim_id, dtype in (("F50", "bfloat16"), ("F51", "float16"))),
    ("F57", widths, {40.0: ("65536x256x1024", HOLDS), 200.0: ("8x64x128", DIFFERS)}),
    ("F112", lambda device, us: widths(device, us, 90.0),
     {40.0: ("1024x4096x14336", HOLDS), 200.0: ("65536x256x1024", DIFFERS)}),
    ("F114", lambda device, us: put_steady_rows(device, 0.75, us), {98.0: (98 / 99, HOLDS)}),
    ("F53", lambda device, us: chosen(device, 2.0, us),
     {1.0: ("1: two products; 128: two products", DIFFERS), 9.0: ("1: few Hopper; 128: ping-pong", HOLDS)}),
    *((claim_id, lambda device, counts, name=name: built(device, **{name: list(counts)}),
       {(1, 1, 2, 2, 2): ("8192, 6144", DIFFERS), counts: (text, HOLDS)})
      for claim_id, name, counts, text in (
          ("F60", "static", (1, 2, 3, 4, 5), "8192, 8184, 6144, 4096, 3996"),
          ("F61", "automatic", (1, 2, 2, 2, 2), "8192, 8184"), ("F62", "fused", (1, 1, 1, 2, 2), "8192, 4096"))),
    ("F65", both_errors, {2e-3: (1.0, HOLDS), 2.1e-3: (1.05, DIFFERS)}),
    # Three digits more are an eighth of the error; two roundings make it 1.4 times as large
    ("F69", float16_error, {1e-3 / 8: (None, HOLDS), 1e-3 / 7.8: (None, DIFFERS), 1e-3 / 8.2: (None, DIFFERS)}),
    ("F66", roundings, {1: (None, DIFFERS), 2: (None, HOLDS), 3: (None, DIFFERS)}),
    # Training
    ("F70", lambda device, us: training(device, compiled=us), {90.0: (80 / 90, HOLDS), 80.0: (1.0, DIFFERS)}),
    # Beside QuACK
    *((claim_id, lambda device, parts: beside_quack(device, *parts),
       {(1.0, 1.0): (1.0, HOLDS), (1.0, 0.99): (1 / 0.99, DIFFERS), (0.99, 1.0): (1 / 0.99, DIFFERS)})
      for claim_id in ("F43", "F110")),
    ("F116", lambda device, us: put_shapes(device, **{"65536x256x1024": times_of(us, 90.0)}),
     {90.0: (0.9, HOLDS), 101.0: (1.01, DIFFERS)}),
    ("F117", lambda device, us: put_shapes(device, **{"8192x768x3080": times_of(90.0, us)}),
     {105.0: (1.05, HOLDS), 99.0: (0.99, DIFFERS)}),
    ("F121", lambda device, mhz: put_tiles(device, shared_mhz=mhz),
     {1413.0: (1413 / 1400, DIFFERS), 1415.0: (1415 / 1400, HOLDS), None: (None, "not measured")}),
    # Cycles are time at its clock: 97.02 us at 1420 MHz beside 98 us and 101 us at 1400 MHz.
    ("F122", lambda device, us: put_tiles(device, fused_us=us),
     {98.0: (98 * 1400 / (0.99 * 98 * 1420), HOLDS), 101.0: (101 * 1400 / (0.99 * 98 * 1420), DIFFERS)}),
    ("F122", lambda device, mhz: put_tiles(device, shared_mhz=mhz), {None: (None, "not measured")}),
    ("F118", lambda device, mhz: device.record(
        "fused_mlp/quack", data={"steady": {"fused": sensed(100.0, 1400.0), "quack tuned": sensed(100.0, mhz)}}),
     {1430.0: (1430 / 1400, HOLDS), 1425.0: (1425 / 1400, DIFFERS)}),
]  # fmt: skip
"""A claim, what makes a device by hand from a number, and for such numbers what is measured there and how it is judged;
None where only the second matters."""
SIDES = [
    pytest.param(claim_id, alter, given, *expected, id=f"{claim_id} {given}")
    for claim_id, alter, sides in BANDS
    for given, expected in sides.items()
]


@pytest.mark.parametrize(("claim_id", "alter", "given", "expected", "judged"), SIDES)
def test_a_band(
    claim_id: str, alter: Alter, given: object, expected: object, judged: Status, device: AlteredDevice
) -> None:
    alter(device, given)
    assert status(device, claim_id) == judged
    if expected is not None:
        figure = measured(device, claim_id)
        found = figure.text if isinstance(expected, str) else figure.value
        assert found == (expected if isinstance(expected, str) else pytest.approx(expected, rel=1e-4))


@pytest.mark.parametrize(
    ("claim_id", "changed", "like", "kinds", "factor", "expected"),
    [
        ("F8", "pointwise_fused", "pointwise_compiled", ("interleaved", "cold"), 1.015, HOLDS),
        ("F8", "pointwise_fused", "pointwise_compiled", ("interleaved",), 1.03, DIFFERS),
        ("F8", "pointwise_fused", "pointwise_compiled", ("cold",), 1.03, DIFFERS),
        ("F9", "pointwise_eager", "pointwise_fused", ("cold",), 1.5, DIFFERS),
        ("F10", "pointwise_liger", "pointwise_fused", ("interleaved",), 1.05, DIFFERS),
        ("F13", "linear_8192_fused", "linear_8192_addmm", ("interleaved", "cold"), 0.91, HOLDS),
        ("F13", "linear_8192_fused", "linear_8192_addmm", ("cold",), 0.93, DIFFERS),
    ],
)
def test_a_band_beside_a_recording(
    claim_id: str, changed: str, like: str, kinds: tuple[str, ...], factor: float, expected: Status,
    device: AlteredDevice,
) -> None:  # fmt: skip
    """One experiment takes the times of another one, longer or shorter."""
    run = device[f"fused_mlp/{changed}"]
    for kind in kinds:
        timing = scaled_timing(device[f"fused_mlp/{like}"].timing(kind), factor)
        device.point(run.id, timings=replace(run.timings, **{kind: timing}))
    assert status(device, claim_id) == expected


def named(device: AlteredDevice, experiment: str, *names: str) -> None:
    """Rename the kernels of a step, in order."""

    def change(step: Step) -> Step:
        new = dict(zip((kernel.start_us for kernel in step.kernels), names, strict=True))
        activities = (
            replace(each, name=new[each.start_us]) if each.kind == "kernel" else each for each in step.activities
        )
        return replace(step, activities=tuple(activities))

    device.steps(experiment, change)


@pytest.mark.parametrize(
    ("names", "expected", "own", "cublas"),
    [
        ([TEMPLATE, TEMPLATE, POINTWISE, TEMPLATE], HOLDS, "3", "none"),
        ([TEMPLATE, "other", POINTWISE, TEMPLATE], DIFFERS, "2", "1"),
        ([TEMPLATE, TEMPLATE, TEMPLATE, TEMPLATE], DIFFERS, "4", "none"),
        (["nvjet_1", "nvjet_2", POINTWISE, "nvjet_3"], HOLDS, "none", "all"),
    ],
)
def test_f5_reads_the_kernels_of_max_autotune(
    names: list[str], expected: Status, own: str, cublas: str, device: AlteredDevice
) -> None:
    named(device, "fused_mlp/max_autotune", *names)
    assert status(device, "F5") == expected
    assert FINDINGS.figures["own_products"](device).text == own
    assert FINDINGS.figures["cublas_products"](device).text == f"{cublas} of the three"


@pytest.mark.parametrize(
    ("us", "width", "expected"), [(26.1, 2, HOLDS), (25.9, 2, DIFFERS), (22.9, 8, HOLDS), (23.1, 8, DIFFERS)]
)
def test_inductors_gelu_beside_eagers(us: float, width: int, expected: Status, device: AlteredDevice) -> None:
    for name, each_us, blocks in (("compiled", us, 131_072 // width), ("eager", 20.0, 16_384)):
        launch = {"duration_us": each_us, "grid": (blocks, 1, 1), "block": (256, 1, 1)}
        device.kernels(f"fused_mlp/linear_8192_{name}", lambda kernel, launch=launch: replace(kernel, **launch))
    text = f"{us / 20:.2f}x; {width} numbers to a thread, eager's 8"
    assert (measured(device, "F115").text, status(device, "F115")) == (text, expected)
    assert value(device, "inductors_gelu_over_eagers") == pytest.approx(us / 20)
    assert [value(device, f"numbers_of_a_thread_{name}") for name in ("compiled", "eager")] == [width, 8]


def test_f1_counts_what_the_generated_kernel_touches(device: AlteredDevice) -> None:
    generated = device["fused_mlp/generated"].data["compiled"]
    more = generated["kernels"][0] + "tl.store(out_ptr1 + (x0), tmp1, None)"
    device.data("fused_mlp/generated", compiled={**generated, "kernels": [more]})
    assert measured(device, "F1").value == "eager 8, compiled 7"


def test_the_worst_row_is_in_the_spread(device: AlteredDevice) -> None:
    both_errors(device, 2e-3)
    assert measured(device, "F65").spread == (0.5, 1.0)


def test_exercises_by_hand(device: AlteredDevice) -> None:
    put(
        device,
        "steps",
        gate_up={"hand over at the end": [103.0, 104.0, 105.0], "hand over early": [99.0, 100.0, 101.0]},
        activation={"none": [9, 10, 11], "silu": [9, 10, 11], "gelu_tanh": [10, 11, 12], "gelu": [10, 11, 12]},
    )
    assert (measured(device, "F85").value, measured(device, "F85").spread) == (1.04, (105 / 101, 103 / 99))
    assert statuses(device, "F85", "F86", "F87") == [HOLDS, DIFFERS, DIFFERS]


def test_the_first_two_steps_do_not_count(device: AlteredDevice) -> None:
    """Of the others, one that differs makes it inconclusive."""
    launches(device, rested_us=80.0)
    rested = device["fused_mlp/launches"].data["rested"]
    (slow, *_) = steps(100.0, 102.0)
    device.data("fused_mlp/launches", rested={**rested, LATE: [slow, slow, *rested[LATE][2:]]})
    assert status(device, "F33") == HOLDS
    device.data("fused_mlp/launches", rested={**rested, LATE: [*rested[LATE][:4], slow]})
    assert status(device, "F33") == "inconclusive"


@pytest.mark.parametrize(
    ("experiment", "data", "claims"),
    [
        ("steps", {}, ("F85", "F109")),
        ("steps", {"activation": {"gelu_tanh": [105.0] * 3}}, ("F109",)),
        ("quack", {"missing": "No module"}, ("F43", "F44", "F110", "F118")),
        ("quack_shapes", {"missing": "No module"}, ("F116", "F117")),
    ],
)
def test_what_was_not_timed_is_not_judged(
    experiment: str, data: dict[str, Any], claims: tuple[str, ...], device: AlteredDevice
) -> None:
    device.record(f"fused_mlp/{experiment}", data=data)
    assert set(statuses(device, *claims)) == {"not measured"}
