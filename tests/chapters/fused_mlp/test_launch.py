"""Launching again: what is kept, for which addresses, and when a launch is an ordinary one. Triton is stood in for."""

from __future__ import annotations

import gc
import inspect
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
import triton
from torch import Tensor
from triton.backends.nvidia.driver import CudaLauncher
from triton.runtime._async_compile import active_mode
from triton.tools.tensor_descriptor import TensorDescriptor

from snippets.fused_mlp.geglu import launch
from snippets.fused_mlp.geglu.launch import Launch

STREAM, DEVICE = 77, 0
DESCRIPTION = {"swizzle": 3, "elem_size": 2, "elem_type": 6, "block_size": [1, 4], "fp4_padded": False}


class RunOfTriton36:
    """A launcher as Triton 3.6 has it, around a part in C that takes encoded descriptors."""

    global_scratch_size = profile_scratch_size = 0
    launch_cooperative_grid, launch_pdl = False, True
    arg_annotations, kernel_signature = "annotations", b"signature"

    def __init__(self, in_c: Callable[..., None], wrapped: bool = False) -> None:
        launcher = in_c
        self.launch = (lambda *arguments: launcher(*arguments)) if wrapped else in_c

    def __call__(self, gridX: int, gridY: int, gridZ: int, stream: int, function: int, *args: object) -> None:
        raise AssertionError("the part in C is called instead")


class RunOfTriton37(RunOfTriton36):
    def __call__(  # type: ignore[override]
        self, gridX: int, gridY: int, gridZ: int, stream: int, function: int, kernel_metadata: object,
        launch_metadata: object, launch_enter_hook: object, launch_exit_hook: object, *args: object,
    ) -> None:  # fmt: skip
        raise AssertionError("the part in C is called instead")


class RunOfAnother(RunOfTriton36):
    def __call__(self, everything: object) -> None:  # type: ignore[override]
        raise AssertionError


class Kernel:
    """Records its ordinary launches, and those by the part in C."""

    def __init__(self, run: type[RunOfTriton36], descriptors: int = 0, wrapped: bool = False) -> None:
        self.ordinary: list[tuple[object, ...]] = []
        self.again: list[tuple[object, ...]] = []
        self.compiled = SimpleNamespace(
            run=run(lambda *arguments: self.again.append(arguments), wrapped),
            function=1234,
            packed_metadata=(4, 1, 65_536),
            metadata=SimpleNamespace(tensordesc_meta=[DESCRIPTION] * descriptors),
        )

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., object]:
        def launched(*arguments: object, **options: object) -> object:
            self.ordinary.append((grid, arguments, options))
            return self.compiled

        return launched


@pytest.fixture(autouse=True)
def driver(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    def encoded(address: int, *description: object) -> tuple[object, ...]:
        return "encoded", address, *description

    utils = SimpleNamespace(fill_tma_descriptor=encoded, fill_tma_descriptor_tiled=encoded)
    active = SimpleNamespace(
        get_current_stream=lambda device: STREAM + device, get_current_device=lambda: DEVICE, utils=utils
    )
    monkeypatch.setattr(triton.runtime, "driver", SimpleNamespace(active=active))
    return active


def pointers(*tensors: Tensor) -> tuple[object, ...]:
    return (*tensors, 8, "a constant")


def launched_twice(kernel: Kernel, *tensors: Tensor, programs: int = 1) -> None:
    again = Launch(kernel, programs, pointers, num_warps=8)
    for _ in range(2):
        again(*tensors)


@pytest.mark.parametrize("wrapped", [False, True])
def test_the_second_launch_goes_to_the_part_in_c(wrapped: bool) -> None:
    kernel, x, out = Kernel(RunOfTriton36, wrapped=wrapped), torch.zeros(4), torch.zeros(4)
    launched_twice(kernel, x, out, programs=132)
    assert kernel.ordinary == [((132,), (x, out, 8, "a constant"), {"num_warps": 8})]
    assert kernel.again == [
        (132, 1, 1, STREAM, 1234, False, True, None, None, (4, 1, 65_536), None, None, None,
         x.data_ptr(), out.data_ptr(), 8, "a constant")
    ]  # fmt: skip


def test_the_order_of_triton_3_7() -> None:
    kernel, x = Kernel(RunOfTriton37), torch.zeros(4)
    launched_twice(kernel, x, programs=2)
    assert kernel.again == [
        (2, 1, 1, STREAM, 1234, False, True, (4, 1, 65_536), None, None, None, None, None,
         "annotations", b"signature", [x.data_ptr(), 8, "a constant"])
    ]  # fmt: skip


def test_other_addresses_are_prepared_for_themselves() -> None:
    kernel = Kernel(RunOfTriton36)
    again = Launch(kernel, 1, pointers)
    tensors = [torch.zeros(4) for _ in range(3)]
    for tensor in [*tensors, *tensors]:
        again(tensor)
    assert [arguments[0] for _, arguments, _ in kernel.ordinary] == tensors
    assert [arguments[13] for arguments in kernel.again] == [tensor.data_ptr() for tensor in tensors]


def test_descriptors_are_encoded_once(driver: SimpleNamespace) -> None:
    kernel = Kernel(RunOfTriton36, descriptors=2, wrapped=True)

    def arguments(x: Tensor, out: Tensor) -> tuple[object, ...]:
        return TensorDescriptor.from_tensor(x, [1, 4]), 5, TensorDescriptor.from_tensor(out, [1, 4])

    again = Launch(kernel, 1, arguments)
    x, out = torch.zeros(2, 8, dtype=torch.bfloat16), torch.zeros(2, 16, dtype=torch.bfloat16)
    again(x, out)
    driver.utils.fill_tma_descriptor = driver.utils.fill_tma_descriptor_tiled = None
    again(x, out)
    first, *sizes_of_x, number, second, rows, columns, row, column = kernel.again[0][13:]
    assert first[:2] == ("encoded", x.data_ptr())
    assert second[:2] == ("encoded", out.data_ptr())
    assert [sizes_of_x, number, rows, columns, row, column] == [[2, 8, 8, 1], 5, 2, 16, 16, 1]


def test_no_tensor_is_kept_alive() -> None:
    kernel = Kernel(RunOfTriton36)
    again, x = Launch(kernel, 1, pointers), torch.zeros(4)
    again(x)
    ((_, ready),) = again.ready.values()
    assert not [one for one in ready if isinstance(one, Tensor)]


def test_addresses_for_which_triton_compiles_another_kernel_keep_that_one() -> None:
    kernel, other = Kernel(RunOfTriton36), Kernel(RunOfTriton36)
    again, x, y = Launch(kernel, 1, pointers), torch.zeros(4), torch.zeros(4)
    again(x)
    other.compiled, kernel.compiled = kernel.compiled, other.compiled
    again(y)
    for tensor in (x, y, x):
        again(tensor)
    assert [len(kernel.ordinary), len(kernel.again), len(other.again)] == [2, 2, 1]


def test_what_is_kept_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "ADDRESSES_KEPT", 2)
    again = Launch(Kernel(RunOfTriton36), 1, pointers)
    tensors = [torch.zeros(4) for _ in range(3)]
    for tensor in tensors:
        again(tensor)
    assert list(again.ready) == [(tensors[2].data_ptr(),)]


