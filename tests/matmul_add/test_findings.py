"""The chapter matmul_add's findings on a world made by hand: an A100 as the post describes it, and changes to it."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec
import pytest

from snippets.lab.finding.book import Verdict, judge
from snippets.lab.finding.figure import Figure
from snippets.lab.recording.device import DEFAULT_DEVICE
from snippets.lab.recording.schema import Ceiling, NotRecorded, Point, Recording, Timings
from snippets.lab.trace.events import Trace, TraceError
from snippets.lab.trace.kineto import read_trace

# KEEP recording
from snippets.matmul_add import findings
from tests.lab import kineto, samples

CLAIMS = {claim.id: claim for claim in findings.CLAIMS}
GEMM = "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_nn"
QUERY = "cudaOccupancyMaxActiveBlocksPerMultiprocessor"
LAUNCH = "cudaLaunchKernel"
SHAPE = "matmul 4096x4096x4096"
WORLD = "hand-made"


class Events(list[dict[str, Any]]):
    """Kineto events, each launch with the GPU work that it causes."""

    def __init__(self) -> None:
        super().__init__()
        self.correlation = 0

    def put(self, call: str, at: float, kind: str = "", start: float = 0, us: float = 1, **more: Any) -> float:
        """A CUDA call and, with a `kind`, its GPU activity; returns when that ends."""
        self.correlation += 1
        self.append(kineto.launch(self.correlation, at, 2, name=call))
        if kind == "memcpy":
            self.append(kineto.memcpy(self.correlation, start, us, more["moved"]))
        elif kind == "memset":
            self.append(kineto.memset(self.correlation, start, us, 4))
        elif kind:
            self.append(kineto.kernel(kind, self.correlation, start, us, **more))
        return start + us

    def trace(self) -> Trace:
        return read_trace(kineto.trace_bytes(*self, deviceProperties=[{"id": 0, "name": "NVIDIA A100-SXM4-80GB"}]))


def matrices(count: int, size: int, *, row_first: bool = False, numbers: int = 0) -> dict[str, Any]:
    """What a trace keeps of an operator's inputs: square matrices in bf16, the first maybe a row, then numbers."""
    dims: list[list[int]] = [[size, size] for _ in range(count)]
    if row_first:
        dims[0] = [size]
    return {
        "dims": dims + [[]] * numbers,
        "strides": [[size, 1][-len(shape) :] for shape in dims] + [[]] * numbers,
        "types": ["c10::BFloat16"] * count + ["Scalar"] * numbers,
    }


def eager(
    numbers: tuple[int, ...] = (2, 3, 4),
    *,
    product: str = "aten::mm",
    queries: int = 1,
    call: str = LAUNCH,
    gaps: tuple[float, ...] = (228, 6, 5),
    widths: tuple[float, ...] = (400, 400, 400),
    delay: float = 2300,
    gemm: str = GEMM,
    gemm_us: tuple[float, ...] = (5, 5, 5),
    holes: tuple[float, ...] = (1, 1, 1),
    requests: tuple[float, ...] = (),
    wait_us: float = 1780,
    registers: int = 32,
    extra_kernel: bool = False,
    memset: bool = False,
    size: int = 64,
) -> Trace:
    """Steps of matmul and add, 10 ms apart, as the post saw them unless told otherwise."""
    events, two = Events(), matrices(2, size)
    for place, number in enumerate(numbers):
        step = 10_000.0 * place
        start = step + 10 + gaps[place]
        events += [
            kineto.step(number, step, widths[place]),
            kineto.annotation("matmul_add", step + 10, widths[place] - 20),
            kineto.op("aten::matmul", start, 60, external=100 * place + 1, **two),
            kineto.op(product, start + 2, 50, external=100 * place + 2, **two),
            kineto.op("aten::add", start + 65, 20, external=100 * place + 3, **two),
        ]
        for which in range(queries):
            events.put(QUERY, start + 5 + 3 * which)
        if memset:
            events.put("cudaMemsetAsync", start + 20, "memset", start + delay - 5)
        end = events.put(call, start + 30, gemm, start + delay, gemm_us[place])
        adds = {"registers per thread": registers, "shared memory": 0}
        end = events.put(LAUNCH, start + 70, "elementwise add", end + holes[place], 2, **adds)
        if extra_kernel:
            events.put(LAUNCH, start + 75, "another", end + 1, 2)
    events += [kineto.overhead("Activity Buffer Request", at, 100) for at in requests]
    events.append(kineto.launch(999_999, 10_000.0 * (len(numbers) - 1) + 500, wait_us, name="cudaDeviceSynchronize"))
    return events.trace()


