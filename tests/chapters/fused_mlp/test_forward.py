"""Two matmuls in one kernel, turns, the forward: their cost and gain, by recordings and by hand."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kinetoscope.trace.events import CpuOp, GpuActivity, Step
from snippets.fused_mlp.experiments.subjects import SHAPES
from snippets.fused_mlp.findings import forward, ideas, quack, residency
from snippets.fused_mlp.findings.shapes import shape_name
from snippets.fused_mlp.geglu import hopper
from snippets.lab.finding import NotRecorded, NotTimed
from snippets.lab.finding.claim import Status
from snippets.lab.recording.schema import Timing
from tests.chapters.altered import AlteredDevice
from tests.chapters.fused_mlp.verdicts import FINDINGS, measured, status, statuses, text_of, value
from tests.lab.samples import BOOK

replace = msgspec.structs.replace


def test_tiles_and_rounds() -> None:
    assert residency.tiles_of(8192, 3072, (128, 64)) == 3072
    assert residency.tiles_of(8193, 3080, (128, 64)) == 65 * 49
    assert residency.rounds(3072, 132) == (24, 36)
    assert residency.rounds(264, 132) == (2, 132)
    assert residency.rounds(1, 132) == (1, 1)


def test_tiles_are_those_of_the_kernels() -> None:
    assert residency.TILES["pingpong_kernel"] == hopper.PINGPONG_GATED[0][:2] == hopper.PINGPONG_GATED[1][:2]
    assert residency.TILES["gate_up_kernel"] == hopper.STACKED[0][:2]
    assert residency.tuned_tile(BOOK) == hopper.PINGPONG_GATED[0][:2]


OURS = CpuOp("fused_mlp::forward", 0.0, 50.0, "1/1", 1, input_shapes=((100, 32), (64, 32), (64, 32), (32, 64), ()))
CUBLAS = CpuOp("aten::mm", 10.0, 5.0, "1/1", 2, input_shapes=((100, 64), (64, 32)), parent=OURS)


def forward_step(*ops: CpuOp) -> Step:
    """A step with a kernel of each operator."""
    kernels = tuple(GpuActivity("kernel", 12.0 * index, 10.0, "kernel", 0, 7, op=op) for index, op in enumerate(ops))
    return Step(0, "ProfilerStep#0", 0.0, 60.0, (OURS, CUBLAS), (), kernels)


def test_work_of_our_two_kernels() -> None:
    assert forward.kernels_work(forward_step(OURS, OURS)) == {
        0: (2 * 100 * 32 * 128, 2 * (100 * 32 + 128 * 32 + 100 * 64)),
        1: (2 * 100 * 64 * 32, 2 * (100 * 64 + 64 * 32 + 100 * 32)),
    }


def test_work_of_a_matmul_by_cublas_is_left_to_the_trace() -> None:
    assert list(forward.kernels_work(forward_step(OURS, CUBLAS))) == [0]


def test_turns_draws_every_role_without_an_amount() -> None:
    drawn = residency.turns(BOOK)
    for lane in ("producer", "consumer 0", "consumer 1"):
        assert drawn.count(f">{lane}</text>") == 1
    assert drawn.count(">tensor cores</text>") == 2
    assert "µs" not in drawn


def test_whose_kernel_does_the_second_matmul(device: AlteredDevice) -> None:
    second = FINDINGS.figures["second_product"]
    device.steps("fused_mlp/fused", lambda step: replace(step, activities=forward_step(OURS, OURS).activities))
    assert (second(device).value, second(device).conclusive) == ("ours", True)
    last = forward_step(OURS, CUBLAS).activities
    device.steps("fused_mlp/fused", lambda step: replace(step, activities=last), only=0)
    assert (second(device).value, second(device).conclusive) == ("ours", False)
    device.steps("fused_mlp/fused", lambda step: replace(step, activities=last))
    assert (second(device).value, second(device).conclusive) == ("cuBLAS's", True)


def test_the_pointwise_kernel_of_a_compiled_forward(device: AlteredDevice) -> None:
    def with_slow_kernel(step: Step) -> Step:
        kernels = [
            replace(one, duration_us=55.5, grid=(49152, 1, 1), block=(256, 1, 1))
            if one.name.startswith("triton_poi")
            else one
            for one in step.kernels
        ]
        return replace(step, activities=tuple(kernels))

    device.steps("fused_mlp/compiled", with_slow_kernel)
    assert value(device, "pointwise_compiled_us") == 55.5
    assert value(device, "pointwise_launch") == "512 elements to 256 threads"
    device.steps("fused_mlp/max_autotune", with_slow_kernel)
    assert value(device, "pointwise_max_autotune_us") == 55.5


def test_a_table_for_each_part_of_the_steps() -> None:
    assert ideas.steps_table(BOOK).count("<table") == 5


def samples_of(times_us: dict[str, float]) -> dict[str, list[float]]:
    return {name: [us] * 3 for name, us in times_us.items()}


def test_how_a_load_changes_a_time(device: AlteredDevice) -> None:
    """The last ten rounds over the first three, whatever is between."""
    gate_up = {"stacked": [100.0] * 3 + [500.0] * 20 + [120.0] * 10, "hand over early": [100.0] * 3 + [95.0] * 10}
    device.data("fused_mlp/steps", gate_up=gate_up)
    assert value(device, "stacked_under_load") == pytest.approx(1.2)
    assert value(device, "six_slots_under_load") == pytest.approx(0.95)


def test_a_half_with_a_cold_cache(device: AlteredDevice) -> None:
    device.time("fused_mlp/gate_up_fused", 91.0, "cold")
    device.time("fused_mlp/gate_up_bare", 100.0, "cold")
    assert value(device, "gate_up_of_bare_cold") == pytest.approx(91)


@pytest.mark.parametrize(
    ("untuned", "tuned", "expected"), [(1.0, 1.0, "holds"), (1.0, 0.99, "differs"), (0.99, 1.0, "differs")]
)
def test_ours_beside_a_peer_tuned_and_untuned(
    device: AlteredDevice, untuned: float, tuned: float, expected: Status
) -> None:
    ours = [100.0, 110.0, 120.0]
    peers = {"quack": untuned, "quack tuned": tuned}
    both = {"fused": ours, **{name: [us * factor for us in ours] for name, factor in peers.items()}}
    steady = {"fused": [100.0] * 3, **{name: [100.0 * factor] * 3 for name, factor in peers.items()}}
    sensed = {name: {"samples_us": samples, "clock_mhz": 1500.0, "watts": 700.0} for name, samples in steady.items()}
    device.record("fused_mlp/quack", data={"forward": both, "gate_up": both, "steady": sensed})
    ratio = pytest.approx(1 / min(untuned, tuned))
    assert (measured(device, "F43").value, measured(device, "F110").value) == (ratio, ratio)
    assert statuses(device, "F43", "F110") == [expected] * 2
    table = quack.beside_quack(device)
    assert table.count("<tr>") == 1 + 3 + 3
    assert table.count("100 µs") + table.count("99.0 µs") >= 3


def times_of(ours_us: float, steady_us: float) -> dict[str, Any]:
    """The probe's data for a shape at which QuACK takes 110 us, tuned 100."""
    times = {"fused": ours_us, "quack": 110.0, "quack tuned": 100.0}
    steady = {name: {"samples_us": [us] * 3} for name, us in (times | {"fused": steady_us}).items()}
    return {"forward": {name: [us] * 3 for name, us in times.items()}, "steady": steady}


