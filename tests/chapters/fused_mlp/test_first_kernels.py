"""The bytes of a forward and the first kernels: figures and bands on the book's recordings, and on altered ones."""

from __future__ import annotations

import msgspec
import pytest

from kinetoscope.trace.events import Step, TraceError
from kinetoscope.trace.kineto import read_trace
from snippets.fused_mlp.findings import first_kernels, traffic
from snippets.lab.finding import NotTimed
from snippets.lab.finding.claim import Status
from snippets.lab.recording.schema import Timing
from tests.chapters.altered import AlteredDevice
from tests.chapters.fused_mlp.verdicts import FINDINGS, measured, status, value
from tests.lab.samples import BOOK, without_headings
from tests.tool import events

HIDDEN_BYTES = 2 * 8192 * 3072
X_BYTES = 2 * 8192 * 768
WEIGHT_BYTES = 2 * 768 * 3072
replace = msgspec.structs.replace


def retimed(device: AlteredDevice, name: str, kind: str, like: str, factor: float) -> None:
    """Give one kind of timing of `name` the times of `like`, longer or shorter."""
    old: Timing = device[f"fused_mlp/{like}"].timing(kind)
    samples = tuple(factor * sample for sample in old.samples_us)
    timing = Timing(factor * old.median_us, factor * old.q1_us, factor * old.q3_us, samples)
    run = device[f"fused_mlp/{name}"]
    device.point(run.id, timings=replace(run.timings, **{kind: timing}))


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


def test_a_step_without_a_matmul_has_no_hidden_size() -> None:
    step = forward_of(([4, 8], [8, 16]), ([4, 8], [8, 16]), ([4, 16], [16, 8]))
    with pytest.raises(TraceError, match="has no matmul"):
        traffic.hidden_size_bytes(replace(step, activities=()))


def test_a_kernel_whose_work_is_not_known_is_an_error() -> None:
    step = forward_of(([4, 8], [8, 16]), ([4, 8], [8, 16]), ([4, 16], [16, 8]))
    unknown = tuple(replace(activity, op=None) for activity in step.activities)
    with pytest.raises(TraceError, match=r"^ProfilerStep#1 lacks the work of some kernels; make record"):
        traffic.kernel_work(replace(step, activities=unknown))


def test_bytes_come_from_the_shapes() -> None:
    small = 3 * X_BYTES + 3 * WEIGHT_BYTES
    assert value(BOOK, "eager_bytes") == small + 8 * HIDDEN_BYTES
    assert traffic.forward_bytes(BOOK, "compiled").value == small + 6 * HIDDEN_BYTES
    assert traffic.fused_bytes(BOOK).value == small - X_BYTES + 2 * HIDDEN_BYTES
    assert value(BOOK, "least_bytes") == small - X_BYTES
    eager = small + 8 * HIDDEN_BYTES
    assert value(BOOK, "avoidable") == pytest.approx(100 * (8 * HIDDEN_BYTES + X_BYTES) / eager)
    assert value(BOOK, "saved_by_two") == pytest.approx(100 * (6 * HIDDEN_BYTES + X_BYTES) / eager)


def test_the_parts_of_the_picture_are_the_bytes() -> None:
    small = 3 * X_BYTES + 3 * WEIGHT_BYTES
    rest = {heading: parts[0] for heading, parts in traffic.traffic_parts(BOOK).items()}
    assert rest == {
        "eager": ("inputs, weights, result", small),
        "compiled": ("inputs, weights, result", small),
        "two fused kernels": ("inputs, weights, result", small - X_BYTES),
        "the least": ("inputs, weights, result", small - X_BYTES),
    }
    assert [len(parts) - 1 for parts in traffic.traffic_parts(BOOK).values()] == [4, 3, 1, 0]


def test_floors_follow_the_ceilings(device: AlteredDevice) -> None:
    eager = device["fused_mlp/eager"]
    flops, least_bytes = eager.point.flops, eager.point.bytes
    ms = Timing(1e3, 1e3, 1e3, (1e3,))
    copy, matmul = eager.ceiling("copy"), eager.ceiling("matmul 8192x8192x8192")
    ceilings = (
        replace(copy, bytes=2_000_000_000, timing=ms),  # two bytes in a picosecond
        replace(matmul, flops=10 * flops, timing=ms),
    )
    device.record("fused_mlp/eager", ceilings=ceilings)
    assert value(device, "arithmetic_us") == pytest.approx(100)
    assert measured(device, "F3").value == pytest.approx(least_bytes / 2e6)
    device.record("fused_mlp/eager", ceilings=())
    assert status(device, "F3") == "not measured"


