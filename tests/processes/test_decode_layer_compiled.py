"""The compiler's code for the package of decode kernels, without a GPU, for each compute capability of its card."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from snippets.decode_kernels.llama_decode import layer_kernels
from snippets.decode_kernels.sizes import FEW_TOKENS, ONE_TOKEN
from tests.processes.fused_compiling import check_resources, with_tools
from tests.processes.test_decode_kernels_compiled import ATTENTION, TYPES, code_of, constants_of

pytestmark = with_tools
PACKAGE = Path(__file__).resolve().parents[2] / "snippets/decode_kernels/llama_decode_kernels"
BUILD = tomllib.loads((PACKAGE / "build.toml").read_text(encoding="utf-8"))
CAPABILITIES = [int(one.replace(".", "")) for one in BUILD["torch-noarch"]["cuda_capabilities"]]
POINTERS = {
    **dict.fromkeys(("q_weight", "k_weight", "v_weight", "cos", "sin", "gate", "up"), "*bf16"),
    "mask": "*u8",
}


@pytest.fixture(autouse=True)
def _more_pointers(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, kind in POINTERS.items():
        monkeypatch.setitem(TYPES, name, kind)


@pytest.mark.parametrize("tokens", [1, 8])
@pytest.mark.parametrize("capability", CAPABILITIES)
def test_products_copy_whole_lines_and_spill_nothing(tokens: int, capability: int) -> None:
    """Also where a program chooses between three weights by its number: each is still copied 16 bytes at a time."""
    tiles = ONE_TOKEN if tokens == 1 else FEW_TOKENS
    for kernel, tile, more in (
        (layer_kernels.project_kernel, tiles.qkv, {"HEAD_DIM": 64, "COUNTERS": 64}),
        (layer_kernels.residual_kernel, tiles.out, {}),
        (layer_kernels.gate_up_kernel, tiles.gate_up, {}),
    ):
        code = code_of(kernel, constants_of(tile, tokens, capability) | more, capability)
        check_resources(code)
        assert code.count(r"LDGSTS\.E\.BYPASS\.128") >= 15
        assert code.multiplies_with() == ("HMMA" if tokens > 1 else "")
        assert bool(code.count("UBLKPF")) == (capability >= 90)


def without(monkeypatch: pytest.MonkeyPatch, *names: str) -> dict[str, object]:
    """Constants for arguments that are None."""
    for name in names:
        monkeypatch.delitem(TYPES, name)
    return dict.fromkeys(names)


@pytest.mark.parametrize("absent", [(), ("position", "mask")], ids=str)
@pytest.mark.parametrize("capability", CAPABILITIES)
def test_attention_multiplies_on_tensor_cores(
    capability: int, absent: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a static cache and its mask, and with a dynamic cache, which has no position and mostly no mask."""
    constants = ATTENTION | {"DEPENDENT": capability >= 90} | without(monkeypatch, *absent)
    code = code_of(layer_kernels.attend_kernel, constants, capability)
    check_resources(code)
    assert code.multiplies_with() == "HMMA"


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("capability", [80, 90])
def test_keys_of_a_dynamic_cache_go_to_the_first_row(
    capability: int, heads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a launch, Triton takes an argument that is 1 as a constant."""
    constants = constants_of(ONE_TOKEN.qkv, 1, capability) | {"HEAD_DIM": 64, "COUNTERS": 64}
    constants |= without(monkeypatch, "position") | {"M": 1, "length": 1}
    ones = {"heads": 1, "kv_heads": 1} if heads == 1 else {}
    check_resources(code_of(layer_kernels.project_kernel, constants | ones, capability))