def put_shapes(device: AlteredDevice, **of: dict[str, Any]) -> None:
    """Every shape of the table, ours ahead by 10 % where it claims to be, else behind by 5 %."""
    data = {
        shape_name(shape): times_of(90.0, 91.0) if shape in quack.OURS_AHEAD else times_of(102.0, 105.0)
        for shape in SHAPES
    }
    device.record("fused_mlp/quack_shapes", data={"version": "1.2.3", **data, **of})


def test_shapes_at_which_a_peer_is_faster(device: AlteredDevice) -> None:
    put_shapes(device)
    assert (measured(device, "F116").value, measured(device, "F117").value) == (pytest.approx(0.9), pytest.approx(1.05))
    assert statuses(device, "F116", "F117") == ["holds", "holds"]
    assert value(device, "most_over_quack_steady") == pytest.approx(1.05)
    table = text_of(quack.quack_shape_table(device))
    assert "QuACK 1.2.3" in table
    assert "8192x768x3072 102 µs 110 µs 100 µs 1.020x 1.050x 4096x2048x8192" in table
    put_shapes(device, **{"65536x256x1024": times_of(101.0, 90.0), "8192x768x3080": times_of(90.0, 99.0)})
    assert [measured(device, each).value for each in ("F116", "F117")] == [pytest.approx(1.01), pytest.approx(0.99)]
    assert statuses(device, "F116", "F117") == ["differs", "differs"]


