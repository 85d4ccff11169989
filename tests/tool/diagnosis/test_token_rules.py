"""Rules about loops that produce one token per step."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kinetoscope.diagnosis.facts import Facts
from kinetoscope.diagnosis.rule import CannotTell, Rule
from kinetoscope.diagnosis.rules.cache_maximum import RULE as CACHE_MAXIMUM
from kinetoscope.diagnosis.rules.growing_cache import RULE as GROWING_CACHE
from kinetoscope.diagnosis.rules.host_reads import RULE as HOST_READS
from kinetoscope.diagnosis.rules.launch_bound import RULE as LAUNCH_BOUND
from kinetoscope.diagnosis.rules.memory_rate import RULE as MEMORY_RATE
from kinetoscope.diagnosis.rules.needless_copies import RULE as NEEDLESS_COPIES
from kinetoscope.diagnosis.rules.prompt_logits import RULE as PROMPT_LOGITS
from kinetoscope.diagnosis.rules.repeated_heads import RULE as REPEATED_HEADS
from kinetoscope.diagnosis.rules.sync_in_step import RULE as SYNC_IN_STEP
from kinetoscope.diagnosis.token_work import cache_bytes
from kinetoscope.trace.events import Trace
from tests.tool.diagnosis.gpu_work import BF16, COPY, GEMM, MUL, Shape, Work, facts, finding, option, result
from tests.tool.diagnosis.traces import DOWNLOAD, copied, found, nothing, written
from tests.tool.events import Event, kernel, launch, op, step

GEMV, SPLIT = "gemvx::kernel<int, __nv_bfloat16>", "pytorch_flash::flash_fwd_splitkv_kernel<x>"
CAT, WRITE = "CatArrayBatchedCopy", "index_elementwise_kernel"
LONG = "long int"
WIDE = ((1, 4096), (4096, 4096))
EMBED = Work("indexSelectSmallIndex", 2.0, "aten::embedding", ((32000, 4096), (1, 1)), (BF16, LONG))
PICK = Work("reduce_kernel<ArgMaxOps<float>>", 2.0, "aten::argmax", ((1, 32000),), (BF16,))


def product(us: float, rows: int = 1, columns: int = 4096, name: str = GEMV) -> Work:
    return Work(name, us, "aten::mm", ((rows, 4096), (4096, columns)), (BF16, BF16))


def attention(us: float, positions: int, *, heads: int = 8, mask: bool = False) -> Work:
    read: Shape = (1, heads, positions, 64)
    masks: list[Shape] = [(1, 1, 1, positions)] if mask else []
    dims = ((1, 32, 1, 64), read, read, *masks)
    return Work(SPLIT, us, "aten::scaled_dot_product_attention", dims, (BF16, BF16, BF16, *["bool"] * mask))


def head(rows: int, us: float) -> Work:
    return product(us, rows, 32000, GEMM)


def without_shapes(*work: Work) -> list[Work]:
    return [replace(each, dims=None, types=None) for each in work]


def token(*work: Work) -> list[Work]:
    return [EMBED, product(10.0), *work, PICK]


def reason(rule: Rule, of: Facts) -> str:
    unknown = result(rule, of)
    assert isinstance(unknown, CannotTell)
    return unknown.reason


# growing-cache


def appended(us: float, *dims: Shape) -> Work:
    return Work(CAT, us, "aten::cat", dims, ("TensorList",) * len(dims))


def test_a_cache_that_grows() -> None:
    cats = [appended(30.0, (1, 8, 512, 64), (1, 8, 1, 64)), appended(20.0, (1, 8, 512, 64), (1, 8, 1, 64))]
    found_ = finding(GROWING_CACHE, facts(*token(*cats, attention(5.0, 513)), steps=2))
    assert found_.title == (
        "2 tensors of the cache copied per token to append one position: 50.0 µs, the largest [1, 8, 512, 64]"
    )
    assert (found_.evidence_us_per_step, found_.saving_us_per_step) == (50.0, 50.0)


@pytest.mark.parametrize(
    "work",
    [
        token(appended(30.0, (1, 8, 1, 32), (1, 8, 1, 32)), attention(5.0, 513)),
        token(appended(30.0, (1, 512), (1, 1)), attention(5.0, 513)),
        token(appended(30.0, (1, 8, 512, 64), (1, 8, 2, 64)), attention(5.0, 513)),
        token(appended(0.5, (1, 8, 512, 64), (1, 8, 1, 64)), attention(5.0, 513)),
        token(appended(30.0, (1, 8, 512, 64), (1, 8, 1, 64)), attention(5.0, 513))[:-1],
    ],
    ids=["halves of rotary embeddings", "token ids", "two positions", "below 1 %", "no token is picked"],
)
def test_no_growing_cache(work: list[Work]) -> None:
    assert result(GROWING_CACHE, facts(*work)) == []


def test_a_growing_cache_needs_shapes() -> None:
    bare = without_shapes(*token(appended(30.0, (1, 8, 512, 64), (1, 8, 1, 64)), attention(5.0, 513)))
    assert option(GROWING_CACHE, facts(*bare)) == "record_shapes=True"


# repeated-heads

REPEATED: Shape = (1, 8, 4, 512, 64)


def repeated(us: float, *, stride: int = 0) -> list[Event]:
    """A copy of keys or values for four times the heads: its source has this stride where heads repeat."""
    strides = [[4 * 8 * 512 * 64, 4 * 512 * 64, 512 * 64, 64, 1], [8 * 512 * 64, 512 * 64, stride, 64, 1]]
    dims = [list(REPEATED), list(REPEATED)]
    return [
        op("aten::clone", 30.0, 20.0),
        op("aten::copy_", 32.0, 16.0, dims=dims, strides=strides, types=[BF16, BF16]),
        launch(3, 35.0),
        kernel(COPY, 3, 300.0, us),
    ]


def heads_trace(*copies: Event, picks: bool = True) -> Trace:
    """A step with an embedding, a copy, attention of 40 us over the copy, and a pick."""
    shapes = [[1, 32, 1, 64], [1, 32, 512, 64], [1, 32, 512, 64]]
    return written(
        step(1, 0.0, 1000.0),
        *copies,
        op("aten::embedding", 10.0, 10.0, dims=[[32000, 64], [1, 1]]),
        launch(1, 12.0),
        kernel("indexSelect", 1, 290.0, 2.0),
        op("aten::scaled_dot_product_attention", 60.0, 20.0, dims=shapes, types=[BF16] * 3),
        launch(4, 65.0),
        kernel(SPLIT, 4, 500.0, 40.0),
        *([op("aten::argmax", 90.0, 10.0), launch(5, 92.0), kernel("ArgMaxOps", 5, 600.0, 2.0)] if picks else []),
    )


def test_heads_are_repeated() -> None:
    found_ = found(REPEATED_HEADS, heads_trace(*repeated(120.0)))
    assert found_.title == (
        "1 copy of keys or values for all query heads: 120 µs per step, and attention reads the copies: 160 µs together"
    )
    assert found_.saving_us_per_step == 120.0 + 40.0 * 3 / 4
    assert found_.where == "aten::clone"


def test_heads_are_repeated_outside_a_token() -> None:
    found_ = found(REPEATED_HEADS, heads_trace(*repeated(120.0), picks=False))
    assert found_.title == "1 copy of keys or values for all query heads: 120 µs per step"
    assert found_.saving_us_per_step == 120.0


def test_other_copies_belong_to_another_rule() -> None:
    for stride, other, own in ((0, True, False), (512 * 64, False, True)):
        trace = heads_trace(*repeated(120.0, stride=stride))
        assert nothing(NEEDLESS_COPIES, trace) is other
        assert nothing(REPEATED_HEADS, trace) is own


def test_repeat_interleave() -> None:
    repeat = Work(COPY, 50.0, "aten::repeat_interleave", ((1, 8, 512, 64),), (BF16,))
    assert finding(REPEATED_HEADS, facts(*token(repeat, attention(5.0, 512)))).saving_us_per_step == 50.0
    assert result(REPEATED_HEADS, facts(*token(repeat))) == []


# cache-maximum

PROMPT = replace(EMBED, dims=((32000, 4096), (1, 100)))
WRITTEN = Work(WRITE, 1.0, "aten::index_copy_", ((1, 8, 2048, 64), (1,), (1, 8, 1, 64)), (BF16, LONG, BF16))


def test_attention_reads_an_empty_cache() -> None:
    """After a prompt of 100, the tokens of three steps fill at most 101, 102 and 103 positions of 2,048."""
    of = facts(*token(WRITTEN, attention(40.0, 2048, mask=True)), steps=3, before=[PROMPT])
    found_ = finding(CACHE_MAXIMUM, of)
    assert found_.title == (
        "Attention reads 2,048 positions of the cache for every token, of which at most 102 are filled: "
        "40.0 µs per token"
    )
    assert found_.saving_us_per_step == pytest.approx(40.0 * (1 - 102 / 2048), abs=0.001)


@pytest.mark.parametrize(
    ("work", "prompt"),
    [
        (token(WRITTEN, attention(40.0, 2048, mask=True)), 1023),
        (token(WRITTEN, attention(40.0, 2048)), 100),
        (token(attention(40.0, 2048, mask=True)), 100),
        (token(WRITTEN, attention(40.0, 1500, mask=True)), 100),
        (token(WRITTEN, attention(0.5, 2048, mask=True)), 100),
    ],
    ids=["half full", "no mask", "nothing is written", "attention to something else", "below 1 %"],
)
def test_no_empty_cache(work: list[Work], prompt: int) -> None:
    long = replace(EMBED, dims=((32000, 4096), (1, prompt)))
    assert result(CACHE_MAXIMUM, facts(*work, before=[long])) == []


def test_an_empty_cache_needs_prompt_and_shapes() -> None:
    work = token(WRITTEN, attention(40.0, 2048, mask=True))
    text = "the trace begins after the prompt, so how far the cache is filled is unknown"
    assert reason(CACHE_MAXIMUM, facts(*work)) == text
    assert option(CACHE_MAXIMUM, facts(*without_shapes(*work), before=[PROMPT])) == "record_shapes=True"


# memory-rate

WEIGHTS = 2 * (4096 + 4096 * 4096 + 4096)
CACHE = 2 * 2 * 8 * 512 * 64


def test_far_from_the_rate_of_memory() -> None:
    found_ = finding(MEMORY_RATE, facts(*token(product(20.0), attention(30.0, 512), Work(MUL, 10.0, "aten::mul"))))
    least_us = (2 * WEIGHTS + CACHE) / 4.8e6
    assert found_.title == (
        "68.2 MB of weights and cache take 14.2 µs at 4.80 TB/s; the GPU works 74.0 µs per token (19 % of that rate)"
    )
    assert found_.evidence_us_per_step == 74.0
    assert found_.saving_us_per_step == pytest.approx(74.0 - least_us, abs=0.001)


@pytest.mark.parametrize(
    ("work", "step_us"),
    [
        ([EMBED, product(8.4), product(8.4), PICK], 25.0),
        (token(product(20.0), attention(30.0, 512)), 257.0),
        ([EMBED, product(90.0, rows=4096, name=GEMM), product(2.0, columns=64), PICK], 100.0),
        (token(product(20.0), attention(30.0, 512))[:-1], 100.0),
    ],
    ids=["near the rate", "launches come first", "bound by operations", "no token is picked"],
)
def test_not_far_from_the_rate(work: list[Work], step_us: float) -> None:
    assert result(MEMORY_RATE, facts(*work, step_us=step_us)) == []


def test_repeated_heads_count_once() -> None:
    trace = heads_trace(*repeated(120.0))
    assert cache_bytes(trace.steps[0]) == 2 * 2 * 8 * 512 * 64
    assert cache_bytes(heads_trace(*repeated(120.0, stride=512 * 64)).steps[0]) == 4 * 2 * 2 * 8 * 512 * 64


def replay(*work: Work) -> list[Work]:
    """The work of a token as one graph launches it, without operators."""
    return [replace(each, op=None, dims=None, types=None, call="cudaGraphLaunch") for each in work]


def test_weights_of_the_prompt() -> None:
    """A replay has no operators; the products of the prompt before it read the same weights."""
    prompt = [PROMPT, product(30.0, 100), head(1, 20.0)]
    work = replay(*token(product(120.0), attention(30.0, 512)))
    found_ = finding(MEMORY_RATE, facts(*work, before=prompt))
    least_us = 2 * 4096 * (4096 + 32000) / 4.8e6
    assert found_.title.startswith("296 MB of weights, as the prompt's products read them, take 61.6 µs at 4.80 TB/s; ")
    assert found_.saving_us_per_step == pytest.approx(164.0 - least_us, abs=0.001)
    for before in ([], [PROMPT, *prompt], without_shapes(*prompt)):
        assert "names no operators" in reason(MEMORY_RATE, facts(*work, before=before))


def test_bytes_of_other_operators_are_unknown() -> None:
    scaled = replace(product(30.0), op="aten::_scaled_mm")
    text = "32 % of the time of products and attention is in operators whose bytes are not known here"
    assert reason(MEMORY_RATE, facts(*token(product(34.0), attention(20.0, 512), scaled))) == text


def test_the_rate_needs_shapes_operators_and_a_known_device() -> None:
    work = token(product(20.0), attention(30.0, 512))
    assert option(MEMORY_RATE, facts(*without_shapes(*work))) == "record_shapes=True"
    assert reason(MEMORY_RATE, facts(*work, device={"name": "X1"})) == "the peaks of X1 are not known here"


# prompt-logits


def test_logits_of_all_positions() -> None:
    converted = Work(MUL, 30.0, "aten::mul", ((1, 512, 32000),), (BF16,))
    of = facts(*token(head(1, 5.0)), steps=2, before=[PROMPT, product(100.0, 512), head(512, 70.0), converted])
    found_ = finding(PROMPT_LOGITS, of)
    assert found_.title == (
        "Logits of 512 positions before the first token, of which 1 is used: 100 µs in 2 kernels, 16.4 million values"
    )
    assert found_.evidence_us_per_step == 50.0
    assert found_.saving_us_per_step == pytest.approx(100.0 * 511 / 512 / 2, abs=0.001)


@pytest.mark.parametrize(
    "before",
    [[PROMPT, product(100.0, 512), head(1, 70.0)], [PROMPT, product(900.0, 512), head(512, 8.0)], []],
    ids=["one position", "below 1 % of the prompt", "no prompt"],
)
def test_no_needless_logits(before: list[Work]) -> None:
    assert result(PROMPT_LOGITS, facts(*token(head(1, 5.0)), before=before)) == []


# host-reads and launch-bound


def reading(*, picks: bool) -> Trace:
    """Three steps of 1,000 us: a kernel of 100 us, then the pick, which `.item()` reads: it waits for 200 us."""
    events: list[Event] = []
    for number in range(3):
        at, first = 1000.0 * number, 10 * number + 1
        events += [
            step(number, at, 1000.0),
            op("aten::embedding", at + 10.0, 20.0, dims=[[9, 9], [1, 1]]),
            launch(first, at + 15.0),
            kernel("indexSelect", first, at + 20.0, 100.0),
            op("aten::argmax" if picks else "aten::max", at + 40.0, 20.0),
            launch(first + 1, at + 45.0),
            kernel("reduce_kernel", first + 1, at + 120.0, 150.0),
            op("aten::item", at + 70.0, 212.0),
            op("aten::_local_scalar_dense", at + 71.0, 210.0),
            launch(first + 2, at + 72.0, name="cudaMemcpyAsync"),
            copied(DOWNLOAD, first + 2, at + 270.0, 2.0, 8),
            launch(None, at + 78.0, 200.0, name="cudaStreamSynchronize"),
        ]
    return written(*events)


def test_the_host_reads_every_token() -> None:
    trace = reading(picks=True)
    found_ = found(HOST_READS, trace)
    assert found_.title == "The host reads 1 value per token and waits 200 µs"
    assert found_.where == "aten::item"
    assert nothing(SYNC_IN_STEP, trace)
    same = found(SYNC_IN_STEP, reading(picks=False))
    assert (found_.saving_us_per_step, found_.evidence_us_per_step) == (same.saving_us_per_step, 200.0)
    assert nothing(HOST_READS, reading(picks=False))


def test_launches_of_a_token() -> None:
    work = [replace(each, us=1.0) for each in token(*[product(1.0)] * 20)]
    found_ = finding(LAUNCH_BOUND, facts(*[replace(each, gap_us=19.0) for each in work], step_us=500.0))
    assert found_.title.endswith("; a token needs 23 launches")
    assert "one CUDA graph" in found_.advice


@pytest.mark.parametrize("rule", [GROWING_CACHE, CACHE_MAXIMUM, MEMORY_RATE, PROMPT_LOGITS, HOST_READS, REPEATED_HEADS])
def test_other_steps_are_no_question(rule: Rule) -> None:
    assert result(rule, facts(*without_shapes(product(50.0), appended(30.0), attention(40.0, 512)))) == []
