"""The decoder on the CPU, at a tiny size: the same tokens by every cache, joined, quantized and by transformers."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from snippets.decoder import caches, compiling, faults, loops, model, quantized
from snippets.decoder.experiments.attending import attention_of, in_pages
from snippets.decoder.experiments.hub_generate import as_transformers, generate
from snippets.decoder.experiments.own_kernels import with_fused_mlps
from snippets.decoder.experiments.token_loops import PROMPTS, exact_logits, prompt_of

PROMPT, ANSWER = 12, 6


@pytest.fixture(scope="module")
def decoder() -> model.Decoder:
    return model.build("tiny", "cpu", torch.float32, max_length=128)


@pytest.fixture(scope="module")
def answer(decoder: model.Decoder) -> list[int]:
    """The tokens behind the prompt, each from the logits of the whole text in float32."""
    text = prompt_of(decoder, 1, PROMPT)
    for _ in range(ANSWER + 1):
        text = torch.cat((text, exact_logits(decoder, text)[:, -1:].argmax(-1)), dim=1)
    return text[0, PROMPT:].tolist()


def tokens_of(running: Any, count: int = 2 * ANSWER + 1) -> list[int]:
    """The first answer's tokens: that of the prompt, then two answers."""
    return [int(token[0, 0]) for _, token in itertools.islice(running, count)]


def test_a_rotation_keeps_lengths_and_sees_distances_alone() -> None:
    config = model.CONFIGS["tiny"]
    table = model.rotary_table(config, 32, "cpu")
    q, k = torch.randn(2, 1, 1, 1, config.head_dim).unbind()

    def score(query: int, key: int) -> Tensor:
        rotated = model.rotate(q, table[:, [query]]), model.rotate(k, table[:, [key]])
        torch.testing.assert_close(rotated[0].norm(), q.norm())
        return (rotated[0] * rotated[1]).sum()

    torch.testing.assert_close(score(7, 3), score(24, 20))
    assert not torch.isclose(score(7, 3), score(7, 4))


@pytest.mark.parametrize("rung", [loops.eager, loops.static])
def test_a_rung_writes_the_answer_again_and_again(
    decoder: model.Decoder, answer: list[int], rung: Callable[..., Any]
) -> None:
    assert tokens_of(rung(decoder, prompt_of(decoder, 1, PROMPT), ANSWER)) == [*answer, *answer[1:]]


@pytest.mark.parametrize("name", ["cat_before", "cat_after", "repeat_kv_before"])
def test_a_fault_writes_the_same_answer(decoder: model.Decoder, answer: list[int], name: str) -> None:
    running = getattr(faults, name)(decoder, prompt_of(decoder, 1, PROMPT), ANSWER, batch=2)
    first = [token.tolist() for _, token in itertools.islice(running, ANSWER + 1)]
    assert first == [[[token], [token]] for token in answer]


@pytest.mark.parametrize("name", [f"{one}_{at}" for one in PROMPTS for at in ("before", "after")])
def test_a_fault_of_prompts_finds_the_first_token(decoder: model.Decoder, answer: list[int], name: str) -> None:
    running = getattr(faults, name)(decoder, prompt_of(decoder, 1, PROMPT), ANSWER, batch=1)
    assert tokens_of(running, 2) == answer[:1] * 2


def test_generate_and_joined_projections(decoder: model.Decoder, answer: list[int]) -> None:
    joined = compiling.join_projections(decoder)
    assert {name.split(".")[-2] for name, _ in joined.layers[0].named_parameters() if "proj" in name} == {
        "qkv_proj",
        "o_proj",
        "gate_up_proj",
        "down_proj",
    }
    ids = prompt_of(decoder, 1, PROMPT)
    for each in (decoder, joined):
        cache = model.static_cache(each, 1, PROMPT + ANSWER)
        assert model.generate(each, ids, cache, ANSWER + 1)[0].tolist() == answer


@pytest.mark.filterwarnings("ignore:this call runs as plain PyTorch.*they need an NVIDIA GPU:UserWarning")
def test_the_fused_mlp_of_the_book_computes_the_same(decoder: model.Decoder, answer: list[int]) -> None:
    fused = with_fused_mlps(decoder)
    assert tokens_of(loops.static(fused, prompt_of(decoder, 1, PROMPT), ANSWER), ANSWER + 1) == answer


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_compiled_layers_share_one_compilation(decoder: model.Decoder, answer: list[int]) -> None:
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    counters.clear()
    compiled = compiling.compile_layers(compiling.join_projections(decoder))

    def decode(_: Any, *where: Any) -> Any:
        return model.decode_one(compiled, *where)

    running = loops.static(decoder, prompt_of(decoder, 1, PROMPT), ANSWER, decode)
    assert tokens_of(running, ANSWER + 1) == answer
    assert (len(compiled.layers), counters["stats"]["unique_graphs"]) == (2, 1)
    torch._dynamo.reset()