def test_a_shape_that_a_peer_rejects(device: AlteredDevice) -> None:
    put_shapes(device, **{"1x4096x14336": {"failed": "ValueError: one row"}})
    taken = [shape for ahead in (True, False) for shape in quack.taken_shapes(quack.quack_shapes(device), ahead=ahead)]
    assert sorted(taken) == sorted(row for row in SHAPES if row[0] != 1)
    assert "1x4096x14336 – – ValueError: one row – –" in text_of(quack.quack_shape_table(device))


def test_a_peer_that_rejects_all_shapes_is_not_compared(device: AlteredDevice) -> None:
    put_shapes(device, **{shape_name(shape): {"failed": "ValueError: no"} for shape in SHAPES})
    assert statuses(device, "F116", "F117") == ["not measured"] * 2
    with pytest.raises(NotTimed, match="QuACK rejects 8192x768x3072, 4096x2048x8192"):
        value(device, "most_over_quack_steady")
    assert text_of(quack.quack_shape_table(device)).count("ValueError: no") == len(SHAPES)


def put_tiles(
    device: AlteredDevice, fused_us: float, wider_us: float, shared_mhz: float | None = 1420.0, sharing: float = 0.99
) -> None:
    """With 128x128 and nothing shared, QuACK's takes 100 us, shared `sharing` of that. Interleaved, all take 5 us less.
    All run at 1400 MHz, or at `shared_mhz` if they share."""
    alone_us = {"128x192": wider_us, "128x128": 100.0, "fused": fused_us}
    shared_us = {f"{name}, shared": sharing * us for name, us in alone_us.items() if name != "fused"}
    times_us = alone_us | shared_us
    clocks_mhz = {name: shared_mhz if name in shared_us else 1400.0 for name in times_us}
    steady = {name: {"samples_us": [us] * 3, "clock_mhz": clocks_mhz[name]} for name, us in times_us.items()}
    turns = samples_of({name: us - 5 for name, us in times_us.items()})
    device.record("fused_mlp/quack", data={"tiles": {"forward": turns, "steady": steady}})


def test_pinned_tiles_beside_ours(device: AlteredDevice) -> None:
    put_tiles(device, fused_us=102.0, wider_us=98.0)
    table = text_of(quack.tiles_table(device))
    assert "ours, 128x128 97.0 µs 102 µs 1,400 MHz 143,000 QuACK, 128x128 95.0 µs 100 µs 1,400 MHz 140,000" in table


@pytest.mark.parametrize(("fused_us", "expected"), [(97.9, "differs"), (98.1, "holds"), (102.1, "differs")])
def test_with_the_same_tiles(device: AlteredDevice, fused_us: float, expected: Status) -> None:
    put_tiles(device, fused_us, wider_us=98.0)
    assert (measured(device, "F119").value, status(device, "F119")) == (pytest.approx(fused_us / 100), expected)


@pytest.mark.parametrize(("shared_mhz", "expected"), [(1413.0, "differs"), (1415.0, "holds")])
def test_the_clock_of_tiles(device: AlteredDevice, shared_mhz: float, expected: Status) -> None:
    put_tiles(device, 100.0, 98.0, shared_mhz)
    assert (measured(device, "F121").value, status(device, "F121")) == (pytest.approx(shared_mhz / 1400), expected)


def test_cycles_are_time_at_its_clock(device: AlteredDevice) -> None:
    """97.02 us at 1420 MHz beside 98 us and 101 us at 1400 MHz."""
    for fused_us, expected in ((98.0, "holds"), (101.0, "differs")):
        put_tiles(device, fused_us, wider_us=98.0)
        ratio = fused_us * 1400 / (0.99 * 98 * 1420)
        assert (measured(device, "F122").value, status(device, "F122")) == (pytest.approx(ratio), expected)
    put_tiles(device, 98.0, 98.0, shared_mhz=None)
    assert statuses(device, "F121", "F122") == ["not measured"] * 2