def compiled(
    *,
    gemm: str = GEMM,
    bias: str = "memcpy",
    product: str = "aten::addmm",
    hashes: tuple[str, ...] = ("abc", "abc", "abc"),
    rows: tuple[str, ...] = ("TorchDynamo Cache Lookup", "AOTDispatcher Runtime Wrapper Prologue"),
    copy_us: float = 33,
    moved: int = 2 * 4096**2,
    copy_call: str = "cudaMemcpyAsync",
    queries: int = 1,
    memset: bool = False,
    size: int = 64,
) -> Trace:
    """Steps of addmm with a copy of b before it, inside the rows of a compiled call."""
    events, three = Events(), matrices(3, size, row_first=bias == "row", numbers=2)
    for place, digest in enumerate(hashes):
        step = 10_000.0 * place
        events += [
            kineto.step(place + 2, step, 500),
            kineto.annotation("matmul_add", step + 10, 480),
            kineto.op("Torch-Compiled Region: 0/0", step + 20, 400),
            *(kineto.op(row, step + 30 + 10 * which, 5) for which, row in enumerate(rows)),
            kineto.annotation(f"## Call CompiledFxGraph {digest} ##", step + 60, 300),
            kineto.op(product, step + 70, 200, external=place + 1, **three),
        ]
        end = step + 500
        if bias == "memcpy":
            end = events.put(copy_call, step + 80, "memcpy", end, copy_us, moved=moved)
        if memset:
            end = events.put("cudaMemsetAsync", step + 90, "memset", end + 1)
        for which in range(queries):
            events.put(QUERY, step + 95 + which)
        end = events.put(LAUNCH, step + 100, gemm, end + 1, 580)
        if bias == "kernel":
            events.put(LAUNCH, step + 120, "elementwise add", end + 1, 20)
    return events.trace()


def timed(warm: float, enqueue: float, launched: float) -> Timings:
    return msgspec.structs.replace(
        samples.timings(warm, warm, warm),
        enqueue=samples.timing(*[enqueue] * 3),
        launched=samples.timing(*[launched] * 3),
    )


def point(size: int, warm: float, enqueue: float, launched: float) -> Point:
    return samples.point({"size": size}, timed(warm, enqueue, launched), flops=2 * size**3, bytes=8 * size**2)


def recorded(name: str, *points: Point, **changed: Any) -> Recording:
    copy = Ceiling("copy", 2_000_000, 0, samples.timing(1, 1, 1))  # 2 TB/s
    bare = [
        Ceiling(f"matmul {'x'.join([str(n)] * 3)}", 1, 2 * n**3, samples.timing(500, 500, 500)) for n in (4096, 8192)
    ]
    sizes = {int(one.parameters["size"]) for one in points} - {4096, 8192}
    bare += [Ceiling(f"matmul {'x'.join([str(n)] * 3)}", 1, 2 * n**3, samples.timing(1, 1, 1)) for n in sizes]
    return samples.sample(f"matmul_add/{name}", label="matmul_add", points=points, ceilings=(copy, *bare), **changed)


CODE = {
    "calls": ["buf0 = empty_strided_cuda(1)", "buf0.copy_(arg1_1)", "extern_kernels.addmm(arg0_1, out=buf0)"],
    "default_folder_is_torchinductor_user": True,
    "fxgraph_exists": True,
}


