"""The forward of the package in place of a module's own, put there by `kernels`
and loaded from a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).parent / "geglu_kernels"


# --8<-- [start:kernelize]
def kernelized(plain: Any) -> Any:
    """The plain module with the forward of the package, which is loaded from a
    folder."""
    from kernels import (
        LocalLayerRepository,
        Mode,
        kernelize,
        replace_kernel_forward_from_hub,
        use_kernel_mapping,
    )

    replace_kernel_forward_from_hub(type(plain), "FusedGeGLU")
    package = LocalLayerRepository(PACKAGE, layer_name="FusedGeGLU")
    with use_kernel_mapping(
        {"FusedGeGLU": {"cuda": package}}, inherit_mapping=False
    ):
        return kernelize(
            plain, mode=Mode.INFERENCE, device="cuda", use_fallback=False
        )


# --8<-- [end:kernelize]
