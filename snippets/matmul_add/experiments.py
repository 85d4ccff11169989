"""What the chapter matmul_add measures: two operators, two sizes, cold and
warm, eager and compiled."""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from snippets.lab.experiment import (
    Experiment,
    Instruments,
    NeedsGpu,
    Schedule,
    Subject,
    Work,
)

SMALL, LARGE, STACK = 64, 4096, 8


def product_work(
    size: int, stack: int = 1, weights: int = 1, bias_rows: int = 0
) -> Work:
    """x, w, b and the result once each in bf16; b has `bias_rows` rows, or all
    rows if 0."""
    matrix = 2 * size * size
    bias = 2 * size * bias_rows if bias_rows else stack * matrix
    return Work(
        bytes=(2 * stack + weights) * matrix + bias,
        matmuls=((stack * size, size, size),),
        layout="x @ w",
    )


Shape = tuple[int, ...]


def _subject(
    step: Callable[..., Any], device: str, x: Shape, w: Shape, b: Shape
) -> Subject:
    import torch

    def inputs() -> tuple[torch.Tensor, ...]:
        return tuple(
            torch.randn(*shape, dtype=torch.bfloat16, device=device)
            for shape in (x, w, b)
        )

    return Subject(
        step=step,
        inputs=inputs,
        reference=lambda x, w, b: x.double() @ w.double() + b.double(),
    )


def eager(device: str, size: int) -> Subject:
    from snippets.matmul_add.model import matmul_add

    return _subject(matmul_add, device, *[(size, size)] * 3)


def compiled(device: str, size: int) -> Subject:
    import torch

    from snippets.matmul_add.model import matmul_add

    return _subject(torch.compile(matmul_add), device, *[(size, size)] * 3)


def item(device: str, size: int) -> Subject:
    """The step followed by a read of its result, so the CPU waits."""
    from snippets.matmul_add.model import checked

    return _subject(checked, device, *[(size, size)] * 3)


def stacked(device: str, size: int, stack: int) -> Subject:
    """A leading batch axis on all three tensors."""
    from snippets.matmul_add.model import matmul_add

    return _subject(matmul_add, device, *[(stack, size, size)] * 3)


def stacked_input(device: str, size: int, stack: int) -> Subject:
    """A leading batch axis on x and b; one w for all."""
    from snippets.matmul_add.model import matmul_add

    return _subject(
        matmul_add,
        device,
        (stack, size, size),
        (size, size),
        (stack, size, size),
    )


def stacked_work(size: int, stack: int) -> Work:
    """A product for each of `stack` matrices."""
    return product_work(size, stack, stack)


def stacked_input_work(size: int, stack: int) -> Work:
    """A product for each of `stack` matrices, all with one w."""
    return product_work(size, stack)


def matrix_bias(device: str, size: int) -> Subject:
    """`addmm` with b of shape (size, size)."""
    from snippets.matmul_add.model import addmm

    return _subject(addmm, device, *[(size, size)] * 3)


def row_bias(device: str, size: int) -> Subject:
    """`addmm` with b of shape (size,), as in `nn.Linear`."""
    from snippets.matmul_add.model import addmm

    return _subject(addmm, device, (size, size), (size, size), (size,))


def row_bias_work(size: int) -> Work:
    """One row of bias."""
    return product_work(size, bias_rows=1)


def generated_code(
    instruments: Instruments, device: str, size: int
) -> dict[str, Any]:
    """Compile with empty caches and read the code that Inductor wrote.

    Returns `calls`, the lines of the generated `call` that launch work, and
    whether the graph cache is in `torchinductor_<user>/fxgraph` under the
    system's folder for temporary files.
    """
    import getpass

    import torch
    from torch._inductor import config
    from torch._inductor.runtime.cache_dir_utils import (
        cache_dir,
        default_cache_dir,
    )
    from torch._inductor.utils import run_and_get_code

    subject = compiled(device, size)
    torch._dynamo.reset()
    # otherwise the code comes from the cache and is not logged
    with config.patch(force_disable_caches=True):
        _, sources = run_and_get_code(subject.step, *subject.inputs())
    subject.step(*subject.inputs())
    folder = Path(default_cache_dir())
    expected = (
        Path(tempfile.gettempdir()) / f"torchinductor_{getpass.getuser()}"
    )
    marks = (
        "extern_kernels.",
        ".run(",
        ".copy_(",
        "empty_strided",
        "reinterpret_tensor",
    )
    body = sources[0][sources[0].index("def call(") :].splitlines()
    return {
        "calls": [
            line.strip() for line in body if any(mark in line for mark in marks)
        ],
        "default_folder_is_torchinductor_user": folder == expected,
        "fxgraph_exists": (Path(cache_dir()) / "fxgraph").is_dir(),
    }