@cache
def of_the_post() -> tuple[dict[str, Trace], dict[str, Recording]]:
    """Traces and recordings as the post describes them, made once: nothing can change them."""
    small = {"holes": (1.0, 60.0, 1.0, 1.0, 1.0), "gaps": (5.0,) * 5, "widths": (400.0,) * 5, "gemm_us": (5.0,) * 5}
    five = tuple(range(5))
    twenty: dict[str, Any] = {key: (value[0],) * 20 for key, value in small.items()}
    traces = {
        "eager_64": eager(gaps=(8, 7, 6)),
        "eager_64_cold": eager(),
        "eager_4096": eager(gemm_us=(580, 1084, 580), wait_us=5000, size=4096),
        "eager_4096_cold": eager(gemm_us=(500, 500, 500), delay=200, wait_us=250),
        "compiled_64": compiled(moved=8192),
        "compiled_64_cold": compiled(moved=8192),
        "compiled_4096": compiled(size=4096),
        "stacked": eager(product="aten::bmm", queries=4),
        "stacked_input": eager(),
        "matrix_bias_64": compiled(rows=()),
        "matrix_bias_4096": compiled(rows=(), size=4096),
        "row_bias_64": compiled(rows=(), bias="row"),
        "row_bias_4096": compiled(rows=(), bias="row", size=4096),
        # the second request falls into the hole of step #1: 10_000 + 10 + 5 + 2300 + 5, then 60 us
        "unscheduled": eager(five, requests=(1.0, 12_330.0), **small),
        "unscheduled_20": eager(tuple(range(20)), requests=(1.0,), **twenty),
    }
    recordings = {
        "eager_64": recorded("eager_64", point(64, 10, 40, 42)),
        "compiled_64": recorded("compiled_64", point(64, 10, 80, 84)),
        "eager_4096": recorded("eager_4096", point(4096, 600, 70, 610)),
        "compiled_4096": recorded("compiled_4096", point(4096, 606, 140, 615)),
        "matrix_bias_64": recorded("matrix_bias_64", point(64, 15, 40, 42)),
        "row_bias_64": recorded("row_bias_64", point(64, 10, 30, 32)),
        "matrix_bias_4096": recorded("matrix_bias_4096", point(4096, 600, 40, 615)),
        "row_bias_4096": recorded("row_bias_4096", point(4096, 500, 30, 515)),
        "sweep_eager": recorded("sweep_eager", *(point(n, us, 30, 60) for n, us in ((64, 5), (512, 8), (4096, 600)))),
        "sweep_compiled": recorded(
            "sweep_compiled", *(point(n, us, 60, 90) for n, us in ((64, 5), (512, 8), (4096, 600)))
        ),
        **{name: recorded(name) for name in ("eager_64_cold", "compiled_64_cold", "eager_4096_cold")},
        "stacked": recorded("stacked", point(64, 10, 50, 60)),
        "stacked_input": recorded("stacked_input", point(64, 10, 50, 60)),
        "generated_code": recorded("generated_code", data=CODE),
    }
    return traces, recordings


class World:
    """Traces and recordings by the name of their experiment."""

    def __init__(self) -> None:
        traces, recordings = of_the_post()
        self.traces, self.recordings = dict(traces), dict(recordings)

    def trace(self, name: str, device: str, *_: object) -> Trace:
        try:
            return self.traces[name.partition("/")[2]]
        except KeyError as error:
            raise NotRecorded(name) from error

    def load(self, name: str, device: str, *_: object) -> Recording:
        try:
            return self.recordings[name.partition("/")[2]]
        except KeyError as error:
            raise NotRecorded(name) from error


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    monkeypatch.setattr(recording, "trace", made.trace)
    monkeypatch.setattr(recording, "load", made.load)
    monkeypatch.setattr(recording, "recorded", lambda *_: tuple(made.recordings))
    monkeypatch.setattr(recording, "shown_device", lambda *_: WORLD)
    return made


def verdict(name: str) -> Verdict:
    return judge(CLAIMS[name], "matmul_add", WORLD)


POST = [name for name in CLAIMS if name.startswith("P")]
OURS = [name for name in CLAIMS if name.startswith("O-")]


def test_every_claim_of_the_post_has_its_source_and_ours_have_none() -> None:
    assert [f"P{number}" for number in range(1, 48)] == POST
    assert sorted(OURS, key=lambda name: int(name[3:])) == [f"O-M{number}" for number in range(1, 23)]
    assert all(CLAIMS[name].source is not None for name in POST)
    assert all(CLAIMS[name].source is None for name in OURS)


def test_what_differs_says_why_and_types_no_number_with_a_unit() -> None:
    for claim in findings.CLAIMS:
        assert (claim.expected.get(DEFAULT_DEVICE) == "differs") == bool(claim.why), claim.id
        assert not re.search(r"\d\s?(µs|us|ms|MB|GB|TB|%)", claim.why), claim.id


