"""Small models of Transformers, with and without the decode kernels."""

from __future__ import annotations

import copy
import warnings
from dataclasses import dataclass, field
from types import MethodType, ModuleType
from typing import Any

import torch
from torch import nn

LAYERS = 2
SIZES = {
    "hidden_size": 64,
    "intermediate_size": 72,
    "num_hidden_layers": LAYERS,
    "vocab_size": 97,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "initializer_range": 0.3,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": None,
}
ROPE = {"rope_type": "llama3", "rope_theta": 10_000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LLAMA_3 = {"rope_parameters": {**ROPE, "original_max_position_embeddings": 16}}


@dataclass(frozen=True)
class Case:
    """A model, what it reads, and what keeps its keys and values."""

    model: str
    batch: int
    cache: str = "dynamic"
    padded: bool = False
    changes: dict[str, Any] = field(default_factory=dict)
    answer: int = 4
    compiled: bool = False

    def __str__(self) -> str:
        words = [self.model, str(self.batch), self.cache, *self.changes]
        return " ".join([*words, *["padded"] * self.padded, *["compiled"] * self.compiled])


def tiny(prefix: str, **changes: Any) -> Any:
    """`Llama` -> a LlamaForCausalLM in float32, the same in each process."""
    import transformers

    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        config = getattr(transformers, f"{prefix}Config")(**(SIZES | changes))
        return getattr(transformers, f"{prefix}ForCausalLM")(config).eval()


def prompt(case: Case) -> dict[str, torch.Tensor]:
    """Ids and their mask; if there is padding, the first sequence starts with five tokens of it."""
    draw = torch.Generator().manual_seed(case.batch)
    ids = torch.randint(3, SIZES["vocab_size"], (case.batch, 6), generator=draw)  # type: ignore[call-overload]
    mask = torch.ones_like(ids)
    if case.padded:
        ids[0, :5] = mask[0, :5] = 0
    return {"input_ids": ids, "attention_mask": mask}


def with_layer(plain: Any, layers: ModuleType) -> Any:
    """A copy of a model whose decoder layers have the package's forward."""
    ours = copy.deepcopy(plain)
    for layer in ours.model.layers:
        layer.forward = MethodType(layers.DecodeLayer.forward, layer)
    return ours


def generate(model: nn.Module, case: Case, device: str = "cpu") -> tuple[torch.Tensor, torch.Tensor]:
    """Sequences (batch, tokens), and logits (batch, answer, words)."""
    options: dict[str, Any] = {}
    if case.cache == "static":
        options["cache_implementation"] = "static"
    if case.compiled:
        from transformers import CompileConfig

        options["compile_config"] = CompileConfig(mode="default")
        options["compile_config"]._compile_all_devices = True
    generated: Any = model.generate(  # type: ignore[operator]
        **{name: tensor.to(device) for name, tensor in prompt(case).items()},
        max_new_tokens=case.answer,
        do_sample=False,
        output_logits=True,
        return_dict_in_generate=True,
        **options,
    )
    return generated.sequences, torch.stack(generated.logits, 1)
