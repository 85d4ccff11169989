"""The probes' view of the compiler, and the page's computations on it, from numbers made by hand."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from snippets.regimes.experiments import compiled
from snippets.regimes.experiments.modules import stack_of
from snippets.regimes.findings.compiling import lost_s
from snippets.regimes.findings.generated import guard_kinds
from snippets.regimes.findings.paying import rounded
from snippets.regimes.findings.shapes import size_guards

CODE = """
triton_poi_fused_gelu_0 = async_compile.triton('triton_poi_fused_gelu_0', \'\'\'
import triton
@triton_heuristics.pointwise(size_hints={'x': 262144})
@triton.jit
def triton_poi_fused_gelu_0(in_out_ptr0, xnumel, XBLOCK : tl.constexpr):
    tmp0 = tl.load(in_out_ptr0)
\'\'\', device_str='cuda')

def call(args):
    extern_kernels.addmm(arg1, arg2, alpha=1, beta=1, out=buf0)
    triton_poi_fused_gelu_0.run(buf0, 262144, stream=stream0)
    extern_kernels.bias_addmm(arg3, buf0, out=buf1)
"""


def test_generated_code_is_read_as_calls_and_kernels() -> None:
    assert compiled.calls_of([CODE]) == ["extern_kernels.addmm", "triton_poi_fused_gelu_0", "extern_kernels.bias_addmm"]
    assert compiled.kernels_of([CODE]) == {
        "triton_poi_fused_gelu_0": "def triton_poi_fused_gelu_0(in_out_ptr0, xnumel, XBLOCK : tl.constexpr):\n"
        "    tmp0 = tl.load(in_out_ptr0)"
    }


def test_a_guard_has_no_address() -> None:
    guard = "___check_obj_id(G['__builtins_dict___2']['iter'], 139988930204416), type=<class 'builtin'>"
    assert compiled.shortened(guard) == "___check_obj_id(G['__builtins_dict___2']['iter']), type=<class 'builtin'>"


def test_caches_are_where_they_are_told_to_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", "before")
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    with compiled.caches_in(str(tmp_path)):
        assert os.environ["TRITON_CACHE_DIR"] == f"{tmp_path}/triton"
        assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == str(tmp_path)
    assert os.environ["TRITON_CACHE_DIR"] == "before"
    assert os.environ.get("TORCHINDUCTOR_CACHE_DIR") != str(tmp_path)  # torch may have set its default


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_each_graph_has_guards_and_one_of_them_is_on_the_shape() -> None:
    stack = stack_of("cpu", 8, 16)
    torch._dynamo.reset()
    step = torch.compile(stack, backend="eager", dynamic=False)
    with torch.no_grad():
        for tokens in (2, 3, 2):
            step(torch.randn(tokens, 8, dtype=torch.bfloat16))
    guards = compiled.guards_of(stack)
    torch._dynamo.reset()
    assert len(guards) == 2
    assert sorted(size for texts in guards for size in size_guards(texts)) == ["size=[2, 8]", "size=[3, 8]"]


def test_the_first_calls_lose_what_the_last_does_not_take() -> None:
    assert lost_s([3.0, 0.5, 0.25, 0.25]) == pytest.approx(2.75 + 0.25)


@pytest.mark.parametrize(
    ("calls", "text"), [(7, "7"), (99, "99"), (104, "100"), (12_345, "12,000"), (995_000, "1,000,000")]
)
def test_a_number_of_calls_has_two_digits(calls: int, text: str) -> None:
    assert rounded(calls) == text


def test_guards_are_counted_by_what_they_look_at() -> None:
    texts = [
        "check_tensor(L['x'], Tensor, size=[64, 1024], stride=[1024, 1])",
        "hasattr(L['x'], '_dynamo_dynamic_indices') == False",
        "___check_type_id(L['self'], 94320368142784)",
        "___check_obj_id(G['__import_torch_dot__dynamo_dot_polyfills_dot_builtins'])",
        "___check_global_state()",
    ]
    imported = "modules, functions and hooks of PyTorch"
    assert guard_kinds(texts) == {"the input": 2, "the module": 1, imported: 1, "state of PyTorch": 1}