@pytest.mark.parametrize("name", [name for name in POST if name != "P36"])
def test_in_the_world_of_the_post_its_claims_hold(world: World, name: str) -> None:
    assert verdict(name).word == "holds", verdict(name)


def test_even_there_the_kernels_are_fused(world: World) -> None:
    assert (verdict("P36").word, verdict("P36").measured) == (
        "differs",
        Figure("2 → 1", origin=f"{WORLD}, eager_4096, compiled_4096"),
    )
    world.traces["compiled_4096"] = compiled(bias="kernel")
    assert verdict("P36").word == "holds"


HOPPER = {"queries": 0, "call": "cuLaunchKernelEx", "gemm": "nvjet_sm90_bz"}
TRACES: dict[str, list[tuple[str, Callable[[], Trace]]]] = {
    "P1": [("eager_4096", lambda: eager(extra_kernel=True))],
    "P2": [("eager_64", lambda: eager(product="aten::addmm"))],
    "P3": [("eager_64_cold", lambda: eager(gemm_us=(100, 100, 100), wait_us=100))],
    "P4": [("eager_4096_cold", eager)],
    "P5": [("eager_64_cold", lambda: eager((0, 1, 2)))],
    "P6": [("eager_64_cold", lambda: eager(gaps=(14, 6, 5)))],
    "P7": [("eager_64", lambda: eager(gaps=(5, 5, 5), widths=(640, 400, 400)))],
    "P8": [("eager_64_cold", lambda: eager(delay=900))],
    "P9": [("unscheduled", lambda: eager(requests=(9000.0,)))],
    "P10": [("unscheduled_20", lambda: eager(requests=(1.0, 9000.0)))],
    "P11": [("unscheduled", lambda: eager(holes=(50, 40, 1)))],
    "P12": [("unscheduled", lambda: eager(holes=(1, 60, 1), requests=(1.0,)))],
    "P13": [("eager_64", lambda: eager(product="aten::bmm"))],
    "P15": [("stacked", lambda: eager(product="aten::mm"))],
    "P16": [("stacked", lambda: eager(product="aten::bmm", queries=1))],
    "P17": [("eager_64", lambda: eager(**HOPPER))],
    "P18": [("eager_64", lambda: eager(**HOPPER))],
    "P19": [("eager_64", lambda: eager(**HOPPER))],
    "P21": [("row_bias_4096", lambda: compiled(bias="row", queries=0))],
    "P22": [("eager_64", lambda: eager(registers=34))],
    "P24": [("eager_64_cold", lambda: eager(delay=200, gemm_us=(5, 5, 1000)))],
    "P25": [("eager_64_cold", lambda: eager(wait_us=17))],
    "P26": [("eager_4096", lambda: eager(**HOPPER))],
    "P27": [("eager_4096", lambda: eager(gemm_us=(174, 177, 170)))],
    "P28": [("eager_4096", lambda: eager(gemm_us=(174, 177, 170)))],
    "P29": [("compiled_4096", lambda: compiled(product="aten::mm"))],
    "P30": [("compiled_4096", lambda: compiled(rows=("AOTDispatcher Runtime Wrapper Prologue",)))],
    "P32": [("compiled_4096", lambda: compiled(rows=("TorchDynamo Cache Lookup",)))],
    "P34": [("compiled_4096", lambda: compiled(hashes=("abc", "abc", "def")))],
    "P35": [("compiled_4096", lambda: compiled(gemm="nvjet_sm90_badd"))],
    "P37": [("compiled_64", lambda: compiled(memset=True))],
    "P38": [("compiled_4096", lambda: compiled(memset=True))],
    "P39": [("compiled_4096", lambda: compiled(copy_call="cuMemcpyAsync"))],
    "P40": [("compiled_4096", lambda: compiled(bias="kernel"))],
    "P41": [("compiled_4096", lambda: compiled(bias="row"))],
    "P42": [("compiled_4096", lambda: compiled(moved=4096))],
    "P43": [("compiled_4096", lambda: compiled(copy_us=15.3))],
    "P44": [("compiled_4096", lambda: compiled(copy_us=60))],
    "O-M9": [("eager_64_cold", lambda: eager(requests=(1.0,)))],
    "O-M6": [("eager_4096_cold", lambda: eager(wait_us=10))],
    "O-M10": [("stacked_input", lambda: eager(product="aten::bmm"))],
    "O-M13": [("eager_4096_cold", eager)],
    "O-M16": [("matrix_bias_64", lambda: compiled(bias="row"))],
    "O-M17": [("row_bias_64", compiled)],
    "O-M18": [("row_bias_64", lambda: compiled(bias="kernel"))],
    "O-M21": [("compiled_4096", lambda: compiled(memset=True))],
    "O-M22": [("compiled_4096", lambda: compiled(size=4096, moved=4096))],
}


