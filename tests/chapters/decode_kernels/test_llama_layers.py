"""The decode kernels as layers of Transformers' models: tokens of `generate` with them and without.

On the CPU, one process with TRITON_INTERPRET=1 loads the package from its folder by `kernels`, and leaves what models
generated. On a GPU the kernels run as they are.
"""

from __future__ import annotations

import copy
import shutil
import sys
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pytest
import torch

from snippets.decode_kernels.kernelize import PACKAGE, kernelized
from snippets.decode_kernels.sizes import Tile, Tiles
from tests.chapters.decode_kernels.llama_models import LAYERS, LLAMA_3, Case, generate, tiny

VARIANT = PACKAGE / "build/torch-cuda"
SMALL = Tiles(*[Tile(8, 1, 2, 2)] * 5, block_keys=4, splits=2)
"""The interpreter takes its time for each program."""
CASES = [
    Case("Llama", 1),
    Case("Llama", 3),
    Case("Llama", 1, "static"),
    Case("Llama", 3, "static"),
    Case("Llama", 3, padded=True),
    Case("Llama", 3, "static", padded=True),
    Case("Llama", 2, changes={"head_dim": 32, "num_key_value_heads": 1, "intermediate_size": 40, **LLAMA_3}),
    Case("Phi3", 1, "static"),
    Case("Phi3", 3),
    Case("Mistral", 1, changes={"sliding_window": None}),
    *[Case("Llama", 1, "static", compiled=True)] * bool(shutil.which("g++")),
]

needs_transformers = pytest.mark.skipif(not find_spec("transformers"), reason="needs transformers")


def run_all(path: str) -> None:
    """In the process that interprets: what each case generates with the kernels, and what without."""
    torch.save({str(case): generated(case) for case in CASES}, path)


def generated(case: Case) -> dict[str, Any]:
    plain = tiny(case.model, **case.changes)
    ours = on_cpu(plain)
    (operators,) = {module for name, module in sys.modules.items() if name.endswith("cuda_0000001.operators")}
    operators.tiles_for = lambda *_: SMALL
    products: list[torch.Size] = []
    options = operators.options
    operators.options = lambda x, *given: products.append(x.shape) or options(x, *given)
    addresses = [one.data_ptr() for one in ours.parameters()]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        tokens, logits = generate(ours, case)
    operators.options = options
    expected_tokens, expected = generate(plain, Case(**{**vars(case), "compiled": False}))
    return {
        "tokens": tokens,
        "expected_tokens": expected_tokens,
        "logits": logits,
        "expected": expected,
        "products": len(products),
        "said": [str(one.message) for one in caught if "decode kernels" in str(one.message)],
        "same_places": addresses == [one.data_ptr() for one in ours.parameters()],
        "names": list(ours.state_dict()) == list(plain.state_dict()),
        "same_values": all(map(torch.equal, ours.state_dict().values(), plain.state_dict().values())),
    }


def on_cpu(plain: Any) -> Any:
    """A copy of a model, `kernelize`d from the folder of a CUDA build. Its class of layers is a subclass, which
    `kernelize` may change."""
    from kernels import LocalLayerRepository, Mode, kernelize, use_kernel_mapping

    ours = copy.deepcopy(plain)
    kind = type(ours.model.layers[0])
    changed = type(kind.__name__, (kind,), {"kernel_layer_name": "DecodeLayer", "__module__": kind.__module__})
    for layer in ours.model.layers:
        layer.__class__ = changed
    package = LocalLayerRepository(VARIANT, layer_name="DecodeLayer")
    as_they_are: dict[str, Any] = {"RMSNorm": {}, "rotary_pos_emb": {}}
    with use_kernel_mapping({"DecodeLayer": {"cpu": package}, **as_they_are}, inherit_mapping=False):
        return kernelize(ours, mode=Mode.INFERENCE, device="cpu")