def test_a_draw_follows_the_probabilities() -> None:
    logits = torch.log(torch.tensor([0.7, 0.2, 0.1])).expand(4000, 3)
    logit, token = faults.draw(logits)
    torch.testing.assert_close(logit, logits.gather(-1, token))
    shares = torch.bincount(token[:, 0]) / 4000
    torch.testing.assert_close(shares, torch.tensor([0.7, 0.2, 0.1]), atol=0.03, rtol=0)


def test_what_a_token_reads() -> None:
    config = model.CONFIGS["1.1b"]
    parameters = {size: sum(p.numel() for p in meta(size).parameters()) for size in ("1.1b", "8b")}
    assert {size: round(count / 1e9, 2) for size, count in parameters.items()} == {"1.1b": 1.10, "8b": 8.03}
    norms = (2 * config.layers + 1) * config.dim
    unread = config.dim * config.vocab + norms
    assert model.bytes_per_token(config, 1, 0) == 2 * (parameters["1.1b"] - unread)
    assert model.bytes_per_token(config, 8, 1000) - model.bytes_per_token(config, 0, 0) == 8 * 1000 * 22 * 1024
    assert model.flops_per_token(config, 10) - model.flops_per_token(config, 0) == 10 * 4 * 22 * 2048


def meta(size: str) -> model.Decoder:
    with torch.device("meta"):
        return model.Decoder(model.CONFIGS[size])


@pytest.mark.parametrize(("kind", "rounding"), [("int8", 0.02), ("fp8", 0.06)])
def test_a_quantized_product_is_that_of_its_codes(kind: str, rounding: float) -> None:
    weight, x = torch.randn(48, 128) / 128**0.5, torch.randn(3, 1, 128)
    linear = quantized.KINDS[kind](weight)
    meant = linear.dequantized()
    error = (linear(x) - x @ meant.t()).norm() / (x @ meant.t()).norm()
    assert error < (1e-4 if kind == "int8" else 0.04)  # fp8 rounds activations, too
    assert 1e-3 < (meant - weight).norm() / weight.norm() < rounding


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize(("shape", "is_replaced"), [((1, 64), False), ((1, 1, 64), True)])
def test_the_compiler_replaces_an_int8_product_of_three_dimensions(shape: tuple[int, ...], is_replaced: bool) -> None:
    from torch._inductor.utils import run_and_get_code

    linear = quantized.Int8Linear(torch.randn(64, 64, dtype=torch.bfloat16))
    torch._dynamo.reset()
    with torch.no_grad():
        _, code = run_and_get_code(torch.compile(linear, dynamic=False), torch.randn(shape, dtype=torch.bfloat16))
    assert ("_weight_int8pack_mm" in "".join(code)) is is_replaced


def test_a_decoder_of_dequantized_weights_has_all_of_them(decoder: model.Decoder) -> None:
    other = quantized.dequantize(quantized.quantize(decoder, "int8"))
    ours, theirs = decoder.state_dict(), other.state_dict()
    assert ours.keys() == theirs.keys()
    for name, weight in ours.items():
        torch.testing.assert_close(weight, theirs[name].float(), atol=0.01, rtol=0)


@pytest.mark.filterwarnings("ignore:.*flex_attention called without torch.compile:UserWarning")
def test_pages_in_any_order_hold_a_text() -> None:
    batch, own, page, length = 3, 2, 128, 150
    q, keys, values = (torch.randn(batch, heads, size, 16) for heads, size in ((4, 1), (2, 256), (2, 256)))
    table = torch.randperm(batch * own).view(batch, own)
    blocks = caches.page_blocks(table, batch * own, length, page)
    pools = (in_pages(x, table, page) for x in (keys, values))
    torch.testing.assert_close(
        caches.paged_attention(q, *pools, blocks), attention_of(q, keys, values, length), atol=1e-5, rtol=1e-4
    )


def test_transformers_writes_the_same_tokens(decoder: model.Decoder) -> None:
    """Logits and 64 tokens of `LlamaForCausalLM` with the same weights."""
    pytest.importorskip("transformers", reason="needs transformers: pip install transformers==5.17.0")
    theirs = as_transformers(decoder)
    ids = prompt_of(decoder, 1, PROMPT)
    torch.testing.assert_close(theirs(ids).logits, exact_logits(decoder, ids), atol=1e-5, rtol=1e-4)
    ours = model.generate(decoder, ids, model.static_cache(decoder, 1, PROMPT + 64), 64)
    assert torch.equal(generate(theirs, ids, 64, None)[:, PROMPT:], ours)