@pytest.mark.parametrize("name", TRACES)
def test_a_claim_fails_on_a_trace_in_which_it_is_false(world: World, name: str) -> None:
    before = verdict(name).word
    for experiment, made in TRACES[name]:
        world.traces[experiment] = made()
    assert (before, verdict(name).word) == ("holds", "differs")


TIMES: dict[str, tuple[str, Callable[[], Recording]]] = {
    "P45": ("compiled_4096", lambda: recorded("compiled_4096", point(4096, 606, 84, 615))),
    "O-M1": ("eager_64", lambda: recorded("eager_64", point(64, 10, 20, 42))),
    "O-M2": ("eager_4096", lambda: recorded("eager_4096", point(4096, 600, 400, 610))),
    "O-M3": ("eager_4096", lambda: recorded("eager_4096", point(4096, 800, 70, 810))),
    "O-M4": ("sweep_eager", lambda: recorded("sweep_eager", point(64, 5, 30, 40), point(512, 20, 30, 40))),
    "O-M5": ("sweep_compiled", lambda: recorded("sweep_compiled", point(64, 61, 60, 70))),
    "O-M14": ("compiled_4096", lambda: recorded("compiled_4096", point(4096, 500, 140, 615))),
    "O-M15": ("compiled_64", lambda: recorded("compiled_64", point(64, 10, 40, 45))),
    "O-M19": ("matrix_bias_4096", lambda: recorded("matrix_bias_4096", point(4096, 500, 40, 615))),
    "O-M20": ("row_bias_4096", lambda: recorded("row_bias_4096", point(4096, 600, 40, 615))),
    "P46": ("generated_code", lambda: recorded("generated_code", data={**CODE, "fxgraph_exists": False})),
    "P47": ("generated_code", lambda: recorded("generated_code", data={**CODE, "calls": ["extern_kernels.addmm(1)"]})),
}


@pytest.mark.parametrize("name", TIMES)
def test_a_claim_fails_on_a_recording_in_which_it_is_false(world: World, name: str) -> None:
    before = verdict(name).word
    experiment, made = TIMES[name]
    world.recordings[experiment] = made()
    assert (before, verdict(name).word) == ("holds", "differs")


def test_this_gpus_habits_are_claims_of_their_own(world: World) -> None:
    assert verdict("O-M7").word == "differs", "the post's warm-up cured the first step"
    world.traces["eager_64"] = eager(gaps=(60, 8, 7))
    assert verdict("O-M7").word == "holds"
    assert (verdict("O-M11").word, verdict("O-M12").word) == ("differs", "differs"), "the post's A100 asks every time"
    world.traces["eager_4096"] = eager(memset=True, **HOPPER)
    assert verdict("O-M12").word == "holds"
    asking, silent = eager((0,), gaps=(5,)), eager((0, 1), gaps=(5, 5), **HOPPER)
    only_first = msgspec.structs.replace(asking, steps=(asking.steps[0], silent.steps[1]))
    assert findings.queries_by_step(only_first) == Figure(1, said="1 in step #0, 0 in the 1 steps after it")
    assert findings.queries_by_step(asking).value == 1
    assert findings.queries_by_step(eager()).value == 0


def test_a_cuda_call_in_the_gap_is_seen(world: World) -> None:
    assert verdict("O-M8").word == "holds"
    (first, *rest) = world.traces["eager_64_cold"].steps
    early = msgspec.structs.replace(first.launches[0], start_us=first.start_us + 15)
    changed = msgspec.structs.replace(first, launches=(early, *first.launches[1:]))
    world.traces["eager_64_cold"] = msgspec.structs.replace(world.traces["eager_64_cold"], steps=(changed, *rest))
    assert verdict("O-M8").word == "inconclusive", "one step has a call, the others have none"


