"""Two products in one kernel, turns, the forward: what they take and what they are worth, by recordings and by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from snippets.fused_mlp import model
from snippets.fused_mlp.findings import pingpong
from snippets.lab.finding.book import judge
from snippets.lab.finding.figure import Figure
from snippets.lab.recording.device import DEFAULT_DEVICE, recorded_names
from snippets.lab.recording.loading import load_recording
from snippets.lab.recording.schema import NotRecorded, Recording, Timing
from snippets.lab.trace.events import CpuOp, GpuActivity, Step, Trace

# KEEP recording

replace = msgspec.structs.replace
HOPPER = {"multiprocessors": 132, "registers": 65536, "shared_bytes": 233472, "threads": 2048}
CLAIMS = {claim.id: claim for claim in pingpong.CLAIMS}
needs_recordings = pytest.mark.skipif(
    not recorded_names(DEFAULT_DEVICE, "fused_mlp"), reason="the chapter is not recorded yet"
)


class Bench:
    """Recordings of the builder, some of them altered in memory."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.load = load_recording
        self.recordings: dict[str, Recording] = {}
        monkeypatch.setattr(
            recording, "load", lambda name, device, *_: self.recordings.get(name) or self.load(name, device)
        )

    def found(self, name: str) -> Recording:
        return self.recordings.get(name) or self.load(name, DEFAULT_DEVICE)

    def data(self, name: str, **changed: Any) -> None:
        """Change fields of what `measure` returned."""
        found = self.found(name)
        self.recordings[name] = replace(found, data={**found.data, **changed})

    def scaled(self, name: str, kind: str, factor: float) -> None:
        """Make one kind of timing of a recording longer or shorter."""
        found = self.found(name)
        (at,) = found.points
        old: Timing = getattr(at.timings, kind)
        samples = tuple(factor * sample for sample in old.samples_us)
        longer = Timing(factor * old.median_us, factor * old.q1_us, factor * old.q3_us, samples)
        self.recordings[name] = replace(found, points=(replace(at, timings=replace(at.timings, **{kind: longer})),))

    def word(self, identity: str) -> str:
        return judge(CLAIMS[identity], "fused_mlp", DEFAULT_DEVICE).word


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(monkeypatch)


# ---- by hand


@pytest.mark.parametrize(
    ("taken", "fit", "percent"),
    [
        ((27, 0, 8), {"registers": 8, "threads": 8}, 100.0),
        ((32, 0, 8), {"registers": 8, "threads": 8}, 100.0),
        ((33, 0, 8), {"registers": 6, "threads": 8}, 75.0),  # 40 registers: 12 warps of each quarter's 16384
        ((159, 180_248, 8), {"registers": 1, "threads": 8, "shared memory": 1}, 12.5),
        ((168, 229_656, 12), {"registers": 1, "threads": 5, "shared memory": 1}, 18.75),
        ((32, 115_712, 4), {"registers": 16, "threads": 16, "shared memory": 2}, 12.5),  # 115712 + 1024 is half of it
        ((32, 115_713, 4), {"registers": 16, "threads": 16, "shared memory": 1}, 6.25),
    ],
)
def test_programs_that_fit(taken: tuple[int, int, int], fit: dict[str, int], percent: float) -> None:
    footprint = pingpong.Footprint(*taken)
    assert pingpong.residents(footprint, HOPPER) == fit
    assert pingpong.occupancy_percent(footprint, HOPPER) == percent


def test_tiles_and_rounds() -> None:
    assert pingpong.tiles_of(8192, 3072, (128, 64)) == 3072
    assert pingpong.tiles_of(8193, 3080, (128, 64)) == 65 * 49
    assert pingpong.rounds(3072, 132) == (24, 36)
    assert pingpong.rounds(264, 132) == (2, 132)
    assert pingpong.rounds(1, 132) == (1, 1)


def test_tiles_are_those_of_the_kernels() -> None:
    assert pingpong.TILES["pingpong_kernel"] == model.PINGPONG_GATED[0][:2] == model.PINGPONG_GATED[1][:2]
    assert pingpong.TILES["gate_up_kernel"] == model.STACKED[0][:2]
    assert pingpong.DOWN_TILE == model.PINGPONG[0][:2] == model.PINGPONG[1][:2]


def kernel(name: str, start_us: float, external_id: int) -> GpuActivity:
    return GpuActivity(name, start_us, 10.0, "kernel", 0, 7, external_id=external_id)


def forward_step(*kernels: GpuActivity) -> tuple[Trace, Step]:
    shapes = ((100, 32), (64, 32), (64, 32), (32, 64), ())
    ops = (
        CpuOp("fused_mlp::forward", 0.0, 50.0, "1/1", 1, input_shapes=shapes),
        CpuOp("aten::mm", 10.0, 5.0, "1/1", 2, input_shapes=((100, 64), (64, 32)), parent=0, index=1),
    )
    step = Step(0, "ProfilerStep#0", 0.0, 60.0, ops, (), kernels)
    return Trace("GPU", {}, ops, (), kernels, (step,), (), (), ()), step


def test_work_of_our_two_kernels() -> None:
    work = pingpong.kernels_work(*forward_step(kernel("pingpong_kernel", 1.0, 1), kernel("pingpong_kernel", 12.0, 1)))
    assert work == {
        0: (2 * 100 * 32 * 128, 2 * (100 * 32 + 128 * 32 + 100 * 64)),
        1: (2 * 100 * 64 * 32, 2 * (100 * 64 + 64 * 32 + 100 * 32)),
    }


