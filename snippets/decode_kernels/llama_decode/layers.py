"""The layer whose forward `kernelize` gives to a model's decoder layers."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from .known import known
from .step import one_token, why_not
from .support import kept_by, say_once


class DecodeLayer(nn.Module):
    """A forward for the decoder layers of Transformers' Llama, Mistral and
    Phi-3: one new token of each of at most 16 sequences, in five kernels.

    Prompts take the module's own forward. So does a token that the kernels
    would get wrong, and a warning tells the reason, once. Parameters stay what
    and where they are. This class has no `__init__` and no further methods, as
    `kernels` requires.
    """

    self_attn: nn.Module
    mlp: nn.Module
    has_backward = False
    can_torch_compile = True

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: Any = None,
        position_ids: torch.Tensor | None = None,
        past_key_values: Any = None,
        use_cache: bool | None = False,
        position_embeddings: Any = None,
        **kwargs: Any,
    ) -> torch.Tensor:
        """hidden_states and the result are (batch, tokens, dim)."""
        x, rotary = hidden_states, position_embeddings
        is_step = x.ndim == 3 and x.shape[1] == 1 and rotary is not None
        if is_step and past_key_values is not None:
            parts = known(self)
            if isinstance(parts, str):
                say_once(parts)
            elif kept_by(past_key_values, parts.place) is not None:
                given = past_key_values, attention_mask, rotary
                reason = why_not(parts, x, *given, kwargs, self.training)
                if not reason:
                    return one_token(parts, x, *given)
                say_once(reason)
        return type(self).forward(
            self,
            hidden_states,
            attention_mask=attention_mask,
            position_ids=position_ids,
            past_key_values=past_key_values,
            use_cache=use_cache,
            position_embeddings=position_embeddings,
            **kwargs,
        )