def test_steps_that_disagree_are_inconclusive(world: World) -> None:
    whole = world.traces["eager_64"]
    lost = msgspec.structs.replace(whole.steps[0], activities=whole.steps[0].activities[:1])
    world.traces["eager_64"] = msgspec.structs.replace(whole, steps=(lost, *whole.steps[1:]))
    assert [verdict(name).word for name in ("P1", "P2")] == ["inconclusive", "inconclusive"]


def test_what_is_missing_is_not_measured(world: World) -> None:
    del world.traces["stacked"], world.recordings["eager_64"]
    untimed = msgspec.structs.replace(point(4096, 1, 1, 1), timings=None)
    world.recordings["eager_4096"] = recorded("eager_4096", untimed)
    world.traces["eager_64_cold"] = compiled()
    world.traces["compiled_4096"] = compiled(bias="kernel")
    assert [verdict(name).word for name in ("P15", "O-M1", "O-M2", "P6", "P24", "O-M22")] == ["not measured"] * 6


def test_totals_are_the_profilers() -> None:
    traced = eager(wait_us=100, gemm_us=(5, 6, 7))
    assert findings.self_cpu_us(traced) == 3 * 400 + 100, "the steps, and the wait outside of them"
    assert findings.self_gpu_us(traced) == 5 + 6 + 7 + 3 * 2


def test_busy_time_of_a_wait_is_cut_to_the_wait() -> None:
    # the last step starts at 20_000; its product runs from 20_015 + 500 for 40, its add 1 later for 2
    traced = eager(gaps=(5, 5, 5), delay=500, gemm_us=(5, 5, 40), wait_us=30)
    wait = findings.closing_wait(traced)
    assert (wait.start_us, wait.end_us) == (20_500, 20_530)
    assert findings.busy_within_us(traced, wait) == 15
    assert findings.wait_busy(traced).value == 50
    assert findings.wait_idle(traced).value == 50


def test_gaps_offsets_and_holes_are_exact() -> None:
    traced = eager(gaps=(228, 6, 5), delay=300, holes=(7, 1, 1))
    assert [findings.gap_us(step) for step in traced.steps] == [228, 6, 5]
    assert [findings.offset_us(step) for step in traced.steps] == [528, 306, 305]
    assert [findings.hole(step).duration_us for step in traced.steps] == [7, 1, 1]
    assert findings.first_to_rest(findings.gap_us)(traced) == Figure(38, "x", said="228 µs, then 6.00 µs and 5.00 µs")


def test_what_a_step_has_to_move_is_what_its_operators_read_and_write() -> None:
    matrix = 2 * 64**2
    by_step = {
        6 * matrix: eager(),  # mm and add read two and write one each
        6 * matrix + 4: eager(memset=True),
        (2 + 4) * matrix: compiled(moved=matrix),  # b copied, then read again by addmm with x and w
        3 * matrix + 2 * 64: compiled(bias="row"),
    }
    assert {size: findings.least_bytes(made, made.steps[1]) for size, made in by_step.items()} == {
        size: size for size in by_step
    }
    divided = compiled(bias="kernel")
    with pytest.raises(TraceError, match="ProfilerStep#3 does not tell what all of its GPU work had to do"):
        findings.least_bytes(divided, divided.steps[1])


def test_a_copy_reads_and_writes() -> None:
    (copy, *_) = compiled(copy_us=10, moved=5_000_000).steps[0].memcpys
    assert findings.copy_rate(copy) == 1e12


def test_one_step_alone_is_compared_with_nothing() -> None:
    with pytest.raises(TraceError, match="one step alone"):
        findings.first_to_rest(findings.gap_us)(eager((2,)))


def test_crossings(world: World) -> None:
    assert findings.crossing("sweep_eager")(WORLD).value == 4096
    world.recordings["sweep_eager"] = recorded("sweep_eager", point(64, 5, 30, 40))
    assert findings.crossing("sweep_eager")(WORLD) == Figure(
        0, said="none of the sizes", origin=f"{WORLD}, sweep_eager"
    )
    assert findings.crossings(WORLD).value is False