@pytest.mark.parametrize(("wider_us", "expected"), [(99.0, "holds"), (100.1, "differs")])
def test_with_wider_tiles(device: AlteredDevice, wider_us: float, expected: Status) -> None:
    put_tiles(device, fused_us=100.0, wider_us=wider_us)
    assert (measured(device, "F120").value, status(device, "F120")) == (pytest.approx(wider_us / 100), expected)


@pytest.mark.parametrize(("sharing", "expected"), [(0.89, "holds"), (1.01, "differs")])
def test_with_shared_loads(device: AlteredDevice, sharing: float, expected: Status) -> None:
    put_tiles(device, fused_us=100.0, wider_us=98.0, sharing=sharing)
    assert (measured(device, "F123").value, status(device, "F123")) == (pytest.approx(sharing), expected)


@pytest.mark.parametrize(("mhz", "expected"), [(1430.0, "holds"), (1425.0, "differs")])
def test_the_clock_beside_a_peers(device: AlteredDevice, mhz: float, expected: Status) -> None:
    clocks_mhz = {"fused": 1400.0, "quack tuned": mhz}
    steady = {name: {"samples_us": [100.0] * 3, "clock_mhz": clock_mhz} for name, clock_mhz in clocks_mhz.items()}
    device.record("fused_mlp/quack", data={"steady": steady})
    assert [value(device, name) for name in ("our_clock", "quack_clock")] == [1400.0, mhz]
    assert (measured(device, "F118").value, status(device, "F118")) == (pytest.approx(mhz / 1400), expected)


@pytest.mark.parametrize(
    ("kind", "claim_id", "limit"), [("interleaved", "F40", 0.78), ("steady", "F59", 0.86), ("from_python", "F64", 0.77)]
)
def test_the_headline_in_three_times(device: AlteredDevice, kind: str, claim_id: str, limit: float) -> None:
    for factor, expected in ((limit - 0.01, "holds"), (limit + 0.01, "differs")):
        device.time("fused_mlp/compiled", 200.0, kind)
        device.time("fused_mlp/fused", 200.0 * factor, kind)
        assert (measured(device, claim_id).value, status(device, claim_id)) == (pytest.approx(factor), expected)


def test_the_energy_of_a_steady_forward(device: AlteredDevice) -> None:
    for joules, expected in ((0.085, "holds"), (0.087, "differs"), (0.0, "not measured")):
        for name, each in (("fused", joules), ("compiled", 0.1)):
            run = device[f"fused_mlp/{name}"]
            steady = replace(run.timing("steady"), joules=each)
            device.point(run.id, timings=replace(run.timings, steady=steady))
        assert status(device, "F111") == expected
        if joules:
            assert measured(device, "F111").value == pytest.approx(10 * joules)


def test_the_slots_that_tuning_chose_are_no_difference(device: AlteredDevice) -> None:
    device.kernels("fused_mlp/gate_up_stacked", lambda kernel: replace(kernel, shared_memory_bytes=100_000))
    assert status(device, "F26") == "holds"
    assert "100 kB" in residency.residency(device)


def test_each_process_has_its_median(device: AlteredDevice) -> None:
    run = device["fused_mlp/fused"]
    timing = Timing.from_samples([170.0, 171.0, 172.0, 190.0, 190.0, 191.0], rounds=(3, 3))
    device.point(run.id, timings=replace(run.timings, interleaved=timing))
    assert value(device, "of_each_process") == "171 µs, 190 µs"


def test_an_estimate_that_is_missing_is_not_zero(device: AlteredDevice) -> None:
    device.kernels("fused_mlp/gate_up_stacked", lambda kernel: replace(kernel, occupancy_percent=None))
    figure = residency.estimated_occupancies(device)
    assert (figure.value, figure.text) == (False, "none and 0 %, computed 12.5 % and 18.8 %")


def test_without_quack_there_is_nothing_to_compare(device: AlteredDevice) -> None:
    device.record("fused_mlp/quack", data={"missing": "No module"})
    device.record("fused_mlp/quack_shapes", data={"missing": "No module"})
    assert statuses(device, "F43", "F44", "F110", "F116", "F117", "F118") == ["not measured"] * 6
    for table in (quack.beside_quack, quack.quack_shape_table):
        with pytest.raises(NotRecorded, match="No module"):
            table(device)


def test_candidates_are_listed_from_the_fastest() -> None:
    for part in ("gate_up", "forward"):
        times = list(ideas.tuned(BOOK, part).values())
        assert times == sorted(times)
        assert len(times) > 1