def test_sums_of_the_result_in_registers(device: AlteredDevice) -> None:
    assert value(device, "result_in_registers") == 75
    point = device["fused_mlp/eager"].point
    device.point("fused_mlp/eager", parameters={**point.parameters, "dim": 256})
    assert value(device, "result_in_registers") == 25


def test_floor_at_the_highest_rate_of_any_product(device: AlteredDevice) -> None:
    flops = device["fused_mlp/eager"].point.flops
    large = device["fused_mlp/eager"].ceiling("matmul 8192x8192x8192")
    copy = replace(large, name="copy", flops=0)
    ms = Timing.from_samples([1e3] * 3)
    slow, fast = (replace(large, name=name, flops=work, timing=ms) for name, work in (("a", flops), ("b", 10 * flops)))
    device.record("fused_mlp/bfloat16_eager", ceilings=(copy, slow, fast))
    device.time("fused_mlp/fused", 150.0)
    assert value(device, "best_arithmetic_us") == pytest.approx(100)
    assert value(device, "over_best_arithmetic") == pytest.approx(1.5)


MM, TEMPLATE, POINTWISE = "extern_kernels.mm", "triton_tem_fused_mm_1", "triton_poi_fused_gelu_mul_0"


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
    ("names", "expected", "own"),
    [
        ([TEMPLATE, TEMPLATE, POINTWISE, TEMPLATE], "holds", 3),
        ([TEMPLATE, "other", POINTWISE, TEMPLATE], "differs", 2),
        ([TEMPLATE, TEMPLATE, TEMPLATE, TEMPLATE], "differs", 4),
    ],
)
def test_f5_reads_the_kernels_of_max_autotune(
    names: list[str], expected: Status, own: int, device: AlteredDevice
) -> None:
    named(device, "fused_mlp/max_autotune", *names)
    assert (status(device, "F5"), value(device, "own_products")) == (expected, own)


def test_without_products_by_a_template(device: AlteredDevice) -> None:
    named(device, "fused_mlp/max_autotune", "nvjet_1", "nvjet_2", POINTWISE, "nvjet_3")
    assert FINDINGS.figures["own_products"](device).text == "none"


def test_the_linears_kernel_once_if_both_sizes_get_the_same(device: AlteredDevice) -> None:
    for few, expected in (("first", "first"), ("second", "first at 8192 rows, second at 64")):
        for rows, name in ((8192, "first"), (64, few)):
            device.kernels(f"fused_mlp/linear_{rows}_fused", lambda kernel, name=name: replace(kernel, name=name))
        assert value(device, "linear_kernel") == expected


@pytest.mark.parametrize(
    ("calls", "products"),
    [
        ([MM, MM, POINTWISE, MM], "cuBLAS, cuBLAS, cuBLAS"),
        ([TEMPLATE, MM, POINTWISE, TEMPLATE], "template, cuBLAS, template"),
        ([MM, "triton_red_fused_0"], "cuBLAS, triton_red_fused_0"),
    ],
)
def test_the_products_of_a_second_compilation(calls: list[str], products: str, device: AlteredDevice) -> None:
    device.record("fused_mlp/generated", data={"max_autotune": {"calls": calls}})
    assert value(device, "compiled_once_more") == products


def test_f1_counts_what_the_generated_kernel_touches(device: AlteredDevice) -> None:
    compiled = device["fused_mlp/generated"].data["compiled"]
    more = compiled["kernels"][0] + "tl.store(out_ptr1 + (x0), tmp1, None)"
    device.data("fused_mlp/generated", compiled={**compiled, "kernels": [more]})
    assert measured(device, "F1").value == "eager 8, compiled 7"


def test_f14_compares_with_the_bare_product_in_pairs(device: AlteredDevice) -> None:
    run = device["fused_mlp/linear_8192_fused"]
    bare = run.ceiling("matmul 8192x1024x4096")
    for factor, expected in ((0.99, "holds"), (1.01, "differs")):
        samples = tuple(factor * us for us in bare.timing.samples_us)
        device.point(run.id, timings=replace(run.timings, interleaved=Timing.from_samples(samples)))
        assert (measured(device, "F14").value, status(device, "F14")) == (pytest.approx(factor, rel=1e-4), expected)


