"""Iterations from annotated parts and optimizers, and where a last step without an end of its own ends."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

import pytest

from kinetoscope.report.headline import headline
from kinetoscope.trace.events import Trace
from kinetoscope.trace.kineto import read_trace
from kinetoscope.trace.step_kinds import kinds_of_step
from tests.tool.events import Event, annotation, kernel, launch, op, trace_bytes
from tests.tool.report.samples import diagnosed

Piece = tuple[str, int]  # the name of an annotation, empty without one, and the number of launches in it
FORWARD, BACKWARD, STEP = ("forward", 6), ("backward", 12), ("Optimizer.step#SGD.step", 4)
ZERO_GRAD = ("Optimizer.zero_grad#SGD.zero_grad", 0)
FETCH = ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 0)
CORRELATIONS = count(1000)
DEVICE_SYNC = "cudaDeviceSynchronize"


def bare(launches: int) -> Piece:
    return "", launches


def loop(pieces: Sequence[Piece], times: int, *, start: float = 0.0, period: float = 1000.0) -> list[Event]:
    """`pieces` one after the other, each 10 us long and 10 us more for each launch, every `period` us."""
    events: list[Event] = []
    for number in range(times):
        at = start + number * period
        for name, launches in pieces:
            for index in range(launches):
                begin, correlation = at + 5 + 10 * index, next(CORRELATIONS)
                events += [op("aten::mm", begin, 8.0), launch(correlation, begin + 2, 4.0)]
                events.append(kernel("k", correlation, begin + 10, 20.0))
            end = at + 10 + 10 * launches
            events += [annotation(name.replace("@", str(number)), at, end - at)] if name else []
            at = end
    return events


def read(*events: Event) -> Trace:
    return read_trace(trace_bytes(*events))


def places(trace: Trace) -> list[tuple[float, float, int]]:
    """Start, length and number of activities of each step."""
    return [(s.start_us, round(s.end_us - s.start_us, 3), len(s.activities)) for s in trace.steps]


def lost(trace: Trace) -> int:
    return len(trace.unattributed)


PARTS = [FORWARD, BACKWARD, STEP]
PARTS_NAMES = "iterations of 'forward', 'backward', 'Optimizer.step#SGD.step'"


@pytest.mark.parametrize(
    ("pieces", "marked_by", "activities", "last_us"),
    [
        (PARTS, PARTS_NAMES, 22, 265.0),
        ([("f@", 6), ("b@", 12), ("o@", 4)], "iterations of 'f#', 'b#', 'o#'", 22, 265.0),
        ([FORWARD, BACKWARD, bare(2)], "iterations of 'forward', 'backward'", 20, 245.0),
        ([FETCH, *PARTS], f"iterations of '{FETCH[0]}', {PARTS_NAMES[14:]}", 22, 275.0),
        ([ZERO_GRAD, bare(18), STEP], f"iterations of '{ZERO_GRAD[0]}', '{STEP[0]}'", 22, 265.0),
        ([FORWARD, BACKWARD] * 3 + [STEP], PARTS_NAMES, 58, 665.0),
        ([("serve", 9), ("", 1), ("sample", 3)], "iterations of 'serve', 'sample'", 13, 175.0),
        ([FETCH, ZERO_GRAD, bare(18), STEP], "batches of a DataLoader", 22, 275.0),
        ([FETCH, bare(8)], "batches of a DataLoader", 8, 115.0),
    ],
    ids=[
        "parts", "numbered names", "work behind", "loader", "zero_grad first", "accumulation", "inference",
        "loader and optimizer", "loader alone",
    ],
)  # fmt: skip
def test_an_iteration_lasts_until_the_next(
    pieces: list[Piece], marked_by: str, activities: int, last_us: float
) -> None:
    """The last one ends with its own work, not with the sync of a profiler that stops."""
    trace = read(*loop(pieces, 4), launch(None, 90_000.0, 5_000_000.0, name=DEVICE_SYNC))
    assert (trace.steps_from, lost(trace)) == (marked_by, 0)
    assert places(trace) == [(1000.0 * index, 1000.0 if index < 3 else last_us, activities) for index in range(4)]


def test_a_fetch_that_finds_no_data_begins_no_batch() -> None:
    """Each loop over a `DataLoader` ends with such a fetch."""
    validation = loop([FETCH, bare(4)], 3, start=3200.0, period=100.0)
    ends = [annotation(FETCH[0], at, 50.0) for at in (3120.0, 3550.0)]
    trace = read(*loop([FETCH, bare(8)], 4), *validation, *ends, op("aten::empty", 3180.0, 5.0))
    assert (trace.steps_from, lost(trace)) == ("batches of a DataLoader", 0)
    assert [us for _, us, _ in places(trace)] == [1000.0, 1000.0, 1000.0, 120.0, 100.0, 100.0, 150.0]


@pytest.mark.parametrize(
    ("pieces", "activities", "end_us"),
    [
        ([bare(18), STEP], 22, 240.0),
        ([bare(18), STEP, ZERO_GRAD], 22, 250.0),
        ([bare(18)] * 4 + [STEP], 76, 810.0),
        ([bare(9), ("Optimizer.step#Adam.step", 4), bare(8), ("Optimizer.step#SGD.step", 2)], 23, 270.0),
        ([bare(9), ("Optimizer.step#Adam.step", 4), bare(8), ("Optimizer.step#Adam.step", 2)], 23, 270.0),
        ([bare(3), ("Optimizer.step#Adam.step", 4)] * 3 + [bare(8), ("Optimizer.step#SGD.step", 2)], 31, 390.0),
        ([("forward", 6), bare(12), STEP], 22, 250.0),
    ],
    ids=["optimizer", "zero_grad last", "accumulation", "two", "two of one name", "three and one", "forward"],
)  # fmt: skip
def test_an_optimizer_ends_an_iteration(pieces: list[Piece], activities: int, end_us: float) -> None:
    trace = read(*loop(pieces, 4, start=100.0), annotation("once", 9000, 5))
    assert trace.steps_from.startswith("iterations of ")
    assert lost(trace) == 0
    assert [count for _, _, count in places(trace)] == [activities] * 4
    if pieces[0][0]:
        assert [us for _, us, _ in places(trace)][:3] == [1000.0] * 3
    else:
        assert [s.end_us for s in trace.steps] == [end_us - 5 + 1000 * index for index in range(4)]


def test_a_trace_that_begins_within_an_iteration() -> None:
    events = loop([bare(18), STEP], 4, start=-100.0)
    trace = read(*(event for event in events if event["ts"] >= 0.0))
    assert trace.steps_from == "iterations of 'Optimizer.step#SGD.step'"
    assert [us for _, us, _ in places(trace)][1:] == [1000.0] * 3
    assert lost(trace) <= 1, "a kernel whose launch was not recorded"


def test_an_iteration_of_operators_on_the_cpu_alone() -> None:
    events = [event for event in loop([bare(18), STEP], 3) if event["cat"] not in ("kernel", "cuda_runtime")]
    assert [s.end_us for s in read(*events).steps] == [235.0, 1235.0, 2235.0]


@pytest.mark.parametrize("pieces", [PARTS, [bare(18), STEP]], ids=["parts", "optimizer"])
def test_an_evaluation_between_and_the_making_of_a_model_are_in_no_iteration(pieces: list[Piece]) -> None:
    model = loop([bare(60)], 1)
    evaluation = loop([FORWARD] * 8, 1, start=5000.0)
    trace = read(*model, *loop(pieces, 3, start=1000.0), *evaluation, *loop(pieces, 3, start=7000.0))
    assert [count for _, _, count in places(trace)] == [22] * 6
    assert {group.reason: len(group.activities) for group in trace.uncounted} == {
        "launched before the first step": 60, "launched between steps": 48,
    }  # fmt: skip


def test_a_part_that_an_evaluation_uses_too() -> None:
    """`forward` has most of the GPU time, and is no step."""
    trace = read(*loop(PARTS, 3), *loop([FORWARD] * 9, 1, start=3000.0))
    assert (trace.steps_from, len(trace.steps), lost(trace)) == (PARTS_NAMES, 3, 54)


def test_a_part_with_most_of_the_time_in_an_evaluation() -> None:
    trace = read(*loop([FORWARD, BACKWARD], 3), *loop([FORWARD], 9, start=3000.0, period=300.0))
    assert trace.steps_from == "iterations of 'forward', 'backward'"
    assert (len(trace.steps), lost(trace)) == (3, 54)


def test_parts_around_a_part_that_repeats() -> None:
    trace = read(*loop([("embed", 1), *[("layer", 5)] * 6, ("head", 2)], 3))
    assert (trace.steps_from, lost(trace)) == ("iterations of 'embed', 'head'", 0)
    assert [count for _, _, count in places(trace)] == [33, 33, 33]


TRAIN, VALIDATE = ("train", 20), ("validate", 5)


@pytest.mark.parametrize(
    ("events", "marked_by", "kinds"),
    [
        (
            [*loop([TRAIN], 4), *loop([VALIDATE], 8, start=4000.0, period=300.0)],
            "annotations 'train', 'validate'", [(4, 210.0, "train"), (8, 60.0, "validate")],
        ),
        (
            loop([("prefill", 40), *[("decode", 3)] * 5], 3, period=2000.0),
            "annotations 'prefill', 'decode'", [(3, 410.0, "prefill"), (15, 40.0, "decode")],
        ),
        (
            [*loop(PARTS, 4), *loop([("evaluate", 20)], 3, start=4000.0)],
            f"{PARTS_NAMES}, annotation 'evaluate'", [(4, 1000.0, ""), (3, 210.0, "evaluate")],
        ),
    ],
    ids=["training and validation", "prefill and decode", "parts and evaluation"],
)  # fmt: skip
def test_annotations_beside_each_other_are_kinds_of_step(
    events: list[Event], marked_by: str, kinds: list[tuple[int, float, str]]
) -> None:
    trace = read(*events)
    assert (trace.steps_from, lost(trace)) == (marked_by, 0)
    assert [(len(kind.steps), kind.step_us, kind.name) for kind in kinds_of_step(trace)] == kinds


@pytest.mark.parametrize(
    "pieces", [[bare(6), ("backward", 12), bare(4)], [("all", 22), bare(1)]], ids=["one part", "a whole step"]
)
def test_one_annotation_alone_is_not_joined(pieces: list[Piece]) -> None:
    trace = read(*loop(pieces, 4))
    (name,) = (name for name, _ in pieces if name)
    assert trace.steps_from == f"annotation '{name}'"
    assert {round(s.end_us - s.start_us, 3) for s in trace.steps} == {10.0 + 10 * dict(pieces)[name]}
    text = headline(diagnosed(trace))
    outside = "A step (annotation 'backward') takes 130 µs and the GPU works"
    assert text.startswith(outside) == (name == "backward")
    assert ("; 45 % of the GPU's time is in no step." in text) == (name == "backward")


@pytest.mark.parametrize("sync", [DEVICE_SYNC, "hipDeviceSynchronize", "cudaStreamSynchronize"])
def test_the_last_graph_replay_ends_with_its_own_work(sync: str) -> None:
    events: list[Event] = []
    for number in range(3):
        at = 500.0 * number
        events.append(launch(number + 1, at, name="hipGraphLaunch" if sync[0] == "h" else "cudaGraphLaunch"))
        events += [kernel("k", number + 1, at + 10 + 20 * index, 15.0) for index in range(20)]
    trace = read(*events, launch(9, 1300.0, 1_000_000.0, name=sync))
    assert [s.end_us - s.start_us for s in trace.steps] == [500.0, 500.0, 405.0]


def test_work_after_a_long_pause_is_not_of_the_last_replay() -> None:
    events = [launch(number + 1, 500.0 * number, name="cudaGraphLaunch") for number in range(3)]
    events += [kernel("k", number + 1, 500.0 * number + 10, 400.0) for number in range(3)]
    trace = read(*events, launch(9, 2000.0), kernel("late", 9, 2010.0, 5.0))
    assert (trace.steps[-1].end_us, lost(trace)) == (1410.0, 1)
    trace = read(*events, launch(9, 1800.0), kernel("sampled", 9, 1810.0, 5.0))
    assert (trace.steps[-1].end_us, lost(trace)) == (1815.0, 0)


def test_layers_that_take_turns_are_parts_of_an_iteration() -> None:
    """Their names differ in numbers only, as the names of steps do."""
    layers = [("layer_0", 3), ("layer_1", 3), ("layer_2", 3), bare(1)]
    trace = read(*loop(layers, 4))
    assert (trace.steps_from, lost(trace)) == ("iterations of 'layer_0', 'layer_1', 'layer_2'", 0)
    assert places(trace) == [(1000.0 * index, 1000.0 if index < 3 else 155.0, 10) for index in range(4)]
    steps = [("step_0", 3), ("step_1", 3), ("step_2", 3)]
    assert [count for *_, count in places(read(*loop(steps, 2)))] == [3] * 6


def test_annotations_in_epochs_mark_the_steps() -> None:
    """Two epochs of three steps; without annotations in them, the epochs are the steps."""
    steps = [("train_0", 6), ("train_1", 6), ("train_2", 6)]
    epochs = [annotation(f"epoch {number}", 1000.0 * number - 1, 250.0) for number in (1, 2)]
    trace = read(*epochs, *loop(steps, 2, start=1000.0))
    assert (trace.steps_from, lost(trace)) == ("annotation 'train_#'", 0)
    assert [(us, count) for _, us, count in places(trace)] == [(70.0, 6)] * 6
    trace = read(*epochs, *loop([bare(18)], 2, start=1000.0))
    assert (trace.steps_from, [count for *_, count in places(trace)]) == ("annotation 'epoch #'", [18, 18])


def test_compiled_functions_are_steps_only_with_all_work() -> None:
    """A compiled layer is called in each of several layers, with other work between the calls."""
    call = ("## Call CompiledFxGraph f6 ##", 6)
    trace = read(*loop([call], 4))
    assert (trace.steps_from, len(trace.steps)) == ("annotation '## Call CompiledFxGraph f6 ##'", 4)
    trace = read(*loop([call, bare(2)] * 3, 2))
    assert (trace.steps_from, [count for *_, count in places(trace)]) == ("the whole trace", [48])
