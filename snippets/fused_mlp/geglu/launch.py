"""Repeated launches of a kernel without Triton's work at each launch.

An ordinary launch binds the arguments, looks up the compiled kernel, asks the
driver about each pointer and encodes each descriptor. For fixed sizes and
constants only the addresses can change, so this module keeps the arguments,
ready for the driver, for each set of addresses.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import gc
import inspect
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
import triton
from torch import Tensor

FAILURES = (
    RuntimeError, ValueError, TypeError, AssertionError, triton.TritonError,
)  # fmt: skip
"""Errors from compiling or launching a kernel that a GPU, its driver or a
version of Triton does not support."""
ADDRESSES_KEPT = 256
"""Sets of addresses that a launch remembers before it forgets all of them."""


# --8<-- [start:launch]
class Launch:
    """A kernel for fixed sizes, launched with tensors at any address.

    `arguments` makes all of the kernel's arguments, in order, from the tensors
    of a call. The tensors must be contiguous and have the sizes of the launch.
    """

    def __init__(
        self,
        kernel: Any,
        programs: int,
        arguments: Callable[..., tuple],
        **options: object,
    ) -> None:
        self.kernel, self.programs = kernel, programs
        self.arguments, self.options = arguments, options
        self.launcher: Launcher | None = None
        self.ready: dict[tuple[int, ...], tuple[Launcher, tuple]] = {}

    def __call__(self, *tensors: Tensor) -> None:
        """Launch on the current stream of the tensors' device, which must be
        the current device."""
        addresses = tuple([tensor.data_ptr() for tensor in tensors])
        ready = self.ready.get(addresses)
        if ready is None or is_watched():
            self.launch_by_triton(tensors, addresses)
            return
        launcher, arguments = ready
        stream = launcher.stream(launcher.device)
        launcher.call(self.programs, 1, 1, stream, *arguments)

    # --8<-- [end:launch]

    def compile(self, *tensors: Tensor) -> None:
        """Have Triton compile the kernel for these tensors."""
        arguments = self.arguments(*tensors)
        self.kernel.warmup(*arguments, grid=(self.programs,), **self.options)

    def launch_by_triton(
        self, tensors: tuple[Tensor, ...], addresses: tuple[int, ...]
    ) -> None:
        """Launch the ordinary way, then keep the arguments."""
        arguments = self.arguments(*tensors)
        kernel = self.kernel[self.programs,](*arguments, **self.options)
        if kernel is None:  # interpreted
            return
        if hasattr(kernel, "result"):  # compiled in the background
            kernel = kernel.result()
        # another one for addresses that 16 does not divide
        if self.launcher is None or self.launcher.kernel is not kernel:
            self.launcher = Launcher(kernel)
        if self.launcher.is_known:
            if len(self.ready) >= ADDRESSES_KEPT:
                self.ready.clear()
            prepared = self.launcher.prepared(arguments)
            self.ready[addresses] = self.launcher, prepared


def compile_together(launches: Iterable[object], *tensors: Tensor) -> None:
    """Let Triton compile the kernels in parallel, one on each CPU core. Skips
    ways that are not a `Launch`, which need no compilation."""

    def compile_all() -> None:
        with ThreadPoolExecutor() as pool, triton.AsyncCompileMode(pool):
            for launch in launches:
                if isinstance(launch, Launch):
                    with contextlib.suppress(*FAILURES):
                        launch.compile(*tensors)

    # A kernel that does not compile raises when it is launched. A separate
    # context, since Triton's mode would outlive an error.
    with uncollected(), contextlib.suppress(*FAILURES):
        contextvars.copy_context().run(compile_all)


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Disable garbage collection while threads compile: in Python 3.11,
    `ast.parse` fails in one of two threads when a collection runs."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def is_watched() -> bool:
    """Whether a launch hook is registered with Triton."""
    hook = triton.knobs.runtime.launch_enter_hook
    return bool(getattr(hook, "calls", hook))


class Launcher:
    """Triton's launcher of a compiled kernel, below the part written in Python.

    `call(x, y, z, stream, *prepared(arguments))` launches it.
    """

    def __init__(self, kernel: Any) -> None:
        driver = triton.runtime.driver.active
        self.kernel = kernel
        self.stream = driver.get_current_stream
        self.device = driver.get_current_device()
        run = kernel.run
        self.form: Any = FORMS.get(
            tuple(inspect.signature(type(run).__call__).parameters)[6:]
        )
        self.is_known = self.form is not None and not (
            run.global_scratch_size or run.profile_scratch_size
        )
        # around it there is a function that encodes descriptors, if it has any
        self.call: Any = getattr(run, "launch", None)
        if inspect.isfunction(self.call):
            around = inspect.getclosurevars(self.call).nonlocals
            self.call = around.get("launcher", self.call)

    def prepared(self, arguments: tuple) -> tuple:
        """The arguments with pointers as integers and descriptors encoded."""
        from triton.backends.nvidia.driver import make_tensordesc_arg

        found: list[object] = []
        described = getattr(self.kernel.metadata, "tensordesc_meta", None)
        descriptions = iter(described or ())
        for argument in arguments:
            if hasattr(argument, "block_shape"):
                description = next(descriptions, None)
                found += make_tensordesc_arg(argument, description)
            else:
                found.append(argument)
        # integers, so that the kept arguments hold no memory
        return self.form(
            self.kernel,
            [
                one.data_ptr() if isinstance(one, Tensor) else one
                for one in found
            ],
        )


def _as_in_triton_3_6(kernel: Any, arguments: list[object]) -> tuple:
    run = kernel.run
    return (
        kernel.function, run.launch_cooperative_grid, run.launch_pdl, None,
        None, kernel.packed_metadata, None, None, None, *arguments,
    )  # fmt: skip


def _as_in_triton_3_7(kernel: Any, arguments: list[object]) -> tuple:
    run = kernel.run
    return (
        kernel.function, run.launch_cooperative_grid, run.launch_pdl,
        kernel.packed_metadata, None, None, None, None, None,
        run.arg_annotations, run.kernel_signature, arguments,
    )  # fmt: skip


FORMS: dict[tuple[str, ...], Callable[[Any, list[object]], tuple]] = {
    ("args",): _as_in_triton_3_6,
    (
        "kernel_metadata", "launch_metadata", "launch_enter_hook",
        "launch_exit_hook", "args",
    ): _as_in_triton_3_7,
}  # fmt: skip
"""A launcher's parameters after the kernel's function -> the arguments for its
part written in C. With any other form, every launch is an ordinary one."""


def interpreted() -> bool:
    """Whether Triton runs kernels on the CPU, by `TRITON_INTERPRET=1`."""
    return bool(triton.knobs.runtime.interpret)


@functools.cache
def multiprocessors(device: torch.device) -> int:
    """The multiprocessors of a GPU; a small number if kernels are
    interpreted."""
    if device.type != "cuda":
        return 4
    return torch.cuda.get_device_properties(device).multi_processor_count