def first_gap(
    instruments: Instruments, device: str, size: int, repeats: int
) -> dict[str, Any]:
    """Profile steps without a GPU, so that neither cuBLAS nor CUDA can lengthen
    one.

    Returns, for short and long warm-ups in turn, with and without shapes, the
    time from entering the label to `aten::matmul`: that of the first kept step
    of each profile, and the median of the four after it.
    """
    import torch
    from torch.profiler import (
        ProfilerActivity,
        profile,
        record_function,
        schedule,
    )

    from snippets.matmul_add.model import matmul_add

    inputs = [torch.randn(size, size) for _ in range(3)]
    for _ in range(200):
        matmul_add(*inputs)
    variants: list[dict[str, Any]] = [
        {"warmup": warmup, "shapes": shapes, "first_us": [], "next_us": []}
        for warmup in (1, 50)
        for shapes in (True, False)
    ]
    for _ in range(repeats):
        for variant in variants:
            warmup, shapes = variant["warmup"], variant["shapes"]
            # --8<-- [start:first_gap]
            plan = schedule(wait=1, warmup=warmup, active=5, repeat=1)
            with profile(
                activities=[ProfilerActivity.CPU],
                schedule=plan,
                record_shapes=shapes,
                acc_events=True,
            ) as prof:
                for _ in range(1 + warmup + 5):
                    with record_function("matmul_add"):
                        matmul_add(*inputs)
                    prof.step()
            starts: dict[str, list[float]] = {
                "matmul_add": [],
                "aten::matmul": [],
            }
            for event in prof.events():
                starts.get(event.name, []).append(event.time_range.start)
            # --8<-- [end:first_gap]
            first, *rest = (
                inner - outer
                for outer, inner in zip(
                    *(sorted(times) for times in starts.values()), strict=True
                )
            )
            variant["first_us"].append(round(first, 3))
            variant["next_us"].append(round(statistics.median(rest), 3))
    return {"variants": variants}


def long_trace(
    instruments: Instruments, device: str, size: int, steps: int
) -> dict[str, Any]:
    """Profile many steps after one warm-up step.

    Returns the kept steps, and the `Activity Buffer Request`s of the trace: the
    duration of each, and its time after the begin of the first kept step.
    """
    from torch.profiler import (
        ProfilerActivity,
        profile,
        record_function,
        schedule,
    )

    if device != "cuda":
        raise NeedsGpu(
            "the profiler requests these buffers for the records of a GPU"
        )
    subject = eager(device, size)
    inputs = subject.inputs()
    plan = schedule(wait=1, warmup=1, active=steps, repeat=1)
    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    with profile(activities=activities, schedule=plan, acc_events=True) as prof:
        for _ in range(steps + 2):
            with record_function("matmul_add"):
                subject.step(*inputs)
            prof.step()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        prof.export_chrome_trace(str(path))
        events = json.loads(path.read_bytes())["traceEvents"]
    kept = [
        event["ts"]
        for event in events
        if event.get("cat") == "user_annotation"
        and event["name"].startswith("ProfilerStep#")
    ]
    requests = sorted(
        (event["ts"] - min(kept), event["dur"])
        for event in events
        if event["name"] == "Activity Buffer Request"
    )
    return {
        "kept_steps": len(kept),
        "requests_us": [round(us, 3) for _, us in requests],
        "after_us": [round(after, 3) for after, _ in requests],
    }


SIZES = tuple(
    {"size": size} for size in (64, 128, 256, 512, 1024, 2048, 4096, 8192)
)


def _profiled(
    name: str, make: Any, size: int, work: Any = product_work, **more: Any
) -> Experiment:
    return Experiment(
        chapter="matmul_add",
        name=name,
        label="matmul_add",
        parameters={"size": size, **more.pop("extra", {})},
        make=make,
        work=work,
        **more,
    )


EXPERIMENTS = (
    *(
        _profiled(f"{name}_{size}_cold", make, size, first_steps=0, timed=False)
        for size in (SMALL, LARGE)
        for name, make in (("eager", eager), ("compiled", compiled))
    ),
    *(
        _profiled(f"{name}_{size}", make, size, group=f"warm_{size}")
        for size in (SMALL, LARGE)
        for name, make in (("eager", eager), ("compiled", compiled))
    ),
    _profiled(
        "unscheduled",
        eager,
        SMALL,
        first_steps=0,
        timed=False,
        schedule=Schedule(0, 0, 5),
    ),
    _profiled(
        "unscheduled_20",
        eager,
        SMALL,
        first_steps=0,
        timed=False,
        schedule=Schedule(0, 0, 20),
    ),
    _profiled(
        "stacked",
        stacked,
        SMALL,
        stacked_work,
        group="stacked",
        extra={"stack": STACK},
    ),
    _profiled(
        "stacked_input",
        stacked_input,
        SMALL,
        stacked_input_work,
        group="stacked",
        extra={"stack": STACK},
    ),
    *(
        _profiled(f"{name}_{size}", make, size, work, group=f"addmm_{size}")
        for size in (SMALL, LARGE)
        for name, make, work in (
            ("matrix_bias", matrix_bias, product_work),
            ("row_bias", row_bias, row_bias_work),
        )
    ),
    _profiled("item_4096", item, LARGE, timed=False),
    _profiled("sweep_eager", eager, SMALL, group="sweep", sweep=SIZES),
    _profiled("sweep_compiled", compiled, SMALL, group="sweep", sweep=SIZES),
    Experiment(
        chapter="matmul_add",
        name="generated_code",
        parameters={"size": LARGE},
        probe=generated_code,
    ),
    Experiment(
        chapter="matmul_add",
        name="first_gap",
        parameters={"size": SMALL, "repeats": 25},
        probe=first_gap,
    ),
    Experiment(
        chapter="matmul_add",
        name="long_trace",
        parameters={"size": SMALL, "steps": 20_000},
        probe=long_trace,
    ),
)