def test_up_to_which_size_a_graph_is_worth_it(world: World) -> None:
    assert findings.worth_a_graph("sweep_eager")(WORLD) == Figure(512, said="512", origin=f"{WORLD}, sweep_eager")
    at_the_limit, below_it = point(64, 40, 30, 60), point(512, 40, 30, 59.9)
    world.recordings["sweep_eager"] = recorded("sweep_eager", at_the_limit, below_it)
    assert findings.worth_a_graph("sweep_eager")(WORLD).value == 64
    world.recordings["sweep_eager"] = recorded("sweep_eager", below_it)
    assert findings.worth_a_graph("sweep_eager")(WORLD) == Figure(
        0, said="none of the sizes", origin=f"{WORLD}, sweep_eager"
    )


def test_the_way_into_compiled_code_is_told_in_order(world: World) -> None:
    lookup, wrapper, graph = "TorchDynamo Cache Lookup", "AOTDispatcher Runtime Wrapper Prologue", findings.GRAPH_CALL
    said = findings.FIGURES["entry"](WORLD).text
    assert said == f"Torch-Compiled Region, {lookup}, {wrapper}, {graph}, aten::addmm", "as this world has it"
    backwards = compiled(rows=(wrapper, lookup))
    assert findings.entry(backwards, backwards.steps[0]).split(", ")[1:3] == [wrapper, lookup]


def test_the_busiest_operator_has_the_most_time_of_its_own() -> None:
    assert findings.busiest_op(eager()) == Figure("aten::mm"), "50 us, less its calls; aten::matmul has 10 beside it"
    with pytest.raises(TraceError, match="no operator in the trace"):
        findings.busiest_op(read_trace(kineto.trace_bytes(kineto.step(2, 0, 10))))


@pytest.mark.parametrize("name", findings.FIGURES)
def test_every_figure_is_computed_and_can_be_said(world: World, name: str) -> None:
    shown = findings.FIGURES[name](WORLD)
    assert shown.text
    assert shown.conclusive


def test_figures_are_exact(world: World) -> None:
    def text(name: str) -> str:
        return findings.FIGURES[name](WORLD).text

    assert text("growth_512") == "1.60x"
    assert text("product_share_4096") == "83.3 %", "500 of 600 us"
    assert text("matrix_to_row_64") == "1.50x"
    assert text("compiled_launched_64") == "2.00x"
    assert text("copy_rate_4096") == "2.03 TB/s"
    assert text("copy_share_4096") == "102 %"
    assert text("steps_kept") == "3"
    assert text("chain") == "ProfilerStep#N > matmul_add > aten::matmul > aten::mm"
    assert text("wait_busy_4096") == "86.8 %", "of 250 us all but 33 when the work is done, and the hole of 1"
    assert text("compiled_bytes_4096") == "201 MB → 201 MB"
    assert text("row_bytes_4096") == "201 MB → 101 MB"


def cells(html: str) -> list[list[str]]:
    rows = re.findall(r"<tr>(.*?)</tr>", html, re.DOTALL)
    return [[samples.Markup(cell).text for cell in re.findall(r"<t[dh].*?>(.*?)</t[dh]>", row)] for row in rows]


def test_the_tables_say_what_was_measured(world: World) -> None:
    assert cells(findings.graph_gain())[1] == ["64", "12.0x", "18.0x", "60.0 µs", "90.0 µs", "5.00 µs", "5.00 µs"]
    assert cells(findings.waits())[1][:3] == ["64x64", "1.78 ms", "0 µs"]
    assert cells(findings.totals())[1] == ["64x64", "2.98 ms", "1.78 ms", "21.0 µs", "0.70 %"]
    rows = cells(findings.first_steps())[1:]
    assert rows[0] == ["ProfilerStep#0", "400 µs", "1.00 µs", "1", "1", "3"]
    assert [row[2] for row in rows] == ["1.00 µs", "60.0 µs", "1.00 µs", "1.00 µs", "1.00 µs"], "as the claims have it"
    assert ["stacked", "aten::bmm", QUERY * 4 + LAUNCH] in cells(findings.calls())
    assert cells(findings.product_runs())[4][0] == "trace eager_4096, ProfilerStep#2"
    assert cells(findings.product_runs())[-1][1:3] == ["500 µs", "275 TFLOP/s"]


def slices(drawing: str) -> list[str]:
    """What a timeline's slices are called in full."""
    return [
        samples.Markup(title).text.split("\n")[0] for title in re.findall(r"<title>(.*?)</title>", drawing, re.DOTALL)
    ]


