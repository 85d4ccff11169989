"""`doctor TRACE`: every fault in a trace written by hand for it, and none in a sound one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kinetoscope.__main__ import main
from kinetoscope.doctor.checks import Check, is_ok
from kinetoscope.doctor.trace_checks import CHECKS, check_ranks, check_trace, trace_verdict
from kinetoscope.trace.events import CudaCall, PythonFunction, Span, Trace
from kinetoscope.trace.kineto import read_trace
from tests.tool.events import Event, kernel, launch, memcpy, op, overhead, step, trace_bytes
from tests.tool.trace.public import PUBLIC, needs_public_traces


def read(*events: Any, **top: Any) -> Trace:
    return read_trace(trace_bytes(*events, **top))


def sound(steps: int = 3, kernels: int = 4, *, first: int = 1, step_us: float = 200.0) -> list[Event]:
    """Steps with so many kernels each, and nothing wrong."""
    events = []
    for number in range(first, first + steps):
        at = 1000.0 + number * 250
        events.append(step(number, at, step_us))
        for index in range(kernels):
            identity = number * 100 + index
            start = at + 10 + index * 20
            events += [
                op("aten::mm", start, 10, external=identity, dims=[[64, 64], [64, 64]]),
                launch(identity, start + 2, external=identity),
                kernel("gemm", identity, start + 8, 5),
            ]
    return events


def replaced(trace: Trace, **fields: Any) -> Trace:
    return msgspec.structs.replace(trace, **fields)


def of(name: str, trace: Trace) -> Check:
    found = [check for check in check_trace(trace) if check.name == name]
    assert len(found) == 1, name
    return found[0]


def names(trace: Trace) -> list[str]:
    return [check.name for check in check_trace(trace)]


def is_launch(event: Event) -> bool:
    return event["cat"] == "cuda_runtime"


def is_kernel(event: Event) -> bool:
    return event["cat"] == "kernel"


def without(events: list[Event], is_gone: Callable[[Event], bool], which: slice) -> list[Event]:
    gone = {id(event) for event in [event for event in events if is_gone(event)][which]}
    return [event for event in events if id(event) not in gone]


def test_a_sound_trace() -> None:
    checks = check_trace(read(*sound()))
    assert {check.status for check in checks} == {"ok"}
    assert [check.name for check in checks] == [
        "file", "GPU events", "dropped kernels", "launches", "operators", "ids", "clocks", "steps", "same work",
        "warm-up", "overhead", "shapes",
    ]  # fmt: skip
    assert not any(check.cure for check in checks)
    assert trace_verdict(checks) == "nothing is missing or wrong"
    assert of("GPU events", read(*sound())).seen == "12 kernels"
    assert of("dropped kernels", read(*sound())).seen == "none: all 12 launches have their work"


def test_an_empty_trace() -> None:
    checks = check_trace(read())
    assert trace_verdict(checks) == "record it again: GPU events"
    assert of("GPU events", read()).seen.endswith("nothing was recorded")
    assert "wait + warmup + active" in of("GPU events", read()).cure


@pytest.mark.parametrize(
    ("events", "status", "seen", "cure"),
    [
        ([op("aten::mm", 0, 5)], "warning", "a trace of a CPU", "if it ran on a CPU"),
        ([op("aten::mm", 0, 5), launch(5, 1)], "failed", "though 1 launches", "have ProfilerActivity.CUDA"),
        ([launch(5, 1, name="cudaGetDevice")], "failed", "1 other runtime calls, 0 copies", "ProfilerActivity.CUDA"),
        ([memcpy(5, 1, 2, 64)], "failed", "0 other runtime calls, 1 copies", "ProfilerActivity.CUDA"),
    ],
)
def test_no_kernels(events: list[Event], status: str, seen: str, cure: str) -> None:
    check = of("GPU events", read(*events))
    assert check.status == status
    assert seen in check.seen
    assert cure in check.cure
    assert "kineto#762" in check.sources


@pytest.mark.parametrize(
    ("which", "status", "seen", "cure"),
    [
        (slice(0, 1), "warning", "1 of 20 launches (5.0%) have no kernel in the trace, all at the start", "warm up"),
        (slice(19, 20), "warning", "1 of 20 launches (5.0%) have no kernel in the trace, all at the end", "synchron"),
        (slice(7, 8), "warning", "1 of 20 launches (5.0%) have no kernel in the trace, in between", "fewer steps"),
        (slice(0, 2), "failed", "2 of 20 launches (10.0%)", "warm up"),
    ],
)
def test_dropped_kernels(which: slice, status: str, seen: str, cure: str) -> None:
    check = of("dropped kernels", read(*without(sound(steps=5), is_kernel, which)))
    assert check.status == status
    assert seen in check.seen
    assert cure in check.cure


def test_launches_captured_into_a_graph_have_no_kernels() -> None:
    events = [event for event in sound() if not (is_kernel(event) and event["args"]["correlation"] == 102)]
    begin, end = launch(901, 1290, name="cudaStreamBeginCapture"), launch(902, 1310, name="cudaStreamEndCapture")
    assert of("dropped kernels", read(*events)).status == "warning"
    assert of("dropped kernels", read(*events, begin, end)).status == "ok"
    assert of("dropped kernels", read(*events, end)).status == "warning"


def test_kernels_without_launches() -> None:
    at_start = of("launches", read(*without(sound(), is_launch, slice(0, 3))))
    assert (at_start.status, at_start.seen) == ("warning", "3 of 12 kernels (25.0%) have no launch in the trace")
    assert "before the profile began" in at_start.cure
    assert "update torch" in of("launches", read(*without(sound(), is_launch, slice(5, 6)))).cure
    uncalled = without(sound(), is_launch, slice(None))
    assert "take the file as torch.profiler writes it" in of("launches", read(*uncalled)).cure
    alone = (event for event in uncalled if event.get("cat") != "cpu_op")
    assert "ProfilerActivity.CPU" in of("launches", read(*alone)).cure


def test_kernels_without_operators() -> None:
    """Of a replayed graph, and of a thread that the profiler does not follow; Kineto links neither to an operator."""
    assert of("operators", read(*sound())).status == "ok"
    bare = [op("aten::add", 1400, 5), *(event for event in sound() if event["name"] != "aten::mm")]
    thread = of("operators", read(*bare))
    assert (thread.status, thread.seen) == (
        "warning",
        "12 of 12 kernels have no operator, 0 of them of replayed CUDA graphs",
    )
    assert "threads that start after the profiler" in thread.cure
    assert "graphs" not in thread.cure
    graph = of("operators", read(*({**e, "name": "cudaGraphLaunch"} if is_launch(e) else e for e in bare)))
    assert graph.seen.endswith("12 of them of replayed CUDA graphs")
    assert graph.cure == "record once without CUDA graphs to see whose kernels these are"


def test_half_of_the_kernels_without_operators() -> None:
    ops = [event for event in sound() if event["name"] == "aten::mm"]
    rest = [event for event in sound() if event["name"] != "aten::mm"]
    assert of("operators", read(*ops[:7], *rest)).status == "ok"
    assert of("operators", read(*ops[:6], *rest)).status == "warning"


def test_ids_of_several_processes() -> None:
    second = [{**event, "pid": 413} if event["pid"] == 412 else event for event in sound()]
    trace = read(*sound(), *second)
    check = of("ids", replaced(trace, processes=()))
    assert (check.status, check.seen) == ("warning", "12 correlations and 12 external ids are of several processes")
    told = of("ids", replaced(trace, processes=tuple(f"rank {rank}" for rank in range(9))))
    assert told.seen.endswith(
        "(rank 0, rank 1, rank 2, rank 3, rank 4, rank 5, rank 6, rank 7, ...), which are told apart"
    )


def test_a_correlation_of_two_launches() -> None:
    check = of("ids", read(*sound(), launch(101, 1900)))
    assert (check.status, check.seen[:42]) == ("warning", "1 correlations belong to several launches ")
    assert of("ids", read(*sound(), launch(101, 1900, name="cudaStreamSynchronize"))).status == "ok"


def test_kernels_before_their_launch_and_without_duration() -> None:
    early = read(*sound(), launch(900, 2000), kernel("k", 900, 1987.5, 3))
    assert of("clocks", early).seen == "1 activities start before their launch, by up to 12.5 µs"
    assert of("clocks", read(*sound(), launch(900, 2000), kernel("k", 900, 1999.5, 3))).status == "ok"
    empty = read(*sound(), kernel("k", 900, 2000, 0), kernel("k", 901, 2001, 0))
    assert of("clocks", empty).seen == "2 of 14 activities have a duration of 0"


@pytest.mark.parametrize(("damaged", "status"), [(1, "warning"), (2, "failed")])
def test_impossible_times(damaged: int, status: str) -> None:
    """Of 12 kernels, so many run 3 s over the others of their stream."""
    events = sound()
    for event in list(filter(is_kernel, events))[:damaged]:
        event["dur"] = 3e6
    check = of("impossible times", read(*events))
    assert check.status == status
    assert check.seen.endswith(
        "gemm (3.00 s recorded, at most 20.0 µs)" + ", gemm (3.00 s recorded, at most 20.0 µs)" * (damaged - 1)
    )
    assert "impossible times" not in names(read(*sound()))


def test_steps_that_are_not_marked() -> None:
    trace = replaced(read(*sound()), steps_from="annotation 'train'")
    assert of("steps", trace).seen == "no ProfilerStep: steps are taken from annotation 'train'"
    assert "prof.step()" in of("steps", trace).cure
    assert of("steps", replaced(trace, steps=())).seen == "no ProfilerStep, no steps"


def test_steps_that_differ() -> None:
    events = [*sound(), launch(900, 1260), kernel("other", 900, 1265, 3)]
    check = of("same work", read(*events))
    assert check.seen == "2 different sequences in 3 steps, of 4 to 5 activities"
    assert "warm up" in check.cure


def test_steps_of_merged_ranks_are_compared_within_a_rank() -> None:
    """The steps of rank 0 run other kernels than those of rank 1."""
    first, second = read(*sound(2)), read(*sound(2, 5))
    steps = [msgspec.structs.replace(each, process="rank 0") for each in first.steps]
    steps += [msgspec.structs.replace(each, process="rank 1") for each in second.steps]
    trace = replaced(first, steps=tuple(steps), processes=("rank 0", "rank 1"))
    assert of("same work", trace).seen == "all 4 steps of a rank run the same GPU work"
    short = msgspec.structs.replace(steps[3], activities=steps[3].activities[:-1])
    check = of("same work", replaced(trace, steps=(*steps[:3], short)))
    assert check.seen == "rank 1: 2 different sequences in 2 steps, of 4 to 5 activities"


def test_a_merged_file_is_checked_rank_by_rank(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [tmp_path / f"rank{rank}.json" for rank in range(3)]
    for rank, path in enumerate(paths):
        events = [*sound(3, 4 + rank), *([launch(900, 1260), kernel("other", 900, 1265, 3)] if rank == 2 else [])]
        path.write_bytes(trace_bytes(*events, distributedInfo={"rank": rank, "world_size": 3}, baseTimeNanoseconds=1))
    assert main(["--quiet", "merge", *map(str, paths), "-o", str(tmp_path / "job.json")]) == 0
    assert main(["doctor", str(tmp_path / "job.json")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "warning  same work           rank 2: 2 different sequences in 3 steps, of 6 to 7 activities" in lines
    assert "ok       GPU events          on each of 3 ranks" in lines
    assert "ok       steps               3, marked by ProfilerStep" in lines
    assert lines[-1] == "usable, with 1 warning"


def test_several_traces_are_checked_one_at_a_time(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["kinetoscope"])
    assert main(["doctor", "rank 0.json", "b.json"]) == 2
    assert capsys.readouterr() == (
        "",
        "error: give one trace at a time: kinetoscope doctor 'rank 0.json'; of ranks, the file that merge writes\n",
    )


def test_ranks_with_the_same_fault_share_a_line() -> None:
    warning = Check("stacks", "warning", "recorded", "record without")
    checks_of = {rank: [Check("file", "ok", f"{rank} events"), warning] for rank in range(2)}
    failed = Check("file", "failed", "none", "record again")
    assert check_ranks({**checks_of, 2: [failed]}) == [
        Check("ranks", "ok", "this file has 3 ranks: kinetoscope report FILE reads and compares them all"),
        Check("file", "failed", "rank 2: none", "record again"),
        Check("stacks", "warning", "ranks 0, 1: recorded", "record without"),
    ]


def test_steps_of_a_cpu_that_differ() -> None:
    def three(first: int) -> Trace:
        ops = [op("aten::mm", number * 100.0 + 3 * i, 2) for number in range(3) for i in range(2 if number else first)]
        return read(*(step(number, number * 100.0, 100) for number in range(3)), *ops)

    assert of("same work", three(3)).status == "ok"
    assert of("same work", three(4)).seen == "the steps run 2 to 4 operators"
    assert "validation" in of("same work", three(4)).cure
    assert "same work" not in names(read(step(1, 0, 100), step(2, 100, 100)))


def test_warm_up_inside() -> None:
    events = sound(step_us=100.0)
    events[0]["dur"] = 300.0
    events[0]["ts"] -= 200
    check = of("warm-up", read(*events))
    assert (check.status, check.seen) == (
        "warning",
        "the first step takes 300 µs, the median of the others is 100 µs",
    )
    events[0]["dur"] = 299.9
    assert of("warm-up", read(*events)).status == "ok"
    assert "warm-up" not in names(read(*sound(steps=1)))


def test_a_tenth_is_a_tenth_where_floats_are_not_exact() -> None:
    """In floats, 0.7 - 0.6 is less than a tenth of 1.6 - 0.6."""
    trace = read(*sound(steps=1))
    (only,) = trace.steps
    short = replaced(trace, steps=(msgspec.structs.replace(only, start_us=0.6, end_us=1.6),))
    check = of("overhead", replaced(short, overheads=(Span("Buffer Flush", 0.6, 0.1),)))
    assert (check.status, check.seen.split(",")[0]) == ("warning", "10.0% of the steps' time is the profiler's own")


def test_overhead() -> None:
    """Three steps of 200 us: 60 us are a tenth, and what overlaps or is outside does not count twice, or at all."""
    requests = [overhead("Activity Buffer Request", 1260, 40), overhead("Buffer Flush", 1280, 40)]
    outside = overhead("Resource", 1200, 49)
    check = of("overhead", read(*sound(), *requests, outside))
    assert (check.status, check.seen.split(",")[0]) == ("warning", "10.0% of the steps' time is the profiler's own")
    requests[1]["dur"] = 39
    assert of("overhead", read(*sound(), *requests, outside)).status == "ok"


def test_stacks_and_shapes() -> None:
    functions = (PythonFunction("train.py(12): step", 0.0, 5.0, "412/412"),) * 3
    check = of("with_stack", replaced(read(*sound()), functions=functions))
    assert check.seen == "with_stack recorded 3 Python calls beside 15 operators"
    assert check.sources == ("scalene#1004", "pytorch#174555")
    for event in (bare := sound()):
        event["args"].pop("Input Dims", None)
    assert of("shapes", read(*bare)).cure == "record_shapes=True"


def test_a_cut_file() -> None:
    check = of("file", replaced(read(*sound()), is_cut=True))
    assert (check.status, check.seen.split(":")[0]) == ("warning", "ends in the middle")


def test_what_is_left_out() -> None:
    check = of("left out", replaced(read(*sound()), unread=tuple((f"kind {n}", 9 - n) for n in range(5))))
    assert check.status == "ok"
    assert check.seen == (
        "events of other categories are left out: 9 of kind 0, 8 of kind 1, 7 of kind 2, 6 of kind 3, ..."
    )
    assert "left out" not in names(read(*sound()))


def test_calls_of_an_accelerators_own_side_share_no_ids() -> None:
    own = [{**event, "pid": 9} for event in sound() if is_launch(event)]
    assert of("ids", read(*sound(), *own)).status == "ok"


def test_every_warning_has_a_cure() -> None:
    fault = read(*without(sound(), is_kernel, slice(0, 4)), launch(101, 1900), kernel("k", 7, 10, 0))
    checks = check_trace(replaced(fault, is_cut=True, steps_from="the whole trace"))
    assert sum(check.status != "ok" for check in checks) >= 6
    assert all(check.cure for check in checks if check.status != "ok")
    assert len({check.name for check in checks}) == len(checks) <= len(CHECKS)


def test_a_hostile_trace_takes_no_quadratic_time() -> None:
    """Twenty thousand captures, dropped launches, overheads and steps: seconds, were any pair of them compared."""
    many = 20_000
    spans = read(*sound(1)).calls[:1]
    calls = []
    for index in range(many):
        calls += [
            CudaCall(name, index * 10 + at, 1.0, "1/1", index * 3 + at + 1)
            for at, name in enumerate(("cudaStreamBeginCapture", "cudaLaunchKernel", "cudaStreamEndCapture"))
        ]
    trace = read(*sound())
    stretched = tuple(
        msgspec.structs.replace(trace.steps[0], start_us=float(at), end_us=at + 5.0) for at in range(0, 10 * many, 10)
    )
    hostile = replaced(trace, calls=tuple(calls) + spans, steps=stretched, overheads=tuple(calls))
    assert not is_ok(check_trace(hostile)) or trace_verdict(check_trace(hostile))


PUBLIC_TRACES = {
    "hta_cupti_counters": ("GPU events", "failed", "measured 77 ranges with counters"),
    "kineto_tb_resnet50_workers0": ("clocks", "warning", "636 of 9,096 activities have a duration of 0"),
    "tracelens_h100_Qwen_Qwen1.5-0.5B-Chat": ("launches", "warning", "436 of 1,465 kernels (29.8%)"),
    "hta_nccl_data": ("shapes", "warning", "not recorded"),
    "hta_mtia_inference_rank0": ("GPU events", "warning", "of another accelerator?"),
    "astra_megatron_tp8_rank0": ("dropped kernels", "ok", "none"),
}


@needs_public_traces
@pytest.mark.parametrize("name", PUBLIC_TRACES)
def test_public_traces(name: str) -> None:
    check, status, seen = PUBLIC_TRACES[name]
    found = of(check, read_trace(PUBLIC / f"{name}.json.gz"))
    assert (found.status, seen in found.seen) == (status, True)