def test_without_a_mode_its_calls_are_not_timed(device: AlteredDevice) -> None:
    device.record("fused_mlp/generated", data={"compiled": {"calls": [MM]}})
    expected = "fused_mlp/generated has no 'max_autotune'; make record CHAPTER=fused_mlp"
    with pytest.raises(NotTimed, match=expected):
        value(device, "compiled_once_more")


def test_generated_code_is_shown_as_text(device: AlteredDevice) -> None:
    data = {"compiled": {"calls": [], "kernels": ["a < b", "<script>"]}}
    device.record("fused_mlp/generated", data=data)
    assert '<code tabindex="0">a &lt; b\n\n&lt;script&gt;</code>' in traffic.generated_kernel(device)


@pytest.mark.parametrize(
    ("name", "changed", "like", "kinds", "factor", "expected"),
    [
        ("F7", "pointwise_fused", "pointwise_copy", ("cold",), 1.05, "holds"),
        ("F7", "pointwise_fused", "pointwise_copy", ("cold",), 1.06, "differs"),
        ("F8", "pointwise_fused", "pointwise_compiled", ("interleaved", "cold"), 1.015, "holds"),
        ("F8", "pointwise_fused", "pointwise_compiled", ("interleaved",), 1.03, "differs"),
        ("F8", "pointwise_fused", "pointwise_compiled", ("cold",), 1.03, "differs"),
        ("F9", "pointwise_eager", "pointwise_fused", ("cold",), 1.5, "differs"),
        ("F10", "pointwise_liger", "pointwise_fused", ("interleaved",), 1.05, "differs"),
        ("F13", "linear_8192_fused", "linear_8192_addmm", ("interleaved", "cold"), 0.91, "holds"),
        ("F13", "linear_8192_fused", "linear_8192_addmm", ("cold",), 0.93, "differs"),
        ("F15", "linear_64_fused", "linear_64_addmm", ("interleaved",), 0.94, "differs"),
        ("F16", "linear_64_fused", "linear_64_addmm", ("cold",), 0.99, "holds"),
        ("F18", "linear_64_fused", "linear_64_addmm", ("enqueue",), 1.26, "differs"),
    ],
)
def test_bands_have_two_sides(
    name: str, changed: str, like: str, kinds: tuple[str, ...], factor: float, expected: Status, device: AlteredDevice
) -> None:
    for kind in kinds:
        retimed(device, changed, kind, like, factor)
    assert status(device, name) == expected


@pytest.mark.parametrize(
    ("us", "width", "expected"),
    [(26.1, 2, "holds"), (25.9, 2, "differs"), (22.9, 8, "holds"), (23.1, 8, "differs")],
)
def test_inductors_gelu_beside_eagers(us: float, width: int, expected: Status, device: AlteredDevice) -> None:
    for name, each_us, blocks in (("compiled", us, 131_072 // width), ("eager", 20.0, 16_384)):
        launch = {"duration_us": each_us, "grid": (blocks, 1, 1), "block": (256, 1, 1)}
        device.kernels(f"fused_mlp/linear_8192_{name}", lambda kernel, launch=launch: replace(kernel, **launch))
    text = f"{us / 20:.2f}x; {width} numbers to a thread, eager's 8"
    assert (measured(device, "F115").text, status(device, "F115")) == (text, expected)
    assert value(device, "inductors_gelu_over_eagers") == pytest.approx(us / 20)
    assert [value(device, f"numbers_of_a_thread_{name}") for name in ("compiled", "eager")] == [width, 8]


def test_what_a_thread_does_is_read_from_the_launch(device: AlteredDevice) -> None:
    launch = {"registers": 77, "grid": (6144, 1, 1), "block": (256, 1, 1)}
    device.kernels("fused_mlp/pointwise_fused", lambda kernel: replace(kernel, **launch))
    assert first_kernels.thread_costs(device["fused_mlp/pointwise_fused"]) == [("77", "256", "16")]
    assert '<td class="number">77</td>' in without_headings(first_kernels.pointwise_compared(device))