def headings(drawing: str) -> list[str]:
    """The steps of a timeline, from above."""
    return re.findall(r'<text class="heading"[^>]*>([^<]*)<', drawing)


def test_pictures_show_the_steps_they_are_about(world: World) -> None:
    assert headings(findings.one_step()) == ["Eager, 64x64"]
    assert slices(findings.one_step())[:4] == ["matmul_add", "aten::matmul", "aten::mm", "aten::add"]
    assert headings(findings.two_sizes()) == ["64x64", "4096x4096"]
    assert "Torch-Compiled Region: 0/0" in slices(findings.entering())
    assert headings(findings.entering()) == ["Eager", "Compiled"]
    assert headings(findings.first_kept()) == [
        f"{process}, ProfilerStep#{number}" for process in ("Cold", "Warmed") for number in (2, 3)
    ]


def test_charts_have_a_step_for_each_recording(world: World) -> None:
    assert [row[:3] for row in cells(findings.by_size())[1:]] == [
        [way, f"{size:,}", us]
        for way in ("Eager", "Compiled")
        for size, us in ((64, "5.00 µs"), (512, "8.00 µs"), (4096, "600 µs"))
    ]
    assert [row[0] for row in cells(findings.roof())[1:]] == ["64x64", "512x512", "4096x4096"]
    assert cells(findings.roof())[3][1:3] == ["1,020", "229 TFLOP/s"], "2n^3 FLOP over 8n^2 bytes; in 600 us"
    assert cells(findings.cpu_and_gpu())[1][:3] == ["Eager, 64x64", "GPU", "10.0 µs"]
    assert cells(findings.cpu_and_gpu())[4][:3] == ["Compiled, 64x64", "CPU", "80.0 µs"]
    parts = [(row[0], row[2]) for row in cells(findings.by_kernel())[1:]]
    assert [part for variant, part in parts if variant == "addmm, b a row"] == ["cuBLAS GEMM bf16 · 128x256x64 · nn"]
    assert [variant for variant, part in parts if part == "copy device to device"] == ["Compiled", "addmm, b a matrix"]


def test_the_diff_tells_what_became_of_the_addition(world: World) -> None:
    rows = cells(findings.fused())
    assert [row[0] for row in rows[1:4]] == ["+ new", "= same", "− vanished"]
    assert [name in row[1] for name, row in zip(("Memcpy", GEMM, "elementwise add"), rows[1:4], strict=True)] == [
        True
    ] * 3
    assert ["bytes moved", "201 MB", "201 MB", "0"] in rows


def test_lists_of_one_step_name_what_is_in_it(world: World) -> None:
    assert GEMM in samples.Markup(findings.kernels()).text
    assert "aten::bmm" in samples.Markup(findings.stacks()).text
    assert "aten::mm" in samples.Markup(findings.tree("eager_64")).text
    assert "aten::mm" in samples.Markup(findings.profiler()).text
    assert "extern_kernels.addmm(arg0_1, out=buf0)" in samples.Markup(findings.generated()).text
    assert cells(findings.by_hand())[0] == ["", "eager", "compiled", "addmm by hand"]
    assert cells(findings.by_hand())[2] == ["copies", "0", "1", "1"]
    links = findings.traces("eager_64", "stacked", "unknown")
    assert re.findall(r'href="([^"]*)"', links) == [
        f"../recordings/hand-made/matmul_add/{name}.trace.json.gz" for name in ("eager_64", "stacked")
    ]


def test_names_are_text(world: World) -> None:
    world.traces["eager_64"] = eager(gemm=samples.EVIL[0], call=samples.EVIL[1])
    world.recordings["generated_code"] = recorded("generated_code", data={**CODE, "calls": [samples.EVIL[0]]})
    samples.assert_only_text(findings.kernels(), *samples.EVIL[:2])
    samples.assert_only_text(findings.calls(), samples.EVIL[1])
    samples.assert_only_text(findings.generated(), samples.EVIL[0])


def test_verdicts_of_the_builder_are_those_the_page_was_written_for() -> None:
    flipped = [claim.id for claim in findings.CLAIMS if not judge(claim, "matmul_add", DEFAULT_DEVICE).is_expected]
    assert flipped == []
