"""Rules about time: each on a trace with its fault, on the mended one, and on one that cannot tell."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import pytest

from kinetoscope.diagnosis.diagnose import diagnose
from kinetoscope.diagnosis.facts import Facts
from kinetoscope.diagnosis.rule import Rule
from kinetoscope.diagnosis.rules import RULES
from kinetoscope.trace.events import Trace
from tests.tool.diagnosis.test_sync_in_step import waiting
from tests.tool.diagnosis.traces import (
    BY_NAME,
    DOWNLOAD,
    PAGEABLE_UPLOAD,
    PINNED_UPLOAD,
    STACK,
    cannot_tell,
    copied,
    found,
    function,
    nothing,
    without_cpu,
    without_gpu,
    work,
    written,
)
from tests.tool.events import Event, annotation, kernel, launch, op, overhead, step


def test_rules_stand_in_the_order_of_their_names() -> None:
    assert [rule.name for rule in RULES] == sorted({rule.name for rule in RULES})


# launch-bound


def launches(gpu_us: float) -> Trace:
    """Nine kernels, one every 100 us."""
    chain = [event for number in range(1, 10) for event in work(number, 100.0 * number, 100.0 * number + 10.0, gpu_us)]
    return written(step(1, 0.0, 1000.0), *chain)


def test_launch_bound() -> None:
    """The 110 us before the first kernel and the 70 us after the last do not count."""
    finding = found(BY_NAME["launch-bound"], launches(20.0))
    assert finding.title == (
        "The GPU waits 640 µs of 1.00 ms for launches (64 %): 0 µs in operators and calls, 640 µs in Python between "
        "them, in 8 gaps"
    )
    assert (finding.evidence_us_per_step, finding.saving_us_per_step, finding.where) == (640.0, 640.0, "aten::mm")
    assert {span.name for span in finding.evidence} == {"aten::mm"}
    assert finding.severity(1000.0) == "high"


def test_launch_bound_mended() -> None:
    assert nothing(BY_NAME["launch-bound"], launches(99.0))


def test_the_profiler_alone_makes_no_step_launch_bound() -> None:
    """Of a step of 1,000 us, 8 gaps of 71 us are too few: in half the time, the GPU would wait less than 15 %."""
    assert nothing(BY_NAME["launch-bound"], launches(29.0))
    assert found(BY_NAME["launch-bound"], launches(28.0)).saving_us_per_step == 576.0


def test_not_launch_bound_where_the_gpu_only_starts_late() -> None:
    """The CPU runs ahead of a first kernel that outlasts the step: a next step would find the GPU busy."""
    assert nothing(BY_NAME["launch-bound"], written(step(1, 0.0, 100.0), *work(1, 50.0, 60.0, 500.0)))


# slow-cpu-code


def slow_code(python_us: float) -> list[Event]:
    later = python_us + 110.0
    return [step(1, 0.0, later + 900.0), *work(1, 0.0, 10.0, 90.0), *work(2, later - 10.0, later, 900.0)]


def test_slow_cpu_code() -> None:
    rule = BY_NAME["slow-cpu-code"]
    finding = found(rule, written(*slow_code(3000.0)))
    assert finding.title.startswith("The GPU waits 3.01 ms (75 % of the step) in 1 long gap")
    assert (finding.where, finding.saving_us_per_step) == ("before aten::mm", 3010.0)
    assert finding.advice.startswith("with_stack=True shows which functions run.")
    named = found(rule, written(*slow_code(3000.0), functions=[function("log.py(7): write", 120.0, 2900.0)]))
    assert (named.where, named.evidence[0].name, named.advice) == ("log.py(7): write", "log.py(7): write", "")
    built_in = function("<built-in method __exit__ of Guard object at 0x7f87ff2f3690>", 120.0, 2900.0)
    assert found(rule, written(*slow_code(3000.0), functions=[built_in])).where == (
        "<built-in method __exit__ of Guard object>"
    )
    in_op = found(rule, written(*slow_code(3000.0), op("aten::unique", 105.0, 2990.0)))
    assert (in_op.where, in_op.saving_us_per_step) == ("aten::unique", 3010.0)


def test_slow_cpu_code_says_of_what_is_all_outside_that_nothing_is_in_operators() -> None:
    """In floating point, the two gaps of 1,900.1 and 2,100.2 us do not add up to 4,000.3 us."""
    ends = 200.0 + 1900.1
    kernels = [*work(1, 0.0, 10.0, 190.0), *work(2, ends - 10.0, ends, 100.0)]
    kernels += work(3, ends + 2190.2, ends + 2200.2, 800.0)
    finding = found(BY_NAME["slow-cpu-code"], written(step(1, 0.0, ends + 3000.2), *kernels))
    assert finding.title.endswith("in 2 long gaps: 0 µs in operators and calls, 4.00 ms outside")


@pytest.mark.parametrize(
    ("name", "where"), [("load batch", "before aten::mm, in load batch"), ("ProfilerStep#1", "before aten::mm")]
)
def test_the_annotation_around_slow_code_is_named(name: str, where: str) -> None:
    """The GPU waits from 200 to 5,020 us, in the annotation from 210 to 4,990."""
    events = [*work(1, 0.0, 10.0, 190.0), annotation(name, 210.0, 4780.0), *work(2, 5000.0, 5020.0, 980.0)]
    assert found(BY_NAME["slow-cpu-code"], written(step(1, 0.0, 6000.0), *events)).where == where


def test_slow_cpu_code_mended() -> None:
    assert nothing(BY_NAME["slow-cpu-code"], written(*slow_code(500.0)))


# pageable-copies


def uploaded(name: str, *, waits: bool) -> Trace:
    copy = [
        op("aten::copy_", 20.0, 180.0 if waits else 15.0, external=2),
        launch(2, 25.0, 160.0 if waits else 5.0, name="cudaMemcpyAsync", external=2),
        copied(name, 2, 90.0, 100.0, 4_000_000),
    ]
    return written(step(1, 0.0, 1000.0), *copy, *work(3, 210.0, 220.0, 780.0))


def test_pageable_copies() -> None:
    finding = found(BY_NAME["pageable-copies"], uploaded(PAGEABLE_UPLOAD, waits=True))
    assert finding.title == "1 copy per step from pageable memory: 4 MB, 180 µs"
    assert (finding.where, finding.saving_us_per_step) == ("aten::copy_", 180.0)
    assert [span.name for span in finding.evidence] == [PAGEABLE_UPLOAD]


def test_pageable_copies_mended() -> None:
    assert nothing(BY_NAME["pageable-copies"], uploaded(PINNED_UPLOAD, waits=False))


def test_amd_does_not_say_whether_memory_is_pageable() -> None:
    trace = uploaded("Memcpy HtoD (Host -> Device)", waits=True)
    assert "do not say" in cannot_tell(BY_NAME["pageable-copies"], trace).reason


# exposed-copies


def downloaded(duration: float) -> Trace:
    copy = [
        op("aten::copy_", 510.0, 90.0 + duration, external=2),
        launch(2, 515.0, 80.0 + duration, name="cudaMemcpyAsync", external=2),
        copied(DOWNLOAD, 2, 520.0, duration, 8_000_000),
    ]
    return written(step(1, 0.0, 1000.0), *work(1, 0.0, 10.0, 500.0), *copy)


def test_exposed_copies() -> None:
    finding = found(BY_NAME["exposed-copies"], downloaded(200.0))
    assert finding.title == (
        "Copies to the host that no kernel hides take 200 µs per step (20 %), of 200 µs in all, 8 MB"
    )
    assert (finding.where, finding.saving_us_per_step) == ("aten::copy_", 200.0)


def test_exposed_copies_mended() -> None:
    assert nothing(BY_NAME["exposed-copies"], downloaded(2.0))


# loader-stall

FETCH = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def loaded(duration: float, iterator: str = "_MultiProcessingDataLoaderIter") -> Trace:
    fetch = annotation(f"enumerate(DataLoader)#{iterator}.__next__", 0.0, duration)
    return written(step(1, 0.0, duration + 800.0), fetch, *work(1, duration, duration + 10.0, 790.0))


def test_loader_stall() -> None:
    finding = found(BY_NAME["loader-stall"], loaded(200.0))
    assert finding.title == "Fetching a batch takes 200 µs per step (20 %)"
    assert finding.where == "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
    assert (finding.evidence_us_per_step, finding.saving_us_per_step, finding.advice) == (200.0, 200.0, "")
    assert "set num_workers" in found(BY_NAME["loader-stall"], loaded(200.0, "_SingleProcessDataLoaderIter")).advice


def test_loader_stall_mended() -> None:
    assert nothing(BY_NAME["loader-stall"], loaded(20.0))


def test_loading_behind_a_busy_gpu_is_no_stall() -> None:
    busy = kernel("k", 77, 0.0, 990.0)
    fetch = annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 0.0, 900.0)
    assert nothing(BY_NAME["loader-stall"], written(step(1, 0.0, 1000.0), fetch, busy))


def test_loader_stall_without_gpu() -> None:
    assert found(BY_NAME["loader-stall"], without_gpu(loaded(200.0))).saving_us_per_step == 200.0


def launched_after_fetching(fetch_us: float, *, waits: bool = False) -> Trace:
    """Three steps: a fetch, then 60 operators of 10 us that launch 9 us of GPU work each, and a wait of 10 us."""
    events: list[Event] = []
    for number in range(3):
        at, first = (fetch_us + 610.0) * number, 100 * number + 1
        events += [step(number, at, fetch_us + 600.0 + 10.0 * waits), annotation(FETCH, at, fetch_us)]
        for each in range(60):
            start = at + fetch_us + 10.0 * each
            events += work(first + each, start, start + 10.0, 9.0)
        if waits:
            events += [launch(None, at + fetch_us + 600.0, 10.0, name="cudaDeviceSynchronize")]
    return written(*events)


def test_a_loader_behind_which_the_gpu_has_work_without_the_profiler() -> None:
    """Launched in half the time, a fetch of 240 us and the operators take as long as the 540 us of GPU work."""
    rule = BY_NAME["loader-stall"]
    assert nothing(rule, launched_after_fetching(240.0))
    assert found(rule, launched_after_fetching(250.0)).saving_us_per_step == 250.0
    assert found(rule, launched_after_fetching(240.0, waits=True)).saving_us_per_step == 240.0
    assert found(rule, without_gpu(launched_after_fetching(240.0))).saving_us_per_step == 240.0


def test_a_slow_fetch_does_not_raise_the_saving_of_the_others() -> None:
    events = []
    for number, us in enumerate((100.0, 110.0, 700.0)):
        at = 1000.0 * number
        events += [step(number, at, 990.0), annotation(FETCH, at, us), op("aten::mm", at + us, 200.0)]
    finding = found(BY_NAME["loader-stall"], written(*events))
    assert (finding.evidence_us_per_step, finding.saving_us_per_step) == (303.333, 110.0)


def test_a_loader_between_steps_that_an_annotation_marks() -> None:
    """The GPU works for 90 of the 400 us of each fetch."""
    events = []
    for number in range(3):
        at = 1000.0 * number
        events += [annotation("train", at, 580.0), *work(number + 1, at, at + 10.0, 670.0)]
        events += [annotation(FETCH, at + 590.0, 400.0)]
    trace = written(*events)
    assert trace.steps_from == "annotation 'train'"
    finding = found(BY_NAME["loader-stall"], trace)
    assert finding.title == "Fetching a batch takes 400 µs between steps of 580 µs"
    assert (finding.evidence_us_per_step, finding.saving_us_per_step) == (400.0, 310.0)
    assert [span.name for span in finding.evidence] == [FETCH, FETCH]
    assert "set num_workers" in finding.advice
    assert found(BY_NAME["loader-stall"], without_gpu(trace)).saving_us_per_step == 400.0


def test_short_fetches_between_steps_are_no_stall() -> None:
    events = [op("aten::mm", 10.0, 800.0)]
    for at in (0.0, 1000.0):
        events += [annotation("train", at, 900.0), annotation(FETCH, at + 910.0, 49.0)]
    assert nothing(BY_NAME["loader-stall"], written(*events))


def test_steps_that_take_no_time_have_nothing_between_them() -> None:
    assert nothing(BY_NAME["loader-stall"], written(step(1, 0.0, 0.0), op("aten::mm", 0.0, 0.0)))


def test_a_loader_without_its_annotation_is_seen_in_stacks() -> None:
    function_name = "torch/utils/data/dataloader.py(720): __next__"
    functions = [*STACK, function(function_name, 10.0, 300.0), function("data.py(4): __getitem__", 20.0, 280.0)]
    trace = written(step(1, 0.0, 1000.0), op("aten::mm", 400.0, 500.0), functions=functions)
    finding = found(BY_NAME["loader-stall"], trace)
    assert (finding.saving_us_per_step, finding.where) == (300.0, f"{function_name} at data.py(4): __getitem__")


# allocator-in-step


def allocating(duration: float) -> Trace:
    events = [step(1, 0.0, 1000.0), op("aten::empty", 0.0, duration + 5.0)]
    events += [launch(None, 1.0, duration, name="cudaMalloc"), launch(None, 600.0, 50.0, name="cudaFree")]
    return written(*events, *work(1, 300.0, 310.0, 290.0), *work(2, 660.0, 670.0, 330.0))


def test_allocator_in_step() -> None:
    finding = found(BY_NAME["allocator-in-step"], allocating(250.0))
    assert finding.title == "Allocating from the driver takes 300 µs per step: 1 cudaMalloc, 1 cudaFree"
    assert finding.where == "aten::empty"
    assert [span.name for span in finding.evidence] == ["cudaMalloc", "cudaFree"]
    assert (finding.evidence_us_per_step, finding.saving_us_per_step) == (300.0, 300.0)


def test_allocator_in_step_mended() -> None:
    assert nothing(BY_NAME["allocator-in-step"], launches(20.0))


def growing(allocating_steps: Sequence[int], *, first_us: float = 9000.0) -> Trace:
    """A first step of `first_us` and three of 1,000 us, some of which allocate for 100 us."""
    events, at = [], 0.0
    for number, length in enumerate((first_us, 1000.0, 1000.0, 1000.0)):
        events += [step(number, at, length), *work(number + 1, at + 200.0, at + 300.0, 600.0)]
        events += [launch(None, at + 50.0, 100.0, name="cudaMalloc")] if number in allocating_steps else []
        at += length
    return written(*events)


def test_an_allocator_that_fills_after_a_cold_step() -> None:
    rule = BY_NAME["allocator-in-step"]
    assert nothing(rule, growing([0, 1]))
    assert nothing(rule, growing([0, 1, 2]))
    assert found(rule, growing([1], first_us=1000.0)).evidence_us_per_step == 25.0, "no step is cold"
    for irregular in ([0, 2], [0, 1, 3], [0, 1, 2, 3]):
        assert found(rule, growing(irregular)).evidence


def starting(context_us: float) -> Trace:
    """A whole trace: the context, memory and a module are made before and between two kernels."""
    first = context_us + 500.0
    calls = [("cudaStreamCreateWithFlags", 0.0, context_us), ("cudaMalloc", first + 100.0, 200_000.0)]
    events = [launch(None, start, duration, name=name) for name, start, duration in calls]
    return written(
        op("aten::to", 0.0, first), *events, *work(1, first, first + 10.0, 90.0), *work(2, 8e5, 8e5 + 9, 9.0)
    )


def test_starting_cuda_is_the_first_step_and_no_fault_of_the_allocator() -> None:
    finding = found(BY_NAME["first-step"], starting(300_000.0))
    assert finding.title == (
        "The trace starts CUDA: 1 call of 300 ms, the longest cudaStreamCreateWithFlags with 300 ms"
    )
    assert (finding.where, finding.saving_us_per_step) == ("aten::to", 300_000.0)
    for name in ("allocator-in-step", "slow-cpu-code"):
        assert "starts CUDA" in cannot_tell(BY_NAME[name], starting(300_000.0)).reason


def test_a_slow_allocation_of_a_warm_trace() -> None:
    """Where nothing marks steps, the time before the first GPU work is the start of the trace."""
    assert found(BY_NAME["allocator-in-step"], starting(50_000.0)).saving_us_per_step == 200_000.0
    slow = found(BY_NAME["slow-cpu-code"], starting(50_000.0))
    assert (slow.evidence_us_per_step, slow.saving_us_per_step) == (749_409.0, 549_409.0)


# recompiles and graph-breaks


def compiled(*, again: bool) -> Trace:
    compiling = [
        op("dynamo", 10.0, 400.0),
        op("_compile.compile_inner (dynamo_timed)", 12.0, 390.0),
        annotation("dynamo_data: compile_id=0/1", 401.0, 1.0),
    ]
    run = [op("Torch-Compiled Region: 0/1", 410.0, 50.0), *work(1, 420.0, 430.0, 570.0)]
    return written(step(1, 0.0, 1000.0), *(compiling if again else ()), *run, functions=STACK)


def test_recompiles() -> None:
    finding = found(BY_NAME["recompiles"], compiled(again=True))
    assert finding.title == "Compiling takes 400 µs per step: 1 compilation in 1 step; compiled again: compile_id=0/1"
    assert (finding.where, finding.saving_us_per_step) == ("train.py(12): step", 400.0)


def test_recompiles_mended() -> None:
    assert nothing(BY_NAME["recompiles"], compiled(again=False))


@pytest.mark.parametrize("folder", ["torch/_dynamo/", "torch\\_dynamo\\"])
def test_compiling_is_seen_in_stacks(folder: str) -> None:
    functions = [*STACK, function(f"{folder}convert_frame.py(1633): _compile", 10.0, 390.0)]
    trace = msgspec.structs.replace(compiled(again=False), functions=tuple(functions))
    assert found(BY_NAME["recompiles"], trace).saving_us_per_step == 390.0


def broken(*, breaks: bool) -> Trace:
    first = [op("Torch-Compiled Region: 0/0", 0.0, 50.0), *work(1, 5.0, 20.0, 80.0)]
    second = [op("Torch-Compiled Region: 1/0", 400.0, 50.0), *work(2, 405.0, 420.0, 580.0)]
    functions = [*STACK, function("model.py(9): torch_dynamo_resume_in_forward_at_21", 300.0, 200.0)]
    return written(step(1, 0.0, 1000.0), *first, *(second if breaks else ()), functions=functions if breaks else STACK)


def test_graph_breaks() -> None:
    finding = found(BY_NAME["graph-breaks"], broken(breaks=True))
    assert finding.title == "1 graph break per step in 1 place; 350 µs between the graphs"
    assert finding.where == "model.py(9): forward, line 21"
    # the GPU is idle until 20 and from 100 to 420
    assert (finding.evidence_us_per_step, finding.saving_us_per_step) == (350.0, 340.0)


def test_graph_breaks_in_backward() -> None:
    """Both of its graphs, and what is between them; not the code that Inductor generated."""
    backward = [
        op("CompiledFunctionBackward", 1100.0, 100.0),
        op("## Call CompiledFxGraph abc ##", 1120.0, 50.0),
        op("CompiledFunctionBackward", 1300.0, 100.0),
    ]
    functions = [*STACK, function("model.py(9): torch_dynamo_resume_in_forward_at_21", 300.0, 200.0)]
    first = [op("Torch-Compiled Region: 0/0", 0.0, 50.0), *work(1, 5.0, 20.0, 80.0)]
    last = work(3, 1450.0, 1460.0, 500.0)
    trace = written(step(1, 0.0, 2000.0), *first, *backward, *last, functions=functions)
    finding = found(BY_NAME["graph-breaks"], trace)
    assert finding.evidence_us_per_step == 450.0  # no graph follows the break
    assert finding.saving_us_per_step == 20.0 + 400.0 + 250.0  # the GPU is idle until 20 and from 100 to 1460


def test_graph_breaks_mended() -> None:
    assert nothing(BY_NAME["graph-breaks"], broken(breaks=False))


def test_graph_breaks_need_stacks() -> None:
    bare = msgspec.structs.replace(broken(breaks=True), functions=())
    assert cannot_tell(BY_NAME["graph-breaks"], bare).option == "with_stack=True"


# garbage-collection


def collecting(duration: float) -> Trace:
    functions = [*STACK, function("Python GC", 20.0, duration)]
    later = max(30.0, duration)
    events = [step(1, 0.0, 1000.0), *work(1, later, later + 10.0, 990.0 - later)]
    return written(*events, functions=functions)


def test_garbage_collection() -> None:
    finding = found(BY_NAME["garbage-collection"], collecting(300.0))
    assert finding.title == ("Python's garbage collector takes 300 µs per step: 1 run in 1 step, the longest 300 µs")
    assert (finding.where, finding.saving_us_per_step) == ("train.py(12): step", 300.0)


def test_garbage_collection_mended() -> None:
    assert nothing(BY_NAME["garbage-collection"], collecting(1.0))


def test_collections_are_not_always_recorded() -> None:
    trace = msgspec.structs.replace(collecting(300.0), functions=tuple(STACK))
    assert "record_python_gc_info=True" in cannot_tell(BY_NAME["garbage-collection"], trace).option


# first-step


def several(durations: list[float], *, gpu_us: list[float] | None = None) -> Trace:
    events, start = [], 0.0
    for number, duration in enumerate(durations):
        events += [step(number, start, duration)]
        gpu = gpu_us[number] if gpu_us else 0.9 * duration
        events += work(number + 1, start, start + 10.0, gpu)
        start += duration + 10.0
    return written(*events)


def test_first_step() -> None:
    finding = found(BY_NAME["first-step"], several([9000.0, 1000.0, 1000.0, 1200.0]))
    assert finding.title == "The first step takes 9.00 ms, the others 1.00 ms"
    assert (finding.where, finding.saving_us_per_step) == ("aten::mm", 2000.0)
    assert [span.name for span in finding.evidence] == ["ProfilerStep#0", "aten::mm"]


def test_a_first_step_that_does_other_work_is_not_called_warm_up() -> None:
    """A validation pass: the profiler warmed up, and the step runs operators that the others lack."""
    durations = [9000.0, 1000.0, 1000.0]
    events: list[Event] = []
    for number, start in enumerate((0.0, 9010.0, 10_020.0)):
        events += [step(number, start, durations[number]), *work(number + 1, start, start + 10.0, 500.0)]
    assert found(BY_NAME["first-step"], written(*events)).advice == ""
    finding = found(BY_NAME["first-step"], written(*events, op("aten::argmax", 5000.0, 100.0)))
    assert finding.title == (
        "The first step takes 9.00 ms, the others 1.00 ms, and it runs 2.0 times as many operators"
    )
    assert "A validation pass or a checkpoint is no fault" in finding.advice


def test_first_step_mended() -> None:
    assert nothing(BY_NAME["first-step"], several([1900.0, 1000.0, 1000.0, 1200.0]))


def test_first_step_needs_three_steps() -> None:
    assert "schedule" in cannot_tell(BY_NAME["first-step"], several([9000.0, 1000.0])).option


def test_the_first_of_two_steps_is_warm_up_only_if_nothing_else_can_be() -> None:
    finding = found(BY_NAME["first-step"], several([21_000.0, 1000.0]))
    assert finding.title == "The first step takes 21.0 ms, the others 1.00 ms"
    assert len(Facts(several([21_000.0, 1000.0])).steps) == 1
    assert len(Facts(several([19_000.0, 1000.0])).steps) == 2
    assert len(Facts(several([1000.0, 21_000.0])).steps) == 2


def test_means_leave_warm_up_out() -> None:
    facts = Facts(several([9000.0, 1000.0, 1000.0, 1200.0]))
    assert len(facts.steps) == 3
    assert facts.length_us([facts.trace.cpu_ops[1]]) == 0.0


# exposed-communication and stragglers

ALLREDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def communicating(start: float) -> Trace:
    """A kernel until 700 us, and a collective of 200 us on a stream of its own."""
    return written(
        step(1, 0.0, 1000.0),
        *work(1, 0.0, 10.0, 690.0),
        *work(2, 20.0, start, 200.0, name=ALLREDUCE, stream=9),
    )


def test_exposed_communication() -> None:
    finding = found(BY_NAME["exposed-communication"], communicating(650.0))
    assert finding.title == (
        "Collectives that no other work hides take 150 µs per step (15 %), of 200 µs in all; "
        f"the longest are {ALLREDUCE}"
    )
    assert (finding.evidence_us_per_step, finding.saving_us_per_step) == (200.0, 150.0)


@pytest.mark.parametrize(
    ("rank", "size", "doubt"),
    [
        (None, None, ""),
        (0, 1, ""),
        (1, 2, "Rank 1 of 2: this may be waiting for another rank; give all ranks."),
        (None, 2048, "One rank of 2,048: this may be waiting for another rank; give all ranks."),
    ],
)
def test_exposed_communication_of_one_rank_is_in_doubt(rank: int | None, size: int | None, doubt: str) -> None:
    trace = msgspec.structs.replace(communicating(650.0), rank=rank, world_size=size)
    finding = found(BY_NAME["exposed-communication"], trace)
    assert (finding.doubt, finding.confidence) == (doubt, "low" if doubt else "high")
    assert finding.what_to_do == f"{doubt} {finding.rule.advice}".strip()


def test_exposed_communication_mended() -> None:
    assert nothing(BY_NAME["exposed-communication"], communicating(450.0))


def accumulating(*micro_batches: tuple[int, ...]) -> Trace:
    """A step of 1,000 us in which DDP all-reduces arrays of so many elements after each of its forwards."""
    events, number = [step(1, 0.0, 1000.0)], 1
    for index, sizes in enumerate(micro_batches):
        start = 300.0 * index
        events += [annotation("DistributedDataParallel.forward", start, 10.0)]
        events += work(number, start + 1.0, start + 15.0, 150.0)
        for place, elements in enumerate(sizes, start=1):
            asked = start + 10.0 + place
            sent = work(number + place, asked, start + 100.0 + 70.0 * place, 60.0, name=ALLREDUCE, stream=9)
            sent[-1]["args"] |= {"Collective name": "allreduce", "In msg nelems": elements}
            events += sent
        number += 1 + len(sizes)
    return written(*events)


def test_gradients_that_every_micro_batch_reduces() -> None:
    advice = found(BY_NAME["exposed-communication"], accumulating((64, 8), (64, 8), (64, 8))).advice
    assert advice.startswith("DDP all-reduces the same gradients in each of 3 backwards of a step. If the loop")
    assert advice.endswith(BY_NAME["exposed-communication"].advice)


@pytest.mark.parametrize(
    "micro_batches",
    [
        ((64, 8),),  # one backward
        ((), (), (64, 8)),  # no_sync
        ((64, 8), (32, 8)),  # two models
        ((64, 8), (64,)),
    ],
)
def test_gradients_that_a_step_reduces_once(micro_batches: tuple[tuple[int, ...], ...]) -> None:
    assert found(BY_NAME["exposed-communication"], accumulating(*micro_batches)).advice == ""


def ranks(waits: tuple[float, ...]) -> Trace:
    """GPUs of one process that join a collective early or late and leave it together."""
    events = [step(1, 0.0, 1000.0)]
    for device, wait in enumerate(waits):
        events += work(2 * device + 1, 1.0 + device, 20.0, 930.0 - wait, device=device)
        events += work(2 * device + 2, 21.0 + device, 950.0 - wait, wait, name=ALLREDUCE, device=device)
    return written(*events)


def test_stragglers() -> None:
    finding = found(BY_NAME["stragglers"], ranks((400.0, 420.0, 100.0, 380.0)))
    assert (finding.where, finding.saving_us_per_step) == ("GPU 2", 300.0)
    assert "300 µs per step (30 %) longer in collectives than GPU 2" in finding.title


def test_a_straggler_among_merged_ranks() -> None:
    """Both ranks call their GPU 0 and number their launches from 1."""
    events = []
    for pid, wait in ((412, 100.0), (999, 400.0)):
        of_rank = [step(1, 0.0, 1000.0), *work(1, 1.0, 20.0, 930.0 - wait)]
        of_rank += work(2, 21.0, 950.0 - wait, wait, name=ALLREDUCE)
        events += [{**event, "pid": pid} if event["pid"] == 412 else event for event in of_rank]
    trace = written(*events)
    finding = found(BY_NAME["stragglers"], trace)
    assert (finding.where, finding.saving_us_per_step) == (f"{trace.processes[0]}, GPU 0", 300.0)


def test_stragglers_mended() -> None:
    assert nothing(BY_NAME["stragglers"], ranks((100.0, 110.0, 100.0, 105.0)))


def test_stragglers_need_ranks() -> None:
    assert "one rank only" in cannot_tell(BY_NAME["stragglers"], communicating(450.0)).reason


# profiler-overhead


def test_profiler_overhead() -> None:
    events = [*slow_code(3000.0), overhead("Activity Buffer Request", 150.0, 2500.0), overhead("Resource", 2700.0, 9.0)]
    finding = found(BY_NAME["profiler-overhead"], written(*events))
    assert finding.title == "Overheads of CUPTI take 2.51 ms per step (63 %), most of it Activity Buffer Request"
    assert (finding.where, finding.saving_us_per_step) == ("Activity Buffer Request", 2509.0)


def test_profiler_overhead_mended() -> None:
    assert nothing(BY_NAME["profiler-overhead"], written(*slow_code(3000.0), overhead("Resource", 2700.0, 9.0)))


# What a trace cannot tell

NEED_GPU = (
    "gpu-slowed",
    "exposed-communication",
    "exposed-copies",
    "gpu-bubbles",
    "launch-bound",
    "pageable-copies",
    "profiler-overhead",
    "slow-cpu-code",
    "stragglers",
    "sync-in-step",
)
NEED_CPU = (
    "allocator-in-step",
    "graph-breaks",
    "launch-bound",
    "loader-stall",
    "recompiles",
    "slow-cpu-code",
    "sync-in-step",
)


@pytest.mark.parametrize(
    ("name", "bare"), [(name, without_gpu) for name in NEED_GPU] + [(name, without_cpu) for name in NEED_CPU]
)
def test_the_option_that_records_what_is_missing(name: str, bare: Callable[[Trace], Trace]) -> None:
    assert "ProfilerActivity" in cannot_tell(BY_NAME[name], bare(launches(20.0))).option


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
@pytest.mark.parametrize("bare", [without_cpu, without_gpu])
def test_no_rule_fails_on_half_a_trace(rule: Rule, bare: Callable[[Trace], Trace]) -> None:
    for trace in (
        waiting(reads=True),
        compiled(again=True),
        several([9000.0, 1000.0, 1000.0]),
        written(step(1, 0.0, 0.0)),
    ):
        rule.check(Facts(bare(trace)))


def test_no_saving_is_larger_than_the_step() -> None:
    for trace in (waiting(reads=True), compiled(again=True), loaded(200.0), allocating(250.0), launches(20.0)):
        result = diagnose(trace)
        assert result.findings
        assert all(finding.saving_us_per_step <= result.facts.step_us for finding in result.findings)
        assert all(finding.evidence for finding in result.findings)
