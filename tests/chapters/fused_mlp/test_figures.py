"""The chapter's figures and tables: on the book's recordings, on altered ones and on numbers by hand."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
import pytest

from kinetoscope.html import Html
from kinetoscope.trace.events import CpuOp, GpuActivity, Step, TraceError
from kinetoscope.trace.kineto import read_trace
from snippets.fused_mlp.experiments.subjects import SHAPES
from snippets.fused_mlp.findings import (
    activation,
    architectures,
    calls,
    few_tokens,
    first_kernels,
    forward,
    halves,
    ideas,
    in_use,
    launching,
    new_shapes,
    quack,
    residency,
    shapes,
    traffic,
)
from snippets.fused_mlp.geglu import hopper
from snippets.lab.finding import Device, NotRecorded, NotTimed
from snippets.lab.recording.schema import Timing
from tests.chapters.altered import AlteredDevice
from tests.chapters.fused_mlp import by_hand
from tests.chapters.fused_mlp.verdicts import (
    FINDINGS,
    SERIES,
    THIN,
    WIDE,
    check_values,
    measured,
    point_of,
    put,
    put_times,
    status,
    statuses,
    text_of,
    thrice,
    value,
)
from tests.lab.samples import BOOK, environment, without_headings
from tests.tool import events

HIDDEN_BYTES, X_BYTES, WEIGHT_BYTES = 2 * 8192 * 3072, 2 * 8192 * 768, 2 * 768 * 3072
SMALL_BYTES = 3 * X_BYTES + 3 * WEIGHT_BYTES
MM, TEMPLATE, POINTWISE = "extern_kernels.mm", "triton_tem_fused_mm_1", "triton_poi_fused_gelu_mul_0"
replace = msgspec.structs.replace

# On the book's recordings

PIECES: Mapping[str, tuple[Callable[[Device], Html], tuple[str, ...]]] = {
    "traffic": (traffic.forward_traffic, ("What one forward has to move", "GELU's result, out and back")),
    "floors": (traffic.floors, ("floor for the bytes", "two fused kernels")),
    "linear": (
        lambda device: first_kernels.linear_compared(device, 64),
        ("A Linear with GELU, 64 rows", "cuBLAS's epilogue"),
    ),
    "tuned": (ideas.tuned_table, ("gate and up ping-pong", "time of the fastest", "cuBLAS")),
    "three forwards": (forward.three_forwards, ("One forward, three ways", "pingpong_kernel")),
    "shapes": (
        lambda device: shapes.shape_table(device, "interleaved"),
        ("One forward in bfloat16", "The same in float16", "65536x256x1024"),
    ),
    "from Python": (
        lambda device: shapes.shape_table(device, "from_python"),
        ("from Python, until the GPU is done", "our forward's CPU time", "8192x768x3080"),
    ),
    "roofline": (shapes.shape_roofline, ("1 token", "1,024 tokens", "copy")),
    "first calls": (new_shapes.first_calls, ("dynamic=False, first call", "8184", "3996")),
    "errors": (in_use.errors_table, ("Relative error against float64, float16", "8192x768x3072")),
    "training": (
        in_use.training_table,
        ("our module, recomputing all", "peak memory of a step", "from Python, CPU part", "GPU, interleaved"),
    ),
    "activations": (in_use.activations, ("GELU by erf", "SiLU")),
}


def test_a_piece_shows_what_it_promises() -> None:
    texts = {name: text_of(piece(BOOK)) for name, (piece, _) in PIECES.items()}
    assert [(name, words) for name, (_, each) in PIECES.items() for words in each if words not in texts[name]] == []


def test_tables_have_a_row_for_each() -> None:
    some_halves = halves.halves(BOOK, "eager", "bare product", "stacked", "ping-pong")
    for piece, rows in ((some_halves, 4), (residency.residency(BOOK), 12), (forward.our_kernels(BOOK), 2)):
        bodies = piece.split("<tbody>")[1:]
        assert sum(body.partition("</tbody>")[0].count("<tr>") for body in bodies) == rows
    assert ideas.steps_table(BOOK).count("<table") == 5


def test_candidates_are_listed_from_the_fastest() -> None:
    for part in ("gate_up", "forward"):
        times = list(ideas.tuned(BOOK, part).values())
        assert times == sorted(times)
        assert len(times) > 1


def test_turns_draws_every_role_without_an_amount() -> None:
    drawn = residency.turns(BOOK)
    assert [drawn.count(f">{lane}</text>") for lane in ("producer", "consumer 0", "consumer 1")] == [1] * 3
    assert drawn.count(">tensor cores</text>") == 2
    assert "µs" not in drawn


def test_tiles_and_rounds() -> None:
    assert residency.tiles_of(8192, 3072, (128, 64)) == 3072
    assert residency.tiles_of(8193, 3080, (128, 64)) == 65 * 49
    assert [residency.rounds(tiles, 132) for tiles in (3072, 264, 1)] == [(24, 36), (2, 132), (1, 1)]
    assert residency.TILES["pingpong_kernel"] == hopper.PINGPONG_GATED[0][:2] == hopper.PINGPONG_GATED[1][:2]
    assert residency.TILES["gate_up_kernel"] == hopper.STACKED[0][:2]
    assert residency.tuned_tile(BOOK) == hopper.PINGPONG_GATED[0][:2]


# Bytes


def forward_of(*matmuls: tuple[list[int], list[int]], others: tuple[str, ...] = ()) -> Step:
    """One step of so many `aten::mm`, and then of pointwise operators on two 4x16 tensors."""
    ops = [("aten::mm", list(pair)) for pair in matmuls] + [(name, [[4, 16], [4, 16]]) for name in others]
    written = [events.step(1, 0, 1000)]
    for index, (name, dims) in enumerate(ops, 1):
        strides = [[columns, 1] for _, columns in dims]
        types = ["c10::BFloat16"] * 2
        begin = 20.0 * index
        written += [
            events.op(name, begin, 15, external=index, dims=dims, types=types, strides=strides),
            events.launch(index, begin + 2),
            events.kernel(f"k{index}", index, begin + 300, 2),
        ]
    (step,) = read_trace(events.trace_bytes(*written)).steps
    return step


def test_trips_and_bytes_of_a_small_forward() -> None:
    wide, narrow = ([4, 8], [8, 16]), ([4, 16], [16, 8])
    step = forward_of(wide, wide, narrow, others=("aten::mul",))
    assert traffic.hidden_size_bytes(step) == 2 * 4 * 16
    assert traffic.hidden_trips(step) == 1 + 1 + 1 + 3
    assert sum(work.bytes for work in traffic.kernel_work(step)) == 2 * (3 * (4 * 8 + 8 * 16 + 4 * 16) + 3 * 4 * 16)
    with pytest.raises(TraceError, match="has no matmul"):
        traffic.hidden_size_bytes(replace(step, activities=()))
    unknown = tuple(replace(activity, op=None) for activity in step.activities)
    with pytest.raises(TraceError, match=r"^ProfilerStep#1 lacks the work of some kernels; make record"):
        traffic.kernel_work(replace(step, activities=unknown))


def test_bytes_come_from_the_shapes() -> None:
    eager = SMALL_BYTES + 8 * HIDDEN_BYTES
    assert value(BOOK, "eager_bytes") == eager
    assert traffic.forward_bytes(BOOK, "compiled").value == SMALL_BYTES + 6 * HIDDEN_BYTES
    assert traffic.fused_bytes(BOOK).value == SMALL_BYTES - X_BYTES + 2 * HIDDEN_BYTES
    assert value(BOOK, "least_bytes") == SMALL_BYTES - X_BYTES
    check_values(
        BOOK,
        avoidable=100 * (8 * HIDDEN_BYTES + X_BYTES) / eager,
        saved_by_two=100 * (6 * HIDDEN_BYTES + X_BYTES) / eager,
    )


def test_the_parts_of_the_picture_are_the_bytes() -> None:
    parts = traffic.traffic_parts(BOOK)
    assert {heading: (len(each) - 1, each[0]) for heading, each in parts.items()} == {
        "eager": (4, ("inputs, weights, result", SMALL_BYTES)),
        "compiled": (3, ("inputs, weights, result", SMALL_BYTES)),
        "two fused kernels": (1, ("inputs, weights, result", SMALL_BYTES - X_BYTES)),
        "the least": (0, ("inputs, weights, result", SMALL_BYTES - X_BYTES)),
    }


def test_floors_follow_the_ceilings(device: AlteredDevice) -> None:
    eager = device["fused_mlp/eager"]
    flops, least_bytes = eager.point.flops, eager.point.bytes
    ms = Timing.from_samples([1e3] * 3)
    copy, matmul = eager.ceiling("copy"), eager.ceiling("matmul 8192x8192x8192")
    ceilings = (
        replace(copy, bytes=2_000_000_000, timing=ms),  # two bytes in a picosecond
        replace(matmul, flops=10 * flops, timing=ms),
    )
    device.record("fused_mlp/eager", ceilings=ceilings)
    check_values(device, arithmetic_us=100)
    assert measured(device, "F3").value == pytest.approx(least_bytes / 2e6)
    device.record("fused_mlp/eager", ceilings=())
    assert status(device, "F3") == "not measured"
    # at the highest rate of any product
    slow, fast = (replace(matmul, name=name, flops=work, timing=ms) for name, work in (("a", flops), ("b", 10 * flops)))
    device.record("fused_mlp/bfloat16_eager", ceilings=(replace(matmul, name="copy", flops=0), slow, fast))
    device.time("fused_mlp/fused", 150.0)
    check_values(device, best_arithmetic_us=100, over_best_arithmetic=1.5)


# Kernels of a trace


def test_generated_code_is_shown_as_text(device: AlteredDevice) -> None:
    device.record("fused_mlp/generated", data={"compiled": {"calls": [MM], "kernels": ["a < b", "<script>"]}})
    assert '<code tabindex="0">a &lt; b\n\n&lt;script&gt;</code>' in traffic.generated_kernel(device)
    with pytest.raises(NotTimed, match="fused_mlp/generated has no 'max_autotune'; make record CHAPTER=fused_mlp"):
        value(device, "compiled_once_more")


def test_what_a_thread_does_is_read_from_the_launch(device: AlteredDevice) -> None:
    launch = {"registers": 77, "grid": (6144, 1, 1), "block": (256, 1, 1)}
    device.kernels("fused_mlp/pointwise_fused", lambda kernel: replace(kernel, **launch))
    assert first_kernels.thread_costs(device["fused_mlp/pointwise_fused"]) == [("77", "256", "16")]
    assert '<td class="number">77</td>' in without_headings(first_kernels.pointwise_compared(device))


OURS = CpuOp("fused_mlp::forward", 0.0, 50.0, "1/1", 1, input_shapes=((100, 32), (64, 32), (64, 32), (32, 64), ()))
CUBLAS = CpuOp("aten::mm", 10.0, 5.0, "1/1", 2, input_shapes=((100, 64), (64, 32)), parent=OURS)


def forward_step(*ops: CpuOp) -> Step:
    """A step with a kernel of each operator."""
    kernels = tuple(GpuActivity("kernel", 12.0 * index, 10.0, "kernel", 0, 7, op=op) for index, op in enumerate(ops))
    return Step(0, "ProfilerStep#0", 0.0, 60.0, (OURS, CUBLAS), (), kernels)


def test_work_of_our_two_kernels() -> None:
    """That of a product by cuBLAS is left to the trace."""
    first = (2 * 100 * 32 * 128, 2 * (100 * 32 + 128 * 32 + 100 * 64))
    second = (2 * 100 * 64 * 32, 2 * (100 * 64 + 64 * 32 + 100 * 32))
    assert forward.kernels_work(forward_step(OURS, OURS)) == {0: first, 1: second}
    assert forward.kernels_work(forward_step(OURS, CUBLAS)) == {0: first}


def test_whose_kernel_does_the_second_matmul(device: AlteredDevice) -> None:
    def found() -> tuple[object, bool]:
        figure = FINDINGS.figures["second_product"](device)
        return figure.value, figure.conclusive

    device.steps("fused_mlp/fused", lambda step: replace(step, activities=forward_step(OURS, OURS).activities))
    assert found() == ("our own", True)
    last = forward_step(OURS, CUBLAS).activities
    device.steps("fused_mlp/fused", lambda step: replace(step, activities=last), only=0)
    assert found() == ("our own", False)
    device.steps("fused_mlp/fused", lambda step: replace(step, activities=last))
    assert found() == ("cuBLAS's", True)


def test_the_slots_that_tuning_chose_are_no_difference(device: AlteredDevice) -> None:
    device.kernels("fused_mlp/gate_up_stacked", lambda kernel: replace(kernel, shared_memory_bytes=100_000))
    assert status(device, "F26") == "holds"
    assert "100 kB" in residency.residency(device)


def test_an_estimate_that_is_missing_is_not_zero(device: AlteredDevice) -> None:
    device.kernels("fused_mlp/gate_up_stacked", lambda kernel: replace(kernel, occupancy_percent=None))
    figure = residency.estimated_occupancies(device)
    assert (figure.value, figure.text) == (False, "none and 0 %, computed 12.5 % and 18.8 %")


# Times


def with_dim(device: AlteredDevice, dim: int) -> None:
    point = device["fused_mlp/eager"].point
    device.point("fused_mlp/eager", parameters={**point.parameters, "dim": dim})


def named(device: AlteredDevice, **names: str) -> None:
    """Rename the kernels of linears."""
    for rows, name in names.items():
        device.kernels(f"fused_mlp/linear{rows}_fused", lambda kernel, name=name: replace(kernel, name=name))


def with_slow_pointwise(device: AlteredDevice, *names: str) -> None:
    slow = {"duration_us": 55.5, "grid": (49152, 1, 1), "block": (256, 1, 1)}
    for name in names:
        device.kernels(
            f"fused_mlp/{name}",
            lambda kernel: replace(kernel, **slow) if kernel.name.startswith("triton_poi") else kernel,
        )


def generated(device: AlteredDevice, *called: str) -> None:
    device.record("fused_mlp/generated", data={"max_autotune": {"calls": called}})


def loaded(device: AlteredDevice) -> None:
    """The last ten rounds count, over the first three, whatever is between."""
    gate_up = {"stacked": [100.0] * 3 + [500.0] * 20 + [120.0] * 10, "hand over early": [100.0] * 3 + [95.0] * 10}
    device.data("fused_mlp/steps", gate_up=gate_up)


def with_cold_halves(device: AlteredDevice) -> None:
    for name, us in (("fused", 91.0), ("bare", 100.0)):
        device.time(f"fused_mlp/gate_up_{name}", us, "cold")


def in_two_processes(device: AlteredDevice) -> None:
    timing = Timing.from_samples([170.0, 171.0, 172.0, 190.0, 190.0, 191.0], rounds=(3, 3))
    timings = device["fused_mlp/fused"].timings
    device.point("fused_mlp/fused", timings=replace(timings, interleaved=timing))


def recomputing(device: AlteredDevice) -> None:
    put_times(device, "training_", compiled=90.0, fused=80.0, fused_recompute_hidden=84.0, fused_recompute=99.0)
    held = {"fused": 300, "fused_recompute_hidden": 200, "fused_recompute": 10}
    put(device, "kept_bytes", **{name: {"held_bytes": held_bytes} for name, held_bytes in held.items()})


def with_clocks(device: AlteredDevice) -> None:
    for name, mhz in (("fused", 1350.0), ("compiled", 1500.0)):
        put(device, f"bfloat16_{name}", point_of(shapes.WIDEST, clock_mhz=mhz))


ROWS = {WIDE: 50.0, shapes.ONE_TOKEN: 49.5, shapes.TALL_AND_THIN: 40.0, shapes.WIDEST: 90.0}
VALUES: list[tuple[Callable[[AlteredDevice], None], dict[str, object]]] = [
    (lambda device: None, {"result_in_registers": 75}),
    (lambda device: with_dim(device, 256), {"result_in_registers": 25}),
    (lambda device: named(device, _8192="first", _64="first"), {"linear_kernel": "first"}),
    (lambda device: named(device, _8192="first", _64="second"),
     {"linear_kernel": "first at 8192 rows, second at 64"}),
    (lambda device: generated(device, MM, MM, POINTWISE, MM), {"compiled_once_more": "cuBLAS, cuBLAS, cuBLAS"}),
    (lambda device: generated(device, TEMPLATE, MM, POINTWISE, TEMPLATE),
     {"compiled_once_more": "template, cuBLAS, template"}),
    (lambda device: generated(device, MM, "triton_red_fused_0"), {"compiled_once_more": "cuBLAS, triton_red_fused_0"}),
    (lambda device: with_slow_pointwise(device, "compiled", "max_autotune"),
     {"pointwise_compiled_us": 55.5, "pointwise_max_autotune_us": 55.5,
      "pointwise_launch": "512 elements for 256 threads"}),
    (with_cold_halves, {"h200_gate_up_of_bare_cold": 91}),
    (in_two_processes, {"of_each_process": "171 µs, 190 µs"}),
    (by_hand.errors, {"rough_from": 1.0}),
    (lambda device: put(device, "activation_errors", forms={
        "rough_gelu_tanh": [[*by_hand.LARGE, 1.0], [*by_hand.SMALL, 0.51]]}), {"rough_from": 0.5}),
    (lambda device: by_hand.few(device, steady_us=80.0, watts=750.0),
     {"one_token_energy": 1.2, "sixteen_tokens_energy": 1.2}),
    (lambda device: by_hand.put_rows(device, ROWS), {"one_token": 0.5}),
    (with_clocks, {"widest_clock": 0.9}),
    (recomputing, {"recompute_one_saves": 100, "recompute_saves": 290, "recomputing_one_over_saving": 1.05,
                   "recomputing_over_compiled": 1.1}),
]  # fmt: skip
"""What alters a device, and figures that it then has."""


@pytest.mark.parametrize(
    ("alter", "expected"), VALUES, ids=lambda value: ", ".join(value) if isinstance(value, dict) else ""
)
def test_figures(alter: Callable[[AlteredDevice], None], expected: dict[str, object], device: AlteredDevice) -> None:
    alter(device)
    check_values(device, **expected)


def test_under_load(device: AlteredDevice) -> None:
    loaded(device)
    assert ideas.under_load(device, "stacked").number == pytest.approx(1.2)
    assert ideas.under_load(device, "hand over early").number == pytest.approx(0.95)


def test_a_figure_of_a_named_gpu_is_that_gpus(device: AlteredDevice) -> None:
    device.data("fused_mlp/steps", gate_up={"stacked": [130.0] * 3, "hand over early": [100.0] * 3})
    assert value(device, "h200_worth_of_ping_pong") == pytest.approx(1.3)
    assert value(device, "h100_worth_of_ping_pong") == value(
        Device(BOOK.root, "nvidia-h100-80gb-hbm3"), "worth_of_ping_pong"
    )


def test_quack_by_recording(device: AlteredDevice) -> None:
    by_hand.put_shapes(device)
    by_hand.put_tiles(device)
    tiles = device["fused_mlp/quack"].data["tiles"]
    steady = by_hand.sensed(100.0, 1400.0)
    both = {"tiles": tiles, "steady": dict.fromkeys(("quack", "quack tuned", "fused"), steady)}
    device.record("fused_mlp/quack", data=both)
    assert FINDINGS.figures["over_quack_by_recording"](device).text == "1.00x to 1.05x"


def test_what_was_never_timed_is_an_error(device: AlteredDevice) -> None:
    put(device, "fused", replace(point_of(), timings=None))
    expected = r"^fused_mlp/fused was recorded without timings; make record CHAPTER=fused_mlp$"
    with pytest.raises(NotTimed, match=expected):
        value(device, "cpu_over_gpu")


def test_activations_beside_plain_products(device: AlteredDevice) -> None:
    names = ("none", "silu", "gelu_tanh", "gelu")
    put(device, "steps", activation=thrice(dict(zip(names, (10.0, 10.0, 11.0, 11.0), strict=True))))
    assert "GELU by tanh 11.0 µs" in text_of(in_use.activations(device))


def test_the_table_of_launches(device: AlteredDevice) -> None:
    by_hand.launches(device)
    text = text_of(launching.launches_table(device))
    assert "first kernel, traced after a rest 100 µs" in text
    assert "overlap of the two kernels, traced after a load 10.0 µs 0 µs 0 µs" in text
    assert "steady clock 1,500 MHz 1,500 MHz 1,500 MHz" in text


# The activation, and other GPUs


def test_the_chart_has_two_forms_and_its_numbers_all(device: AlteredDevice) -> None:
    by_hand.errors(device)
    drawn = activation.activation_chart(device)
    text = text_of(drawn)
    assert "GELU, as a sigmoid: 2.0e-03 units at most; GELU, one rough tanh: 250 units at most." in text
    assert "4 to 7.97 2.0e-03 2.5e+02 2.0e-03 2.5e+02 2.0e-03" in text
    assert drawn.count("<svg") == 1
    assert ">rounding to bf16</text>" in drawn


def test_the_tables_of_code_for_other_gpus(device: AlteredDevice) -> None:
    hopper_row = {"capability": 90, "instruction": "HGMMA", "registers": 168, "copies": 12}
    by_hand.compiled(device, hopper_row, {}, {"tiles": "64x64x64, 3 stages", "registers": 90})
    text = text_of(architectures.architectures(device))
    assert "8.0, Ampere (A100) 2 HMMA 24 90 to 136 0 65.5 kB 167 kB" in text
    assert "9.0, Hopper (H100, H200) 1 HGMMA 12 168 0 65.5 kB 232 kB" in text
    assert "gate_up 128x64x64, 3 stages 136 168" in text
    by_hand.compiled(device)
    assert statuses(device, "F91", "F92") == ["not measured", "not measured"]
    by_hand.ampere_code(device)
    text = text_of(architectures.old_code(device))
    assert "code for 8.0 140 µs own code 100 µs" in text
    assert "tiles of 64x32x64, 3 stages" in text
    assert "77x264x344 2.00e-03 2.00e-03" in text


def test_elsewhere_than_on_hopper_its_kernels_are_not_asked_for(device: AlteredDevice) -> None:
    for name in ("eager", "gate_up_fused", "gate_up_bare", "gate_up_portable", "steps"):
        put(device, name, point_of())
        device.record(f"fused_mlp/{name}", environment=environment(compute_capability="8.0"))
    with pytest.raises(NotTimed, match=r"need Hopper \(compute capability 9\.0\); the H200 has 8\.0"):
        ideas.step_ratio(device, "gate_up", "stacked", "four slots")
    assert set(statuses(device, "F20", "F21", "F22", "F24", "F30", "F90")) == {"not measured"}
    with pytest.raises(NotTimed, match="takes the portable ones"):
        halves.halves(device)


# Calls from Python


def test_where_the_second_product_is_cublas(device: AlteredDevice) -> None:
    """Then PyTorch launches it, and Triton only the first."""
    by_hand.enqueued(device)
    check_values(device, product_of_operator=0, triton_over_prepared=10)
    text = text_of(calls.calls_table(device))
    assert "eager's module 68.0 µs" in text
    assert "both launches, prepared 12.0 µs 0.18x" in text

    def with_cublas(step: Step) -> Step:
        whole = next(op for op in step.ops if op.name.endswith("::forward") and not op.is_annotation)
        product = replace(whole, name="aten::mm", duration_us=whole.duration_us / 4, parent=whole)
        first = step.kernels[0]
        return replace(step, ops=(whole, product), activities=(first, replace(first, op=product)))

    device.steps("fused_mlp/fused", with_cublas)
    assert value(device, "product_of_operator") == pytest.approx(25, rel=1e-3)
    text = text_of(calls.calls_table(device))
    assert "the first launch, prepared, and cuBLAS's product 12.0 µs" in text
    assert "both launches" not in text
    assert statuses(device, "F98", "F99") == ["not measured", "holds"]
    with pytest.raises(NotTimed, match="took cuBLAS for down"):
        value(device, "triton_over_prepared")


def test_ours_inside_compiled_code(device: AlteredDevice) -> None:
    ours, inside = BOOK["fused_mlp/fused"], "fused_mlp/fused_compiled"
    device.recordings[inside], device.traces[inside] = ours.recording, ours.trace
    assert statuses(device, "F101", "F102") == ["holds", "holds"]
    for name in ("compiled", "reduce_overhead", "fused_reduce_overhead"):
        device.recordings[f"fused_mlp/{name}"] = ours.recording
    assert "our forward, reduce-overhead" in text_of(calls.compiled_table(device))


# Few tokens


def test_the_floor_and_the_pieces(device: AlteredDevice) -> None:
    by_hand.few(device)
    assert device["fused_mlp/fused"].is_recorded
    floor_us = 2 * 3 * 4096 * 14336 / device["fused_mlp/fused"].ceiling("copy").rate * 1e6
    check_values(
        device,
        few_floor_us=floor_us,
        one_token_over_floor=97 / floor_us,
        h200_max_autotune_over_floor=100 / floor_us,
        few_weights_bytes=352_321_536,
    )
    text = text_of(few_tokens.few_table(device))
    assert "16 0.964x 106 µs 110 µs 110 µs 110 µs" in text
    assert text.index(" 4 1.000x") < text.index(" 16 0.964x") < text.index(" 64 1.000x")
    assert "1, our forward 97.0 µs 1,980 MHz 48.5 mJ" in text
    assert "64 tokens" in few_tokens.few_bars(device)
    put(device, "fused", point_of(SERIES))
    check_values(device, few_floor_us=352_321_536 / 2_000_000 * 2)


def test_few_tokens_without_power_have_no_energy(device: AlteredDevice) -> None:
    by_hand.few(device, watts=0.0)
    with pytest.raises(NotTimed, match="no energy of 16 tokens"):
        value(device, "sixteen_tokens_energy")
    assert "16, our forward 97.0 µs 1,980 MHz –" in text_of(few_tokens.few_table(device))


# Tables of shapes


def test_the_table_marks_the_fastest_and_divides_by_the_fastest_other(device: AlteredDevice) -> None:
    for dtype in shapes.DTYPES:
        by_hand.put_rows(device, {WIDE: 33.0, THIN: 198.0}, dtype)
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


@pytest.mark.parametrize(("ours_joules", "energy"), [(0.75, "0.75x"), (0.0, "–")])
def test_steady_rows(device: AlteredDevice, ours_joules: float, energy: str) -> None:
    """Without power there is no energy."""
    by_hand.put_steady_rows(device, ours_joules)
    text = text_of(shapes.shape_table(device, "steady"))
    assert f"8x64x128 33.3 µs 0.333x {energy} 70.7 µs 101 µs 101 µs 101 µs 100 µs" in text


# Beside QuACK


def test_the_tables_beside_quack(device: AlteredDevice) -> None:
    by_hand.beside_quack(device, tuned=0.99)
    table = quack.beside_quack(device)
    assert table.count("<tr>") == 1 + 3 + 3
    assert table.count("100 µs") + table.count("99.0 µs") >= 3
    by_hand.put_tiles(device, fused_us=102.0)
    table = text_of(quack.tiles_table(device))
    assert (
        "our forward, 128x128 97.0 µs 102 µs 1,400 MHz 143,000 QuACK, 128x128 95.0 µs 100 µs 1,400 MHz 140,000" in table
    )
    for name in ("quack", "quack_shapes"):
        device.record(f"fused_mlp/{name}", data={"missing": "No module"})
    for piece in (quack.beside_quack, quack.quack_shape_table):
        with pytest.raises(NotRecorded, match="No module"):
            piece(device)


def test_shapes_at_which_a_peer_is_faster_or_fails(device: AlteredDevice) -> None:
    by_hand.put_shapes(device)
    check_values(device, most_over_quack_steady=1.05)
    table = text_of(quack.quack_shape_table(device))
    assert "QuACK 1.2.3" in table
    assert "8192x768x3072 102 µs 110 µs 100 µs 1.020x 1.050x 4096x2048x8192" in table
    by_hand.put_shapes(device, **{"1x4096x14336": {"failed": "ValueError: one row"}})
    taken = [shape for ahead in (True, False) for shape in quack.taken_shapes(quack.quack_shapes(device), ahead=ahead)]
    assert sorted(taken) == sorted(row for row in SHAPES if row[0] != 1)
    assert "1x4096x14336 – – ValueError: one row – –" in text_of(quack.quack_shape_table(device))
    by_hand.put_shapes(device, **{shapes.shape_name(shape): {"failed": "ValueError: no"} for shape in SHAPES})
    assert statuses(device, "F116", "F117") == ["not measured"] * 2
    with pytest.raises(NotTimed, match="QuACK rejects 8192x768x3072, 4096x2048x8192"):
        value(device, "most_over_quack_steady")
    assert text_of(quack.quack_shape_table(device)).count("ValueError: no") == len(SHAPES)