def test_work_of_a_product_by_cublas_is_left_to_the_trace() -> None:
    work = pingpong.kernels_work(*forward_step(kernel("pingpong_kernel", 1.0, 1), kernel("nvjet", 12.0, 2)))
    assert list(work) == [0]


def test_turns_draws_every_role_without_an_amount() -> None:
    drawn = pingpong.turns()
    for lane in ("producer", "consumer 0", "consumer 1"):
        assert drawn.count(f">{lane}</text>") == 1
    assert drawn.count(">tensor cores</text>") == 2
    assert "µs" not in drawn


# ---- by recordings


@needs_recordings
def test_every_verdict_is_the_one_the_prose_was_written_for() -> None:
    judged = [judge(claim, "fused_mlp", DEFAULT_DEVICE) for claim in pingpong.CLAIMS]
    assert [(one.claim.id, one.word, one.reason) for one in judged if one.word == "not measured"] == []
    assert [(one.claim.id, one.word) for one in judged if not one.is_expected] == []


@needs_recordings
@pytest.mark.parametrize("name", pingpong.FIGURES)
def test_every_figure_has_a_text(name: str) -> None:
    shown = pingpong.FIGURES[name](DEFAULT_DEVICE)
    assert shown.text
    assert shown.conclusive


@needs_recordings
@pytest.mark.parametrize(
    ("name", "factor", "flipped"),
    [
        ("fused_mlp/gate_up_fused", 1.2, ["F20", "F21"]),
        ("fused_mlp/gate_up_stacked", 1.10, ["F22"]),
        ("fused_mlp/gate_up_stacked", 0.90, ["F22"]),
        ("fused_mlp/fused", 1.2, ["F40", "F41", "F42", "F49"]),
    ],
)
def test_a_slower_kernel_flips_the_verdict(bench: Bench, name: str, factor: float, flipped: list[str]) -> None:
    assert {bench.word(identity) for identity in flipped} == {"holds"}
    bench.scaled(name, "warm", factor)
    assert {bench.word(identity) for identity in flipped} == {"differs"}


@needs_recordings
@pytest.mark.parametrize(
    ("identity", "part", "variant", "factor"),
    [
        ("F30", "gate_up", "stacked", 0.93),
        ("F32", "gate_up", "four slots", 1.05),
        ("F32", "gate_up", "groups of eight", 0.95),
        ("F36", "forward", "ours, one after the other", 0.9),
        ("F37", "forward", "cuBLAS down", 0.9),
    ],
)
def test_an_idea_that_is_worth_something_else_flips_the_verdict(
    bench: Bench, identity: str, part: str, variant: str, factor: float
) -> None:
    assert bench.word(identity) == "holds"
    times = bench.found("fused_mlp/steps").data
    changed = {**times[part], variant: [factor * us for us in times[part][variant]]}
    bench.data("fused_mlp/steps", **{part: changed})
    assert bench.word(identity) == "differs"


@needs_recordings
def test_a_kernel_that_takes_less_leaves_room_for_a_second(bench: Bench) -> None:
    taken = bench.found("fused_mlp/resources").data["pingpong_kernel"]
    bench.data("fused_mlp/resources", pingpong_kernel={**taken, "registers": 80, "shared_bytes": 100_000})
    assert pingpong.FIGURES["programs_fit"](DEFAULT_DEVICE) == Figure(2, origin="fused_mlp/resources")
    assert [bench.word(identity) for identity in ("F24", "F25", "F26")] == ["differs"] * 3


@needs_recordings
def test_a_kernel_that_spills_is_not_as_it_should_be(bench: Bench) -> None:
    taken = bench.found("fused_mlp/resources").data["gate_up_kernel"]
    bench.data("fused_mlp/resources", gate_up_kernel={**taken, "spills": 4})
    assert bench.word("F26") == "differs"


@needs_recordings
def test_without_quack_there_is_nothing_to_compare(bench: Bench) -> None:
    bench.recordings["fused_mlp/quack"] = replace(bench.found("fused_mlp/quack"), data={"missing": "No module"})
    assert [bench.word(identity) for identity in ("F43", "F44")] == ["not measured"] * 2
    with pytest.raises(NotRecorded, match="No module"):
        pingpong.beside_quack()


@needs_recordings
@pytest.mark.parametrize(
    ("shown", "rows"),
    [
        (pingpong.halves, 4),
        (pingpong.residency, 12),
        (pingpong.steps_table, 4 + 3),
        (pingpong.our_kernels, 2),
        (pingpong.forwards, 7),
        (pingpong.beside_quack, 6),
    ],
)
def test_tables_have_a_row_for_each(shown: Callable[[], str], rows: int) -> None:
    content = shown()
    bodies = content.split("<tbody>")[1:]
    assert sum(body.partition("</tbody>")[0].count("<tr>") for body in bodies) == rows


@needs_recordings
def test_candidates_are_listed_from_the_fastest() -> None:
    for part in ("gate_up", "forward"):
        times = list(pingpong.tuned(part, DEFAULT_DEVICE).values())
        assert times == sorted(times)
        assert len(times) > 1
