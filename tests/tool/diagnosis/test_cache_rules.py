"""Rules about the cache of keys and values, in loops that produce one token per step."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kinetoscope.diagnosis.rules.cache_maximum import RULE as CACHE_MAXIMUM
from kinetoscope.diagnosis.rules.growing_cache import RULE as GROWING_CACHE
from kinetoscope.diagnosis.rules.needless_copies import RULE as NEEDLESS_COPIES
from kinetoscope.diagnosis.rules.repeated_heads import RULE as REPEATED_HEADS
from tests.tool.diagnosis.gpu_work import BF16, COPY, Work, facts, finding, option, result
from tests.tool.diagnosis.token_steps import (
    EMBED,
    LONG,
    PROMPT,
    WRITE,
    appended,
    attention,
    heads_trace,
    reason,
    repeated,
    token,
    without_shapes,
)
from tests.tool.diagnosis.traces import found, nothing

# growing-cache


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