def test_what_is_unknown_or_needs_scratch_or_is_interpreted_is_left_to_triton() -> None:
    scratch, interpreted = Kernel(RunOfTriton36), Kernel(RunOfTriton36)
    scratch.compiled.run.global_scratch_size = 128
    interpreted.compiled = None  # type: ignore[assignment]
    for kernel in (Kernel(RunOfAnother), scratch, interpreted):
        launched_twice(kernel, torch.zeros(4))
        assert (len(kernel.ordinary), kernel.again) == (2, [])


def test_who_watches_launches_sees_every_one() -> None:
    kernel = Kernel(RunOfTriton36)
    again, x = Launch(kernel, 1, pointers), torch.zeros(4)
    again(x)

    def watch(metadata: object) -> None:
        raise AssertionError("no launch")

    triton.knobs.runtime.launch_enter_hook.add(watch)
    try:
        again(x)
    finally:
        triton.knobs.runtime.launch_enter_hook.remove(watch)
    again(x)
    assert (len(kernel.ordinary), len(kernel.again)) == (2, 1)


def test_a_kernel_compiled_in_the_background_is_waited_for() -> None:
    kernel = Kernel(RunOfTriton36)
    compiled = kernel.compiled
    kernel.compiled = SimpleNamespace(result=lambda: compiled)
    launched_twice(kernel, torch.zeros(4))
    assert len(kernel.again) == 1


class Compiling(Kernel):
    def __init__(self, name: str, warm: Callable[[], object] = list) -> None:
        super().__init__(RunOfTriton36)
        self.name, self.warm = name, warm
        self.warmed: list[object] = []

    def warmup(self, *arguments: object, grid: tuple[int, ...], **options: object) -> None:
        assert not gc.isenabled(), "in Python 3.11, another thread would fail that parses meanwhile"
        self.warm()
        self.warmed += [grid, arguments, options]


def test_kernels_are_compiled_without_being_launched() -> None:
    kernel, x = Compiling("good"), torch.zeros(4)
    launch.compile_together([Launch(kernel, 3, pointers, num_warps=8), print], x)
    assert kernel.warmed == [(3,), (x, 8, "a constant"), {"num_warps": 8}]
    assert kernel.ordinary == []


def test_a_kernel_that_cannot_be_compiled_does_not_keep_others_from_it() -> None:
    """Nor leaves it Triton compiling in the background for ever."""

    def refuse() -> None:
        raise ValueError("no block of 3")

    def fail() -> None:
        raise triton.TritonError("out of registers")

    def fail_in_the_background() -> None:
        mode = active_mode.get()
        assert mode is not None
        mode.submit("key", fail, print)

    kernels = [Compiling("refused", refuse), Compiling("failing", fail_in_the_background), Compiling("good")]
    launch.compile_together([Launch(kernel, 1, pointers) for kernel in kernels], torch.zeros(4))
    assert [kernel.name for kernel in kernels if kernel.warmed] == ["failing", "good"]
    assert active_mode.get() is None
    assert gc.isenabled()


def test_the_installed_triton_has_a_form_that_is_known() -> None:
    assert tuple(inspect.signature(CudaLauncher.__call__).parameters)[6:] in launch.FORMS