@pytest.fixture(scope="module")
def found(interpreted: Callable[[str], Any]) -> Any:
    return interpreted("tests.chapters.decode_kernels.test_llama_layers")


@needs_transformers
@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=str)
def test_tokens_are_those_without_the_kernels(found: Any, case: Case) -> None:
    """No layer falls back after the prompt, and weights stay what and where they are."""
    one = found[str(case)]
    assert torch.equal(one["tokens"], one["expected_tokens"])
    torch.testing.assert_close(one["logits"], one["expected"], rtol=1e-5, atol=1e-4)
    assert one["products"] == 4 * LAYERS * (case.answer - 1)
    assert one["said"] == []
    assert one["same_places"]
    assert one["names"]
    assert one["same_values"]


# ---- on the GPU


@pytest.mark.gpu
@needs_transformers
@pytest.mark.parametrize(("batch", "padded"), [(1, False), (3, False), (3, True)])
@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("model", ["Llama", "Phi3"])
def test_on_the_gpu_tokens_are_those_without_the_kernels(model: str, cache: str, batch: int, padded: bool) -> None:
    """64 tokens in bfloat16; with a static cache, `generate` compiles the model and records CUDA graphs.

    Logits are at most twice as far from float32 as those without the kernels. Where tokens part, both were as likely
    within that error.
    """
    changes = {"hidden_size": 512, "intermediate_size": 1408, "num_attention_heads": 8, "initializer_range": 0.05}
    case = Case(model, batch, cache, padded, changes, answer=64)
    exact = tiny(model, **changes).cuda()
    plain = copy.deepcopy(exact).to(torch.bfloat16)
    ours = kernelized(copy.deepcopy(plain))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.filterwarnings("error", message="a decoder layer runs without the decode kernels")
        torch.compiler.reset()
        tokens, logits = generate(ours, case, "cuda")
        torch.compiler.reset()
        expected_tokens, expected = generate(plain, case, "cuda")
        exact_tokens, exact_logits = generate(exact, Case(**{**vars(case), "cache": "dynamic"}), "cuda")
    for row in range(batch):
        new, plain_new = tokens[row, 6:], expected_tokens[row, 6:]
        same = parted(new, plain_new)
        exact_same = min(same, parted(plain_new, exact_tokens[row, 6:]))
        upto = min(exact_same + 1, len(new))
        error_of_plain = (expected[row, :upto].float() - exact_logits[row, :upto]).abs().max()
        assert (logits[row, :upto].float() - exact_logits[row, :upto]).abs().max() <= 2 * error_of_plain
        if same < len(new):
            likely = expected[row, same].float()
            assert likely[plain_new[same]] - likely[new[same]] <= 4 * error_of_plain


def parted(first: torch.Tensor, second: torch.Tensor) -> int:
    """The number of equal tokens at the beginning."""
    differs = (first != second).nonzero()
    return int(differs[0]) if len(differs) else len(first)


@pytest.mark.gpu
@needs_transformers
def test_on_the_gpu_the_kernels_do_the_work() -> None:
    """Their names are in a profile of a token, five for each layer."""
    changes = {"hidden_size": 512, "num_attention_heads": 8}
    ours = kernelized(tiny("Llama", **changes).to("cuda", torch.bfloat16))
    from transformers import DynamicCache

    ids, cache = torch.arange(3, 9, device="cuda")[None], DynamicCache(config=ours.config)
    with torch.no_grad():
        ours(ids, past_key_values=cache)
        ours(ids[:, -1:], past_key_values=cache)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA], acc_events=True) as profile:
            ours(ids[:, -1:], past_key_values=cache)
            torch.cuda.synchronize()
    names = [event.name for event in profile.events()]
    kernels = ("decode_project_kernel", "decode_attend_kernel", "decode_gate_up_kernel", "decode_residual_kernel")
    assert [names.count(name) for name in kernels] == [LAYERS, LAYERS, LAYERS, 2 * LAYERS], names
