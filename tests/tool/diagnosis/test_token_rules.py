"""Rules about loops that produce one token per step: the memory's rate, the prompt, the host."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kinetoscope.diagnosis.rule import Rule
from kinetoscope.diagnosis.rules.cache_maximum import RULE as CACHE_MAXIMUM
from kinetoscope.diagnosis.rules.growing_cache import RULE as GROWING_CACHE
from kinetoscope.diagnosis.rules.host_reads import RULE as HOST_READS
from kinetoscope.diagnosis.rules.launch_bound import RULE as LAUNCH_BOUND
from kinetoscope.diagnosis.rules.memory_rate import RULE as MEMORY_RATE
from kinetoscope.diagnosis.rules.prompt_logits import RULE as PROMPT_LOGITS
from kinetoscope.diagnosis.rules.repeated_heads import RULE as REPEATED_HEADS
from kinetoscope.diagnosis.rules.sync_in_step import RULE as SYNC_IN_STEP
from kinetoscope.diagnosis.token_work import cache_bytes
from kinetoscope.report.headline import headline
from kinetoscope.trace.events import Trace
from tests.tool.diagnosis.gpu_work import BF16, GEMM, MUL, Work, facts, finding, option, result
from tests.tool.diagnosis.token_steps import (
    EMBED,
    PICK,
    PROMPT,
    appended,
    attention,
    head,
    heads_trace,
    product,
    reason,
    repeated,
    token,
    without_shapes,
)
from tests.tool.diagnosis.traces import DOWNLOAD, copied, found, nothing, written
from tests.tool.events import Event, kernel, launch, op, step
from tests.tool.report.samples import diagnosed

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
    return written(*read_events(picks=picks))


def read_events(*, picks: bool) -> list[Event]:
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
    return events


def test_the_host_reads_every_token() -> None:
    trace = reading(picks=True)
    found_ = found(HOST_READS, trace)
    assert found_.title == "The host reads 1 value per token and waits 200 µs"
    assert found_.where == "aten::item"
    assert nothing(SYNC_IN_STEP, trace)
    same = found(SYNC_IN_STEP, reading(picks=False))
    assert (found_.saving_us_per_step, found_.evidence_us_per_step) == (same.saving_us_per_step, 200.0)
    assert nothing(HOST_READS, reading(picks=False))


def test_a_prompt_in_the_first_step_is_no_fault() -> None:
    """Three tokens after a prompt of 4 ms: the means are of the tokens."""
    prompt = [
        step(9, 0.0, 5000.0),
        op("aten::embedding", 10.0, 20.0, dims=[[9, 9], [1, 99]]),
        launch(91, 15.0),
        kernel("indexSelect", 91, 20.0, 3000.0, grid=[99, 1, 1]),
        op("aten::argmax", 40.0, 20.0),
        launch(92, 45.0),
        kernel("reduce_kernel", 92, 3020.0, 1000.0, grid=[99, 1, 1]),
    ]
    tokens = [{**each, "ts": each["ts"] + 5000.0} for each in read_events(picks=True)]
    made = diagnosed(written(*prompt, *tokens), HOST_READS)
    assert (made.facts.warm_up, made.facts.prompt) == (None, made.trace.steps[0])
    assert (len(made.facts.token_steps), made.before_first_us) == (3, 4000.0)
    assert headline(made).startswith("A token takes 1.00 ms and the GPU works 25 % of it. The host reads values")


def test_launches_of_a_token() -> None:
    work = [replace(each, us=1.0) for each in token(*[product(1.0)] * 20)]
    found_ = finding(LAUNCH_BOUND, facts(*[replace(each, gap_us=19.0) for each in work], step_us=500.0))
    assert found_.title.endswith("; a token needs 23 launches")
    assert "one CUDA graph" in found_.advice


@pytest.mark.parametrize("rule", [GROWING_CACHE, CACHE_MAXIMUM, MEMORY_RATE, PROMPT_LOGITS, HOST_READS, REPEATED_HEADS])
def test_other_steps_are_no_question(rule: Rule) -> None:
    assert result(rule, facts(*without_shapes(product(50.0), appended(30.0), attention(40.0, 512)))) == []
