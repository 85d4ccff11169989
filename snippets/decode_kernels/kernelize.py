"""The decode kernels in the decoder layers of a Transformers model, put there
by `kernels` and loaded from a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).parent / "llama_decode_kernels"


# --8<-- [start:kernelize]
def kernelized(model: Any) -> Any:
    """The model, whose decoder layers now take a new token by the decode
    kernels."""
    from kernels import (
        LocalLayerRepository,
        Mode,
        kernelize,
        replace_kernel_forward_from_hub,
        use_kernel_mapping,
    )

    decoder_layer = type(model.model.layers[0])
    replace_kernel_forward_from_hub(decoder_layer, "DecodeLayer")
    package = LocalLayerRepository(PACKAGE, layer_name="DecodeLayer")
    as_they_are: dict[str, Any] = {"RMSNorm": {}, "rotary_pos_emb": {}}
    with use_kernel_mapping(
        {"DecodeLayer": {"cuda": package}, **as_they_are},
        inherit_mapping=False,
    ):
        return kernelize(model, mode=Mode.INFERENCE, device="cuda")


# --8<-- [end:kernelize]
