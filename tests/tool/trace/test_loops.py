"""Iterations of loops that nothing marks, and which of them are tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from kinetoscope.trace.events import Trace
from kinetoscope.trace.kineto import read_trace
from kinetoscope.trace.marks import GRAPH_REPLAYS, ITERATIONS, TOKENS, WHOLE
from tests.tool.events import Event, kernel, launch, trace_bytes
from tests.tool.token_loops import GEMM, GEMV, PITCH_US, Launch, answer, events, forward

TOKEN_US = PITCH_US * len(forward(1, 1))
CONVOLUTION = "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x128x16_kernel_cudnn"


def read(launches: Sequence[Launch], *more: Event) -> Trace:
    return read_trace(trace_bytes(*events(launches), *more))


def lengths(trace: Trace) -> list[float]:
    return [round(step.end_us - step.start_us, 3) for step in trace.steps]


def uncounted(trace: Trace) -> dict[str, int]:
    return {group.reason: len(group.activities) for group in trace.uncounted}


@pytest.mark.parametrize("tokens", [3, 9])
@pytest.mark.parametrize("sequences", [1, 3])
@pytest.mark.parametrize("shapes", [True, False])
def test_tokens_after_a_prompt(tokens: int, sequences: int, shapes: bool) -> None:
    trace = read(answer(32, tokens, sequences=sequences, shapes=shapes))
    assert trace.steps_from == TOKENS
    assert lengths(trace) == [*[TOKEN_US] * (tokens - 1), TOKEN_US - 2.0]  # the last operator ends 2 us earlier
    assert {len(step.kernels) for step in trace.steps} == {len(forward(1, 1))}
    assert [step.name for step in trace.steps[:2]] == ["token #0", "token #1"]
    assert uncounted(trace) == {"launched before the first step": len(forward(1, 1))}


def test_prompts_of_later_requests_are_no_tokens_however_long() -> None:
    """Two requests of ten tokens; after each prompt the CPU waits until 20 ms for its work."""
    made: list[Event] = []
    length = len(forward(1, 1))
    for at in (0.0, 30_000.0):
        made += events(forward(32, 32, us=1000.0), start=at, first=len(made) + 1)
        tokens = [each for index in range(10) for each in forward(1, 33 + index)]
        made += events(tokens, start=at + 20_000.0, first=len(made) + 1)
    trace = read_trace(trace_bytes(*made))
    assert (trace.steps_from, len(trace.steps)) == (TOKENS, 20)
    assert uncounted(trace) == {"launched before the first step": length, "launched between steps": length}


@pytest.mark.parametrize(("prompt_us", "marked_by"), [(200.0, TOKENS), (1.0, GRAPH_REPLAYS)])
def test_replayed_tokens_after_a_prompt_with_most_of_the_work(prompt_us: float, marked_by: str) -> None:
    """Eight tokens, each of a replay and three operators that sample; the prompt runs without a graph."""
    made = events(forward(32, 32, us=prompt_us))
    kernels = ["indexSelectSmallIndex", GEMV, "flash_fwd_splitkv_kernel", GEMV]
    for number in range(8):
        at, first = 5000.0 + 100.0 * number, 100 + 10 * number
        made.append(launch(first, at, name="cudaGraphLaunch"))
        made += [kernel(name, first, at + 5 + 5 * index, 5.0) for index, name in enumerate(kernels)]
        sampling = [Launch("aten::div", "div"), Launch("aten::softmax", "softmax"), Launch("aten::argmax", "ArgMaxOps")]
        made += events(sampling, start=at + 30, first=first + 1)
    trace = read_trace(trace_bytes(*made))
    assert (trace.steps_from, len(trace.steps)) == (marked_by, 8)
    assert {len(step.kernels) for step in trace.steps} == {7}
    assert uncounted(trace) == {"launched before the first step": len(forward(1, 1))}


def test_without_operators_kernels_repeat() -> None:
    bare = [Launch(None, each.kernel, each.us, each.grid) for each in answer(32, 6)]
    trace = read(bare)
    assert (trace.steps_from, len(trace.steps)) == (TOKENS, 6)


def test_a_prompt_tells_where_kernels_do_not() -> None:
    plain = [
        Launch(each.op, each.kernel.replace(GEMV, GEMM).replace("splitkv_", ""), each.us, each.grid)
        for each in answer(32, 6)
    ]
    assert read(plain).steps_from == TOKENS
    assert read(plain[len(forward(1, 1)) :]).steps_from == ITERATIONS


def test_an_extra_kernel_now_and_then() -> None:
    extra = [Launch("aten::isin", "isin_kernel"), Launch("aten::all", "all_kernel")]
    launches = forward(16, 16, us=9.0)
    for index in range(12):
        launches += forward(1, 17 + index) + (extra if index % 3 == 2 else [])
    trace = read(launches)
    assert trace.steps_from == TOKENS
    assert lengths(trace) == [TOKEN_US, TOKEN_US, TOKEN_US + 2 * PITCH_US] * 3 + [TOKEN_US] * 3


def training(index: int) -> list[Launch]:
    backward = [
        Launch(f"autograd::engine::evaluate_function: {each.op}Backward0", each.kernel) for each in forward(9, 9)
    ]
    return [*forward(9, 9)[:-1], Launch("aten::nll_loss", "nll_loss"), *backward, Launch("aten::argmax", "ArgMaxOps")]


def images(index: int) -> list[Launch]:
    layers = [Launch("aten::conv2d", CONVOLUTION), Launch("aten::relu", "relu"), Launch("aten::linear", GEMV)]
    return [Launch("aten::to", "to"), *layers * 4, Launch("aten::nll_loss", "nll"), Launch("aten::argmax", "ArgMaxOps")]


def texts(index: int) -> list[Launch]:
    return forward(128, 128)


def speculation(index: int) -> list[Launch]:
    drafts = [each for _ in range(3) for each in forward(1, 9)]
    return [Launch("aten::zeros", "fill"), *drafts, *forward(4, 12), Launch("aten::cumprod", "cumprod")]


@pytest.mark.parametrize("iteration", [training, images, texts, speculation])
def test_a_loop_without_tokens(iteration: Callable[[int], list[Launch]]) -> None:
    length = PITCH_US * len(iteration(0))
    trace = read([each for index in range(5) for each in iteration(index)])
    assert trace.steps_from == ITERATIONS
    assert lengths(trace) == [*[length] * 4, length - 2.0]
    assert trace.steps[0].name == "iteration #0"


def noise(count: int) -> list[Launch]:
    return [Launch(f"aten::op{index}", "k", 50.0) for index in range(count)]


LAYER = [
    Launch("aten::linear", GEMM),
    Launch("sgl_kernel::apply_rotary_embedding", "rotary_embedding_kernel"),
    Launch("aten::layer_norm", "norm"),
]


@pytest.mark.parametrize(
    "launches",
    [
        answer(32, 2),
        [Launch("aten::embedding", "indexSelect"), *LAYER * 12, Launch("aten::argmax", "ArgMaxOps")],
        [*texts(0), *texts(0), *texts(0), *noise(150), *texts(0)],
        [],
    ],
    ids=["two tokens", "layers of one forward pass", "mostly other work", "nothing"],
)
def test_no_loop(launches: list[Launch]) -> None:
    trace = read(launches) if launches else read([Launch("aten::mm", GEMM)])
    assert trace.steps_from == WHOLE


def test_prompts_of_many_answers_are_between_the_tokens() -> None:
    trace = read([*answer(32, 12), *answer(48, 12)])
    assert (trace.steps_from, len(trace.steps)) == (TOKENS, 24)
    assert uncounted(trace) == {
        "launched before the first step": len(forward(1, 1)),
        "launched between steps": len(forward(1, 1)),
    }


def requests(tokens: Sequence[int], prompts: Sequence[int] = (64,), *, with_ops: bool = True) -> list[Launch]:
    """One request after the other, of so many tokens each, after prompts of these lengths in turn."""
    made: list[Launch] = []
    for index, count in enumerate(tokens):
        made += answer(prompts[index % len(prompts)], count)
    return made if with_ops else [Launch(None, each.kernel, each.us, each.grid) for each in made]


@pytest.mark.parametrize("tokens", [[6] * 2, [6] * 10, [2] * 4, [4, 5, 6, 7] * 3, [1, 3, 12, 2]], ids=str)
@pytest.mark.parametrize("prompts", [(64,), (64, 96, 32)], ids=str)
@pytest.mark.parametrize("with_ops", [True, False])
def test_the_step_of_a_server_is_the_token(tokens: list[int], prompts: tuple[int, ...], with_ops: bool) -> None:
    """Also if more than a tenth of the passes are prompts, whose kernels are others."""
    length = len(forward(1, 1))
    trace = read(requests(tokens, prompts, with_ops=with_ops))
    assert (trace.steps_from, len(trace.steps)) == (TOKENS, sum(tokens))
    assert {len(step.kernels) for step in trace.steps} == {length}
    between = length * (len(tokens) - 1)
    assert uncounted(trace) == {"launched before the first step": length, "launched between steps": between}


def deeper(launches: Sequence[Launch], times: int) -> list[Launch]:
    """The same pass through so many times the layers, with twice the work."""
    passed = [launches[0], *[*launches[1:-2]] * times, *launches[-2:]]
    return [Launch(each.op, each.kernel, 2 * each.us, each.grid, each.dims) for each in passed]


@pytest.mark.parametrize(
    "launches",
    [
        requests([1] * 12),
        [each for _ in range(8) for each in (*forward(1, 9) * 4, *deeper(forward(5, 13), 2))],
        [each for _ in range(8) for each in (*forward(1, 9) * 4, *forward(5, 13, us=3.5))],
    ],
    ids=["a token each", "a larger model checks four tokens", "the same model checks four tokens"],
)
def test_passes_that_are_no_prompts_between_tokens(launches: list[Launch]) -> None:
    assert read(launches).steps_from != TOKENS


def replays(count: int, pieces: int) -> list[Event]:
    """Tokens of so many graphs each, between an eager embedding and a pick."""
    made: list[Any] = []
    for index in range(count):
        start, first = 1000.0 * index, 100 * index + 1
        made += events([Launch("aten::embedding", "indexSelect", dims=[[9, 9], [1, 1]])], start=start, first=first)
        for piece in range(pieces):
            at, number = start + 100.0 + 100 * piece, first + 10 + piece
            made.append(launch(number, at, name="cudaGraphLaunch"))
            made += [kernel(f"{GEMV} {piece}", number, at + 10.0 + 9 * each, 8.0) for each in range(9)]
        made += events([Launch("aten::argmax", "ArgMaxOps")], start=start + 900.0, first=first + 50)
    return made


def graph_requests(count: int, tokens: int, *, sampling: int = 0) -> list[Event]:
    """Requests of a prompt of 18 launches in 200 us without a graph, then of tokens of one replay each, every 200 us.

    After each replay, so many operators sample.
    """
    made: list[Event] = []
    for request in range(count):
        start, first = (200.0 + 200.0 * tokens) * request, 1000 * request + 1
        made += events(forward(32, 32, us=9.0), start=start, first=first)
        for index in range(tokens):
            at, number = start + 200.0 * (index + 1), first + 20 * (index + 2)
            made.append(launch(number, at, name="cudaGraphLaunch"))
            passed = [each.kernel for each in forward(1, 1)]
            made += [kernel(name, number, at + 10.0 + 8 * place, 8.0) for place, name in enumerate(passed)]
            made += events([Launch("aten::add", "add_kernel")] * sampling, start=at + 155.0, first=number + 1)
    return made


@pytest.mark.parametrize("sampling", [0, 3])
def test_replays_end_before_the_next_prompt(sampling: int) -> None:
    trace = read_trace(trace_bytes(*graph_requests(5, 6, sampling=sampling)))
    assert (trace.steps_from, len(trace.steps)) == (GRAPH_REPLAYS, 30)
    assert lengths(trace)[:-1] == [200.0] * 29
    assert {len(step.kernels) for step in trace.steps} == {18 + sampling}
    assert uncounted(trace) == {"launched before the first step": 18, "launched between steps": 4 * 18}


def test_few_more_launches_after_a_replay_are_of_its_step() -> None:
    """Three operators after every second replay, as where a value is logged."""
    made: list[Event] = []
    for index in range(8):
        at, number = 200.0 * index, 20 * index + 1
        made += [launch(number, at, name="cudaGraphLaunch"), kernel("k", number, at + 10.0, 100.0)]
        made += events([Launch("aten::add", "add_kernel")] * (3 * (index % 2)), start=at + 115.0, first=number + 1)
    trace = read_trace(trace_bytes(*made))
    assert (trace.steps_from, uncounted(trace)) == (GRAPH_REPLAYS, {})
    assert [len(step.kernels) for step in trace.steps] == [1, 4] * 4


def test_an_optimizer_after_some_replays_is_of_their_steps() -> None:
    """Gradients of four replays are accumulated; the optimizer runs 40 kernels without a graph."""
    made: list[Event] = []
    for index in range(8):
        at, number = 1000.0 * index, 100 * index + 1
        made += [launch(number, at, name="cudaGraphLaunch"), kernel("k", number, at + 10.0, 500.0)]
        made += events([Launch("aten::mul_", "mul")] * (40 * (index % 4 == 3)), start=at + 510.0, first=number + 1)
    trace = read_trace(trace_bytes(*made))
    assert (trace.steps_from, uncounted(trace)) == (GRAPH_REPLAYS, {})
    assert [len(step.kernels) for step in trace.steps] == [1, 1, 1, 41] * 2


def test_graphs_of_a_token() -> None:
    several = read_trace(trace_bytes(*replays(5, 3)))
    assert (several.steps_from, lengths(several)) == (TOKENS, [1000.0] * 4 + [908.0])
    assert read_trace(trace_bytes(*replays(5, 1))).steps_from == GRAPH_REPLAYS


def test_a_loop_of_operators_on_the_cpu() -> None:
    made = [each for each in events(answer(16, 5)) if each["cat"] == "cpu_op"]
    trace = read_trace(trace_bytes(*made))
    assert (trace.steps_from, len(trace.steps)) == (TOKENS, 5)
