"""What the chapter mlp shows and claims: a GeGLU block eager, compiled, and with Liger's kernel."""

from __future__ import annotations

import itertools
import math
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from html import escape
from typing import TypeVar

from snippets.lab import recording, tables, trace
from snippets.lab.claims import Claim, Scope, Source, Word
from snippets.lab.figures import Figure, in_words, of_steps, of_timing, per_step, point, ratio
from snippets.lab.html import Cell, Html, code, details, table
from snippets.lab.recording import Recording, RecordingError, Timings
from snippets.lab.trace import CpuOp, GpuActivity, Step, Trace

VARIANTS = {"eager": "mlp/eager", "compiled": "mlp/compiled", "Liger": "mlp/liger"}
SWEEPS = {"eager": "mlp/sweep_eager", "compiled": "mlp/sweep_compiled", "Liger": "mlp/sweep_liger"}
LABEL = "mlp_fwd"
ONE_TOKEN, ONE_SEQUENCE = "batch=1,seq=1", "batch=1,seq=128"
BF16_BYTES = 2
METADATA_OPS = {"aten::t", "aten::transpose", "aten::as_strided", "aten::reshape", "aten::view", "aten::_unsafe_view"}
WRAPPERS = {"aten::linear", "aten::matmul", "aten::t", "aten::transpose", "aten::reshape"}
PRE_OPS = ("TorchDynamo", "Torch-Compiled Region", "Pregraph", "AOTDispatcher", "## Call CompiledFxGraph")
ARTICLE = "“The Profiling Deep-Dive on nn.Linear Fusion”, an article about Part 2"
SERIES_GEMMS_US, SERIES_FUSED_US, SERIES_LIGER_US = (190.0, 190.0, 170.0), 89.4, 92.8
"""Part 2's kernel times: gate, up and down; Inductor's fused kernel; Liger's."""

E = TypeVar("E")
Pick = Callable[[Trace, Step], Sequence[GpuActivity]]


def op_name(traced: Trace, activity: GpuActivity) -> str:
    """Name of the operator that launched an activity, empty where the trace ties it to none."""
    op = traced.op_of(activity)
    return op.name if op else ""


def gemms(traced: Trace, step: Step) -> tuple[GpuActivity, ...]:
    """The kernels of `aten::mm`, in order: gate, up, down. Raises `TraceError` when they are not three."""
    return _three(step, tuple(kernel for kernel in step.kernels if op_name(traced, kernel) == "aten::mm"))


def pointwise(traced: Trace, step: Step) -> tuple[GpuActivity, ...]:
    """The other kernels: GELU and the product, or the one that does both."""
    return tuple(kernel for kernel in step.kernels if op_name(traced, kernel) != "aten::mm")


def pick(kernels: Sequence[GpuActivity], place: int) -> GpuActivity:
    """The kernel at a place. Raises `TraceError` when there are not so many."""
    if place >= len(kernels):
        raise trace.TraceError(f"a step lacks kernel {place + 1} of {len(kernels)}; make record CHAPTER=mlp")
    return kernels[place]


def _three(step: Step, found: tuple[E, ...]) -> tuple[E, ...]:
    if len(found) != 3:
        raise trace.TraceError(f"{step.name} has {len(found)} products instead of three; make record CHAPTER=mlp")
    return found


def _mms(step: Step) -> tuple[CpuOp, ...]:
    return _three(step, tuple(op for op in step.ops if op.name == "aten::mm"))


def products(traced: Trace, step: Step) -> tuple[tuple[int, int, int], ...]:
    """(M, K, N) of each `aten::mm` of a step."""
    shapes = [op.input_shapes for op in _mms(step)]
    return tuple((left[0], left[1], right[1]) for left, right, *_ in shapes)


def order(traced: Trace, step: Step) -> str:
    """Operators that launched the kernels of a step, in the kernels' order."""
    return ", ".join(op_name(traced, kernel).removeprefix("aten::") for kernel in step.kernels)


def gemm_names(traced: Trace, step: Step) -> str:
    """Names of the three GEMM kernels."""
    return ", ".join(kernel.name for kernel in gemms(traced, step))


def pre_op_names(_: Trace, step: Step) -> str:
    """Rows that only a compiled call has."""
    return ", ".join(op.name.split(" fx")[0] for op in step.ops if op.name.startswith(PRE_OPS)) or "none"


def hidden_bytes(traced: Trace, step: Step) -> int:
    """Bytes of the tensor that the gate's GEMM writes."""
    m, _, n = products(traced, step)[0]
    return BF16_BYTES * m * n


def intermediate_bytes(_: Trace, step: Step) -> int:
    """Bytes of GELU's input, and so of its result."""
    return sum(BF16_BYTES * math.prod(op.input_shapes[0]) for op in step.ops if op.name == "aten::gelu")


def eager_pointwise_bytes(traced: Trace, step: Step) -> int:
    """Tensors that eager's pointwise operators read, and one that each writes."""
    shapes = [op.input_shapes for op in step.ops if op.name in ("aten::gelu", "aten::mul")]
    return sum(BF16_BYTES * (sum(map(math.prod, filter(None, read))) + math.prod(read[0])) for read in shapes)


def fused_pointwise_bytes(traced: Trace, step: Step) -> int:
    """What one pass has to move: the results of the first two GEMMs in, the left factor of the third out."""
    gate, up, down = products(traced, step)
    return BF16_BYTES * (gate[0] * gate[2] + up[0] * up[2] + down[0] * down[1])


def in_steps(variant: str, of: Callable[[Trace, Step], int | str | bool]) -> Callable[[str], Figure]:
    """A measure: what the steps of a variant's trace show; inconclusive when they disagree."""

    def measure(device: str) -> Figure:
        traced = recording.trace(f"mlp/{variant}", device)
        return of_steps(traced, lambda step: of(traced, step), f"mlp/{variant}")

    return measure


def amount(variant: str, unit: str, of: Callable[[Trace, Step], float]) -> Callable[[str], Figure]:
    """A measure: a quantity with a unit, the median step and the range of all."""

    def measure(device: str) -> Figure:
        traced = recording.trace(f"mlp/{variant}", device)
        return per_step(traced, lambda step: of(traced, step), unit, f"mlp/{variant}, per step of its trace")

    return measure


def kernel_us(variant: str, kernels_of: Pick, place: int) -> Callable[[str], Figure]:
    """A measure: time of one kernel in the trace."""
    return amount(variant, "us", lambda traced, step: pick(kernels_of(traced, step), place).duration_us)


def trace_ratio(upper: Callable[[str], Figure], lower: Callable[[str], Figure]) -> Callable[[str], Figure]:
    """A measure: how many times one kernel's time fits into another's, from the extremes of their steps."""

    def measure(device: str) -> Figure:
        (a, a_low, a_high), (b, b_low, b_high) = (_range(one(device)) for one in (upper, lower))
        return Figure(a / b, "x", (a_low / b_high, a_high / b_low), "two traces of one session")

    return measure


def _range(shown: Figure) -> tuple[float, float, float]:
    value = float(shown.value)
    return (value, *(shown.spread or (value, value)))


def timings(experiment: str, device: str, place: str = "") -> Timings:
    """The timings of a recording at a point. Raises `RecordingError` when it was not timed."""
    found = point(recording.load(experiment, device), place).timings
    if found is None:
        raise RecordingError(f"{experiment} was not timed; make record CHAPTER=mlp")
    return found


def paired(upper: str, lower: str, kind: str, place: str = "") -> Callable[[str], Figure]:
    """A measure: ratio of the paired timings of two experiments of one session; `kind` is a field of `Timings`."""

    def measure(device: str) -> Figure:
        sessions = {recording.load(name, device).session for name in (upper, lower)}
        if len(sessions) > 1:
            raise RecordingError(f"{upper} and {lower} were recorded apart; make record CHAPTER=mlp FRESH=1")
        a, b = (getattr(timings(name, device, place), kind) for name in (upper, lower))
        return ratio(a, b, f"{upper} over {lower}, {kind}, in turns")

    return measure


def smallest(*measures: Callable[[str], Figure]) -> Callable[[str], Figure]:
    """A measure: the smallest of several ratios."""
    return lambda device: min((measure(device) for measure in measures), key=lambda shown: float(shown.value))


def ceiling(variant: str, what: str, device: str) -> tuple[float, str]:
    """A rate of the variant's own session, and its unit. Raises `RecordingError` where it was not measured."""
    for one in recording.load(f"mlp/{variant}", device).ceilings:
        if one.what == what:
            done, unit = (one.flops, "flop/s") if one.flops else (one.bytes, "bytes/s")
            return done / one.timing.median_us * 1e6, unit
    raise RecordingError(f"mlp/{variant} has no ceiling {what!r}; make record CHAPTER=mlp")


def percent_of_copy(variant: str, place: int = 0) -> Callable[[str], Figure]:
    """A measure: the rate at which a pointwise kernel moves what it has to, in percent of a plain copy's."""

    def measure(device: str) -> Figure:
        copy, _ = ceiling(variant, "copy", device)
        return amount(variant, "%", lambda t, s: 100 * moved_bytes(t, s, place) / _us(t, s, place) * 1e6 / copy)(device)

    return measure


def _us(traced: Trace, step: Step, place: int) -> float:
    return pick(pointwise(traced, step), place).duration_us


def moved_bytes(traced: Trace, step: Step, place: int) -> int:
    """What a step's pointwise kernel has to move: GELU two tensors, a product or a fused kernel three."""
    alone = op_name(traced, pick(pointwise(traced, step), place)) == "aten::gelu"
    return hidden_bytes(traced, step) * (2 if alone else 3)


def flops_per_s(place: int) -> Callable[[str], Figure]:
    """A measure: what one of eager's GEMMs reaches in the trace."""

    def rate(traced: Trace, step: Step) -> float:
        return 2 * math.prod(products(traced, step)[place]) / gemms(traced, step)[place].duration_us * 1e6

    return amount("eager", "flop/s", rate)


def bare(place: int) -> Callable[[str], Figure]:
    """A measure: the same product bare and sustained, as a ceiling of the session."""

    def measure(device: str) -> Figure:
        traced = recording.trace("mlp/eager", device)
        shape = "x".join(map(str, products(traced, tables.middle_step(traced))[place]))
        return Figure(*ceiling("eager", f"matmul {shape}", device), origin=f"ceiling matmul {shape}, sustained")

    return measure


def compilations(mode: str, device: str) -> list[int]:
    """Compilations so far after each batch size of `new_shapes`, in one mode."""
    found = recording.load("mlp/new_shapes", device).data
    if mode not in found:
        raise RecordingError(f"mlp/new_shapes has no {mode!r}; make record CHAPTER=mlp")
    return [int(count) for count in found[mode]["compiled"]]


def recompiled(mode: str, device: str) -> str:
    """`1 of 3`: how many changes of the batch size compiled something."""
    counts = compilations(mode, device)
    return f"{sum(b > a for a, b in itertools.pairwise(counts))} of {len(counts) - 1}"


def _metadata(traced: Trace, step: Step) -> str:
    """`chain; names that reach the GPU; names that do not`, of all that runs inside `aten::linear`."""
    inside = [op for op in step.ops if any(above.name == "aten::linear" for above in traced.dispatch_chain(op))]
    working = {op_name(traced, activity) for activity in step.activities} & {op.name for op in inside}
    chains = {_chain(traced, op.index) for op in inside if op.name == "aten::mm"}
    idle = sorted({op.name for op in inside} - working)
    return f"{' and '.join(sorted(chains))}; GPU work: {', '.join(sorted(working))}; none: {', '.join(idle)}"


def _metadata_ops(device: str) -> Figure:
    found = in_steps("eager", _metadata)(device)
    return replace(found, said=str(found.value).replace("aten::", ""))


def _gemm_kernels(device: str) -> Figure:
    found = in_steps("eager", gemm_names)(device)
    gate, *others = str(found.value).split(", ")
    return replace(found, said=f"{gate} twice, then {others[-1]}") if others[:1] == [gate] else found


def _chain(traced: Trace, index: int) -> str:
    names = [op.name for op in traced.dispatch_chain(traced.cpu_ops[index])]
    return " > ".join(names[names.index("aten::linear") :])


def _queries(traced: Trace, step: Step) -> str:
    def asks(ops: tuple[str, ...]) -> str:
        found = [op for op in step.ops if op.name in ops]
        asking = [op for op in found if any("Occupancy" in call.name for call in traced.launches_under(op))]
        return f"{len(asking)} of {len(found)}"

    return f"{asks(('aten::mm',))} GEMMs, {asks(('aten::gelu', 'aten::mul'))} pointwise"


def _templates(traced: Trace, step: Step) -> str:
    found = [re.search(r"(\w+<\d+).*?(GeluCUDAKernelImpl|MulFunctor)", k.name) for k in pointwise(traced, step)]
    return ", ".join(f"{match[1]}, {match[2]}>" for match in found if match)


def _compiled_order(traced: Trace, step: Step) -> str:
    left = sorted(WRAPPERS & {op.name for op in step.ops})
    return f"{order(traced, step)}; wrappers left: {', '.join(left) or 'none'}"


def _shapes(traced: Trace, step: Step) -> str:
    return ", ".join(f"[{m},{k}]x[{k},{n}]" for m, k, n in products(traced, step))


def _same_gemms(variant: str) -> Callable[[str], Figure]:
    def measure(device: str) -> Figure:
        eager, other = in_steps("eager", gemm_names)(device), in_steps(variant, gemm_names)(device)
        return Figure(eager.value == other.value, conclusive=eager.conclusive and other.conclusive)

    return measure


def _gemm_launches(traced: Trace, step: Step) -> str:
    calls = {launch.name for kernel in gemms(traced, step) if (launch := traced.launch_of(kernel))}
    blocks = {math.prod(kernel.grid) for kernel in gemms(traced, step) if kernel.grid}
    return f"{', '.join(sorted(calls))}, {', '.join(map(str, sorted(blocks)))} blocks"


def _one_block_each(device: str) -> Figure:
    count = recording.load("mlp/eager", device).circumstances.multiprocessors
    found = in_steps("eager", _gemm_launches)(device)
    return Figure(f"{found.value}, {count} multiprocessors", origin=found.origin, conclusive=found.conclusive)


def _is_one_each(shown: Figure) -> bool:
    return re.fullmatch(r"cuLaunchKernelEx, (\d+) blocks, \1 multiprocessors", str(shown.value)) is not None


def _memsets(device: str) -> Figure:
    def fills(traced: Trace, step: Step) -> str:
        linear = {op.index: name for op, name in zip(_mms(step), ("gate", "up", "down"), strict=True)}
        owners = [(fill.moved_bytes, traced.op_of(fill)) for fill in step.memsets]
        return (
            ", ".join(f"{linear.get(op.index, op.name) if op else '?'} {size} bytes" for size, op in owners) or "none"
        )

    found = [in_steps(variant, fills)(device) for variant in ("eager", "compiled", "liger")]
    same = all(one.value == found[0].value for one in found)
    return Figure(
        found[0].value if same else "; ".join(str(one.value) for one in found),
        conclusive=all(one.conclusive for one in found),
    )


def _down_is_faster(traced: Trace, step: Step) -> float:
    gate, up, down = (kernel.duration_us for kernel in gemms(traced, step))
    return 100 * (1 - down / statistics.fmean((gate, up)))


def _liger_forward(traced: Trace, step: Step) -> str:
    linears = sum(op.name == "aten::linear" for op in step.ops)
    names = ", ".join(kernel.name for kernel in pointwise(traced, step))
    return f"{order(traced, step)}; {linears} aten::linear; {names}"


def _saved_bytes(device: str) -> Figure:
    eager, fused = (
        amount(name, "bytes", of)(device)
        for name, of in (("eager", eager_pointwise_bytes), ("compiled", fused_pointwise_bytes))
    )
    both = eager.spread is None and fused.spread is None
    return Figure(float(eager.value) - float(fused.value), "bytes", origin="shapes in the traces", conclusive=both)


def _liger_launch(traced: Trace, step: Step) -> str:
    kernel = pick(pointwise(traced, step), 0)
    rows, _, columns = products(traced, step)[0]
    blocks, threads = math.prod(kernel.grid or (0,)), math.prod(kernel.block or (0,))
    return f"{blocks} blocks of {threads} threads for {rows} rows of {columns}"


def _saved_memory(device: str) -> Figure:
    eager, fused = (point(recording.load(VARIANTS[name], device)).peak_memory_bytes for name in ("eager", "compiled"))
    one = in_steps("eager", hidden_bytes)(device)
    return Figure((eager - fused) / int(one.value), said=f"{in_words((eager - fused), 'bytes')} less")


def _error_ratio(device: str) -> Figure:
    eager, fused = (point(recording.load(VARIANTS[name], device)).relative_error for name in ("eager", "compiled"))
    return Figure(eager / fused, "x", origin="eager's relative error over the compiled forward's")


def _cost_of_compiling(device: str) -> Figure:
    """The cheapest first call that compiled over the dearest that did not, over both modes of torch.compile."""
    compiling: list[float] = []
    others: list[float] = []
    for mode in ("static", "automatic"):
        counts = [0, *compilations(mode, device)]
        for place, ms in enumerate(recording.load("mlp/new_shapes", device).data[mode]["first_call_ms"]):
            (compiling if counts[place + 1] > counts[place] else others).append(float(ms))
    if not others:
        return Figure(0.0, "x", said="every call compiled", conclusive=False)
    return Figure(min(compiling) / max(others), "x")


def _new_shapes(device: str) -> Figure:
    return Figure(f"torch.compile: {recompiled('automatic', device)}, Liger: {recompiled('liger', device)}")


def _modes(device: str) -> Figure:
    return Figure(f"static: {recompiled('static', device)}, automatic: {recompiled('automatic', device)}")


def _launches_saved(device: str) -> Figure:
    eager, fused = (in_steps(name, lambda _, step: len(step.kernels))(device) for name in ("eager", "compiled"))
    return Figure(
        100 * (1 - int(fused.value) / int(eager.value)), "%", conclusive=eager.conclusive and fused.conclusive
    )


def _trace_over_bare(device: str) -> Figure:
    rates = [float(flops_per_s(place)(device).value) / float(bare(place)(device).value) for place in range(3)]
    return Figure(min(rates), "x", (min(rates), max(rates)))


def claim(
    identity: str,
    sentence: str,
    measure: Callable[[str], Figure],
    holds: Callable[[Figure], bool],
    said: str = "",
    *,
    scope: Scope = "every-gpu",
    differs: str = "",
    who: str = "Part 2",
) -> Claim:
    """A claim; `said` is the source's value, `differs` why it does not hold on the builder."""
    expected: Mapping[str, Word] = {recording.BUILDER: "differs"} if differs else {}
    return Claim(identity, sentence, scope, measure, holds, Source(who, said) if said else None, expected, differs)


def _is(*values: object) -> Callable[[Figure], bool]:
    return lambda shown: shown.value in values


def _between(low: float, high: float) -> Callable[[Figure], bool]:
    return lambda shown: low <= float(shown.value) <= high


def _names_a100_tiles(shown: Figure) -> bool:
    gate, up, down = str(shown.value).split(", ")
    known = "ampere_bf16_s16816gemm_bf16_"
    return gate == up and gate.startswith(f"{known}128x128") and down.startswith(f"{known}128x256")


def _two_kinds(shown: Figure) -> bool:
    gate, up, down = str(shown.value).split(", ")
    return gate == up != down


def _only_mm_works(shown: Figure) -> bool:
    chain, working, idle = str(shown.value).split("; ")
    return (
        chain == "aten::linear > aten::matmul > aten::mm"
        and working == "GPU work: aten::mm"
        and set(idle.removeprefix("none: ").split(", ")) >= METADATA_OPS
    )


def _is_compiled_forward(shown: Figure) -> bool:
    return re.fullmatch(r"mm, mm, triton_\w+, mm; wrappers left: none", str(shown.value)) is not None


gelu_us, mul_us = kernel_us("eager", pointwise, 0), kernel_us("eager", pointwise, 1)
fused_us, liger_us = kernel_us("compiled", pointwise, 0), kernel_us("liger", pointwise, 0)
_FORWARD = ("mlp/eager", "mlp/compiled", "mlp/liger")
_SWEEP = ("mlp/sweep_eager", "mlp/sweep_compiled", "mlp/sweep_liger")
_SIZES = (ONE_TOKEN, ONE_SEQUENCE, *(f"batch={batch},seq=128" for batch in (4, 16, 64, 128)))


def _slower_from_python(place: str, variant: int) -> Callable[[str], Figure]:
    return paired(_SWEEP[variant], _SWEEP[0], "launched", place)


CLAIMS: tuple[Claim, ...] = (
    claim(
        "M1",
        "One eager forward runs exactly five kernels, in this order: GEMM, GEMM, GELU, multiplication, GEMM.",
        in_steps("eager", order),
        _is("mm, mm, gelu, mul, mm"),
        "5 kernels: GEMM, GEMM, GELU, mul, GEMM",
    ),
    claim(
        "M2",
        "gate and up run ampere_bf16_s16816gemm_bf16_128x128_…_stages_32x5_tn, down runs …_128x256_…_stages_64x3_tn.",
        _gemm_kernels,
        _names_a100_tiles,
        "ampere_bf16_s16816gemm_bf16_128x128_…_stages_32x5_tn twice, then …_128x256_…_stages_64x3_tn",
        scope="this-gpu",
        differs="cuBLAS brings kernels of their own for Hopper, nvjet_sm90_*. The pattern carries over: one kernel "
        "for the two equal products, another for the third. The names do not, nor does what one learned to read from "
        "them. Compare names within a machine, never between two.",
    ),
    claim(
        "M3",
        "The pointwise kernels are vectorized_elementwise_kernel<4, GeluCUDAKernelImpl…> and <4, …MulFunctor…>.",
        in_steps("eager", _templates),
        _is("vectorized_elementwise_kernel<4, GeluCUDAKernelImpl>, vectorized_elementwise_kernel<4, MulFunctor>"),
        "vectorized_elementwise_kernel<4, GeluCUDAKernelImpl…>, <4, …MulFunctor…>",
        scope="this-gpu",
        differs="The same two templates, twice as wide. The number is how many elements a thread loads at once: "
        "PyTorch builds the width of eight only for compute capability 9 and 10 and uses at most four elsewhere. A "
        "name that changes between GPUs need not mean that the algorithm did.",
    ),
    claim(
        "M4",
        "Each GEMM asks cudaOccupancyMaxActiveBlocksPerMultiprocessor before its launch; GELU and the multiplication "
        "do not.",
        in_steps("eager", _queries),
        _is("3 of 3 GEMMs, 0 of 2 pointwise"),
        "3 queries a forward, one for each GEMM",
        scope="this-gpu",
        differs="Nothing asks here. These GEMMs start one block on each multiprocessor and let it work through "
        "several tiles, so there is no need to know how many blocks would fit. The rule that a query announces a "
        "GEMM finds none on this GPU: read the operator above a launch instead.",
    ),
    claim(
        "M5",
        "In each aten::linear the chain linear > matmul > mm reaches the GPU, and only through mm: t, transpose, "
        "as_strided, reshape, view and _unsafe_view launch nothing.",
        _metadata_ops,
        _only_mm_works,
        "about six names for each linear, of which mm alone reaches the GPU",
    ),
    claim(
        "M6",
        "The products are [8192,768]x[768,3072] twice and [8192,3072]x[3072,768]: equally many floating-point "
        "operations.",
        in_steps("eager", _shapes),
        _is("[8192,768]x[768,3072], [8192,768]x[768,3072], [8192,3072]x[3072,768]"),
        "the same shapes, 38.7 GFLOP each",
    ),
    claim(
        "M7",
        "Down is about a tenth faster than gate and up, which do the same amount of work.",
        amount("eager", "%", _down_is_faster),
        _between(4, 17),
        "0.19 ms, 0.19 ms and 0.17 ms",
        scope="timing",
    ),
    claim(
        "M8",
        "Compiled, the forward runs four kernels, two GEMMs, one from Triton and a GEMM, and no linear, matmul, t, "
        "transpose or reshape is left above them.",
        in_steps("compiled", _compiled_order),
        _is_compiled_forward,
        "4 kernels: mm, mm, fused, mm, as three bare aten::mm",
    ),
    claim(
        "M9",
        "Compiling leaves the three GEMM kernels as they were, name for name.",
        _same_gemms("compiled"),
        _is(True),
        "byte-for-byte identical names",
    ),
    claim(
        "M10",
        "The fused kernel is called triton_poi_fused__unsafe_view_gelu_mul_0.",
        in_steps("compiled", lambda t, s: ", ".join(kernel.name for kernel in pointwise(t, s))),
        _is("triton_poi_fused__unsafe_view_gelu_mul_0"),
        "triton_poi_fused__unsafe_view_gelu_mul_0",
        scope="this-gpu",
    ),
    claim(
        "M11",
        "The tensor between GELU and the multiplication, [8192, 3072] in bf16, is around 50 MB.",
        amount("eager", "bytes", intermediate_bytes),
        _between(49e6, 51e6),
        "around 50 MB",
    ),
    claim(
        "M12",
        "Fusion saves one round trip of that tensor: one write of it and one read.",
        _saved_bytes,
        _is(2 * BF16_BYTES * 8192 * 3072),
        "one whole round trip of the intermediate",
    ),
    claim(
        "M13",
        "The fused kernel is limited by memory: it moves its three tensors at three quarters of a plain copy's rate "
        "or more.",
        percent_of_copy("compiled"),
        lambda shown: float(shown.value) >= 75,
        "89.4 µs, which makes 1.69 TB/s",
        scope="timing",
    ),
    claim(
        "K1",
        "With Liger's layer the forward runs four kernels: three aten::linear as before, and one "
        "LigerGELUMulFunction whose kernel is _geglu_tanh_forward_kernel.",
        in_steps("liger", _liger_forward),
        _is("mm, mm, LigerGELUMulFunction, mm; 3 aten::linear; _geglu_tanh_forward_kernel"),
        "3 aten::linear and one LigerGELUMulFunction, _geglu_tanh_forward_kernel",
    ),
    claim(
        "K2",
        "A Liger call has none of the rows that a compiled call adds: no Dynamo, no guards, no prologue.",
        in_steps("liger", pre_op_names),
        _is("none"),
        "no pre-ops",
    ),
    claim(
        "K3",
        "Liger's kernel is a few percent slower than Inductor's.",
        trace_ratio(liger_us, fused_us),
        _between(1.0, 1.1),
        "92.8 µs against 89.4 µs",
        scope="timing",
        differs="The gap is several times as wide here. Liger gives each row a block of its own and more registers "
        "to each thread, so fewer threads wait for memory at a time; the faster the memory, the more of them it "
        "takes to keep it busy. Launch settings that nearly kept up with one GPU need not with the next: measure on "
        "yours.",
    ),
    claim(
        "K4",
        "Change the shape and torch.compile pays the compile cost all over again, while Liger's kernel never does.",
        _new_shapes,
        _is("torch.compile: 3 of 3, Liger: 0 of 3"),
        "any change of batch, sequence or hidden size compiles again",
        differs="Liger's half is right. torch.compile learns from the first change: it makes the batch size a "
        "variable, compiles once more, and serves every further size from that graph. The sentence describes "
        "dynamic=False. Expect two compilations for a varying batch, not one for each size.",
    ),
    claim(
        "K5",
        "With Liger the three GEMM kernels are eager's, name for name.",
        _same_gemms("liger"),
        _is(True),
        "still the same cuBLAS kernels",
    ),
    claim(
        "O-P1",
        "gate and up, two equal products, run one kernel; down runs another.",
        _gemm_kernels,
        _two_kinds,
        scope="this-gpu",
    ),
    claim(
        "O-P2",
        "Every GEMM is put on the GPU by cuLaunchKernelEx, with as many blocks as the GPU has multiprocessors.",
        _one_block_each,
        _is_one_each,
        scope="this-gpu",
    ),
    claim(
        "O-P3",
        "In every variant gate and up each bring along a memset of four bytes, and down brings none.",
        _memsets,
        _is("gate 4 bytes, up 4 bytes"),
        scope="this-gpu",
    ),
    claim(
        "O-P4",
        "In the short trace each GEMM is faster than the same product, bare but timed for long.",
        _trace_over_bare,
        lambda shown: float(shown.value) > 1.02,
        scope="timing",
    ),
    claim(
        "O-P5",
        "The fused kernel takes about as long as eager's multiplication alone: GELU comes free.",
        trace_ratio(fused_us, mul_us),
        _between(0.85, 1.15),
        scope="timing",
    ),
    claim(
        "O-P6",
        "The compiled forward peaks lower than eager by at least one tensor of the hidden size.",
        _saved_memory,
        lambda shown: float(shown.value) >= 1,
    ),
    claim(
        "O-P7",
        "Liger's launch follows from the shape alone: a block for each row, its threads from the number of columns.",
        in_steps("liger", _liger_launch),
        _is("8192 blocks of 256 threads for 8192 rows of 3072"),
    ),
    claim(
        "O-P8",
        "Free of Dynamo is not free of overhead: at one token and at one sequence a Liger call keeps the CPU busy at "
        "least a fifth longer than an eager one.",
        smallest(*(paired(_SWEEP[2], _SWEEP[0], "enqueue", place) for place in (ONE_TOKEN, ONE_SEQUENCE))),
        lambda shown: float(shown.value) >= 1.2,
        scope="timing",
    ),
    claim(
        "O-P9",
        "With dynamic=False every new batch size compiles; by default only the first new one does.",
        _modes,
        _is("static: 3 of 3, automatic: 1 of 3"),
    ),
    claim(
        "O-P10",
        "A call that compiles takes at least twenty times as long as one that does not.",
        _cost_of_compiling,
        lambda shown: float(shown.value) >= 20,
        scope="timing",
    ),
    claim(
        "O-P11",
        "Fusion makes the whole forward 20 to 30 % faster.",
        paired(_FORWARD[0], _FORWARD[1], "warm"),
        _between(1.2, 1.43),
        "a 20–30 % wall-time speedup",
        scope="timing",
        differs="Part 2 says no such thing; it never times a whole forward. Most of the time is in GEMMs that fusion "
        "does not touch, and the pointwise part shrinks by less than half. Ask what share of the time an "
        "optimization can reach before believing what it promises.",
        who=ARTICLE,
    ),
    claim(
        "O-P12",
        "Fusion does pay on the GPU: the compiled forward and Liger's both take less GPU time than eager's.",
        smallest(paired(_FORWARD[0], _FORWARD[1], "warm"), paired(_FORWARD[0], _FORWARD[2], "warm")),
        lambda shown: float(shown.value) > 1.02,
        scope="timing",
    ),
    claim(
        "O-P13",
        "Fusion removes 60 to 70 % of the kernel launches.",
        _launches_saved,
        _between(60, 70),
        "60–70 % less kernel launch overhead",
        scope="this-gpu",
        differs="One launch of five goes. The CPU does not even get its time back: the layers that choose the fused "
        "kernel cost more than the launch it saves. Fusion of pointwise operators saves memory traffic, not launches.",
        who=ARTICLE,
    ),
    claim(
        "O-P14",
        "Launched from Python at one token and at one sequence, the compiled forward and Liger's both take at least "
        "a tenth longer than eager's.",
        smallest(*(_slower_from_python(place, variant) for place in (ONE_TOKEN, ONE_SEQUENCE) for variant in (1, 2))),
        lambda shown: float(shown.value) >= 1.1,
        scope="timing",
    ),
    claim(
        "O-P16",
        "Keeping the tensor between in registers also keeps its precision: the compiled forward's error is at least "
        "a twentieth lower than eager's.",
        _error_ratio,
        lambda shown: float(shown.value) >= 1.05,
    ),
    claim(
        "O-P15",
        "On the GPU alone the compiled forward is faster than eager's at every size from one token up.",
        smallest(*(paired(_SWEEP[0], _SWEEP[1], "warm", place) for place in _SIZES)),
        lambda shown: float(shown.value) > 1.02,
        scope="timing",
    ),
)


def kernels() -> Html:
    """The GPU work of one eager step."""
    return tables.kernel_table("mlp/eager", recording.shown_device(), "One eager forward on the GPU")


def calls() -> Html:
    """The CUDA calls of one eager step in order, the operator that made each, and what it put on the GPU."""
    traced = recording.trace("mlp/eager", recording.shown_device())
    step = tables.middle_step(traced)
    rows: list[Sequence[Cell]] = []
    for call in step.launches:
        put = next((one for one in step.activities if traced.launch_of(one) is call), None)
        op = traced.op_of(put) if put else None
        blocks = math.prod(put.grid) if put and put.grid else None
        rows.append(
            [code(call.name), code(op.name) if op else None, code(_short(put.name), 72) if put else None, blocks]
        )
    head = ["CUDA call", "made by", "puts on the GPU", "blocks"]
    return table("The CUDA calls of one eager forward, in order", head, rows, text_columns=3)


def _short(name: str) -> str:
    return name.removeprefix("void at::native::").replace("at::native::", "")


def operators() -> Html:
    """The profiler's table of the eager steps, and below it the tree of one step."""
    device = recording.shown_device()
    listed = tables.profiler_table("mlp/eager", device, "The eager forward as the profiler's table has it")
    return Html(
        listed
        + details("The same operators, nested as they call each other", tables.dispatch_tree("mlp/eager", device))
    )


def gemm_table() -> Html:
    """The three GEMMs of eager: shape, work, kernel, time and rate in the trace, and the bare product's rate."""
    device = recording.shown_device()
    traced = recording.trace("mlp/eager", device)
    step = tables.middle_step(traced)
    rows = []
    for place, name in enumerate(("gate", "up", "down")):
        m, k, n = products(traced, step)[place]
        kernel = gemms(traced, step)[place]
        rate, sustained = flops_per_s(place)(device), bare(place)(device)
        rows.append(
            [
                name,
                f"{m}x{k}x{n}",
                code(kernel.name, 70),
                kernel_us("eager", gemms, place)(device).text,
                rate.text,
                sustained.text,
                in_words(100 * float(rate.value) / float(sustained.value), "%"),
            ]
        )
    head = ["linear", "MxKxN", "kernel", "trace", "rate", "sustained", "percent"]
    return table("The three GEMMs in the trace, and the same products bare and sustained", head, rows, text_columns=3)


def compiled_step() -> Html:
    """The GPU work and the operators of one compiled step."""
    device = recording.shown_device()
    listed = tables.kernel_table("mlp/compiled", device, "One compiled forward on the GPU")
    return Html(listed + details("What the CPU does meanwhile", tables.dispatch_tree("mlp/compiled", device)))


def liger_step() -> Html:
    """The GPU work and the operators of one step with Liger's layer, and where the layer came from."""
    device = recording.shown_device()
    origin = str(recording.load("mlp/liger", device).data["liger"])
    listed = tables.kernel_table("mlp/liger", device, "One forward with Liger's layer on the GPU")
    tree = details("What the CPU does meanwhile", tables.dispatch_tree("mlp/liger", device))
    return Html(f"<p>The layers came from {escape(origin)}.</p>{listed}{tree}")


def traffic(*variants: str) -> Html:
    """The pointwise kernels: what each has to move, its time, and its rate against a plain copy's."""
    device = recording.shown_device()
    rows: list[Sequence[Cell]] = []
    for variant in variants or ("eager", "compiled"):
        traced = recording.trace(f"mlp/{variant}", device)
        step = tables.middle_step(traced)
        for place, kernel in enumerate(pointwise(traced, step)):
            size = moved_bytes(traced, step, place)
            time = kernel_us(variant, pointwise, place)(device)
            rate = in_words(size / float(time.value) * 1e6, "bytes/s")
            percent = percent_of_copy(variant, place)(device).text
            tensors = size // hidden_bytes(traced, step)
            cells: list[Cell] = [tensors, in_words(size, "bytes"), time.text, rate, percent]
            rows.append([variant, code(op_name(traced, kernel)), *cells])
    head = ["variant", "operator", "tensors", "bytes", "time", "rate", "of a copy's"]
    return table("The pointwise part of the forward", head, rows, text_columns=2)


def footprints() -> Html:
    """The two fused kernels side by side: how the work is cut, and what a thread costs."""
    device = recording.shown_device()
    columns: dict[str, GpuActivity] = {}
    for variant in ("compiled", "liger"):
        traced = recording.trace(f"mlp/{variant}", device)
        step = tables.middle_step(traced)
        columns[variant] = pick(pointwise(traced, step), 0)
        elements = hidden_bytes(traced, step) // BF16_BYTES
    threads = {
        name: math.prod(kernel.grid or (0,)) * math.prod(kernel.block or (0,)) for name, kernel in columns.items()
    }
    rows: list[Sequence[Cell]] = [
        ["kernel", *(code(one.name, 50) for one in columns.values())],
        ["blocks", *(f"{math.prod(one.grid or (0,)):,}" for one in columns.values())],
        ["threads in a block", *(f"{math.prod(one.block or (0,)):,}" for one in columns.values())],
        ["elements for each thread", *(f"{elements / count:g}" for count in threads.values())],
        ["registers for each thread", *(str(one.registers) for one in columns.values())],
        ["percent of a copy's rate", *(percent_of_copy(name)(device).text for name in columns)],
        ["est. achieved occupancy", *(in_words(one.occupancy_percent or 0, "%") for one in columns.values())],
        ["time in the trace", *(tables.figure_cell(of(device)) for of in (fused_us, liger_us))],
    ]
    return table("Two kernels for one job", ["", "Inductor's", "Liger's"], rows)


def _ahead(step: Step) -> list[str]:
    """What began in the label before the first CUDA call."""
    span = next((op for op in step.ops if op.name == LABEL), None)
    if span is None or not step.launches:
        raise trace.TraceError(f"{step.name} has no {LABEL} or no CUDA call; make record CHAPTER=mlp")
    return [op.name for op in step.ops if op.start_us < step.launches[0].start_us and op is not span]


def pre_ops() -> Html:
    """What happens on the CPU before the first CUDA call, and how long a call takes the CPU, by variant."""
    device = recording.shown_device()
    rows = []
    for name, experiment in VARIANTS.items():
        names = _ahead(tables.middle_step(recording.trace(experiment, device)))
        listed = Html(", ".join(code(one, 40) for one in names))
        rows.append([name, listed, tables.figure_cell(enqueue(experiment)(device))])
    head = ["variant", "before the first CUDA call", "CPU time of the whole call"]
    return table(
        "What a call does before its first CUDA call, and how long it keeps the CPU", head, rows, text_columns=2
    )


def enqueue(experiment: str) -> Callable[[str], Figure]:
    """A measure: the CPU's share of a call."""
    return lambda device: of_timing(timings(experiment, device).enqueue, f"{experiment}, enqueue")


def new_shapes() -> Html:
    """Compilations so far and time of the first call, for four batch sizes in turn."""
    data = recording.load("mlp/new_shapes", recording.shown_device()).data
    shown = [data[mode] for mode in ("static", "automatic", "liger") if mode in data]
    rows = []
    for i, batch in enumerate(data["batches"]):
        pairs = [(of["compiled"][i], in_words(1e3 * of["first_call_ms"][i], "us")) for of in shown]
        rows.append([batch, *itertools.chain(*pairs)])
    titles = ("dynamic=False", "default", "Liger")[: len(shown)]
    head = ["batch", *itertools.chain(*((f"{title}: so far", "first call") for title in titles))]
    return table(
        "Four batch sizes in turn: what has been compiled so far, and how long the first call took", head, rows
    )


def bought() -> Html:
    """The three variants end to end: time on the GPU, from Python, ratios to eager, memory, error."""
    device = recording.shown_device()
    quantities = {
        "kernels": "kernels_per_step",
        "GPU time, warm": "warm_us",
        "GPU time, cold cache": "cold_us",
        "from Python, until the GPU is done": "launched_us",
        "CPU time to enqueue": "enqueue_us",
        "peak memory of a call": "peak_memory_bytes",
        "relative error": "relative_error",
    }
    listed = tables.compared(VARIANTS, quantities, device, "One forward, three ways")
    rows = [
        [title, *(tables.figure_cell(paired("mlp/eager", other, kind)(device)) for other in _FORWARD[1:])]
        for title, kind in (("GPU time, warm", "warm"), ("GPU time, cold cache", "cold"), ("from Python", "launched"))
    ]
    return Html(listed + table("How many times as fast as eager (paired timings)", ["", "compiled", "Liger"], rows))


def sweep() -> Html:
    """From one token to 16384: GPU time and time from Python of each variant."""
    heads: dict[str, Callable[[Recording, int], Cell]] = {
        "GPU": lambda found, i: _sweep_cell(found, i, "warm"),
        "Python": lambda found, i: _sweep_cell(found, i, "launched"),
    }
    return tables.sweep_table(
        SWEEPS,
        heads,
        recording.shown_device(),
        "By number of tokens: time on the GPU, and from Python until the GPU is done",
        _tokens,
    )


def _tokens(parameters: Mapping[str, int | str]) -> str:
    return f"{int(parameters['batch']) * int(parameters['seq']):,}"


def _sweep_cell(found: Recording, index: int, kind: str) -> Cell:
    timed = found.points[index].timings
    return None if timed is None else in_words(getattr(timed, kind).median_us, "us")


def reach() -> Html:
    """What fusion could have saved: the share of the pointwise part, and the speed-up if it took no time at all."""
    device = recording.shown_device()
    titles = {
        "share of the pointwise part in eager's kernel time": "pointwise_share",
        "speed-up if the pointwise part took no time": "free_pointwise",
        "speed-up that the two traces show": "trace_speedup",
        "speed-up that was timed, warm": "compiled_speedup",
        "speed-up that Part 2's own times leave room for, on its A100": "series_speedup",
    }
    return table(
        "How much there was to win",
        ["", ""],
        [[title, tables.figure_cell(FIGURES[name](device))] for title, name in titles.items()],
    )


def waiting() -> Html:
    """One token: how long Python takes, how long the GPU works, and what a CUDA graph could win."""
    device = recording.shown_device()
    rows = []
    for name, experiment in SWEEPS.items():
        timed = timings(experiment, device, ONE_TOKEN)
        win = (
            ratio(timed.launched, timed.warm) if len(timed.launched.samples_us) == len(timed.warm.samples_us) else None
        )
        times = timed.launched.median_us / timed.warm.median_us if win is None else float(win.value)
        cells = [of_timing(timed.launched), of_timing(timed.warm), Figure(100 / times, "%"), Figure(times, "x")]
        rows.append([name, *(tables.figure_cell(cell) for cell in cells)])
    head = ["", "from Python", "as a CUDA graph", "share of the time that the GPU works", "times as fast"]
    return table("One token", head, rows)


def _share(traced: Trace, step: Step) -> float:
    return 100 * trace.kernel_time_us(pointwise(traced, step)) / trace.kernel_time_us(step.kernels)


def _series_speedup(_: str) -> Figure:
    """Eager's pointwise part from the fused kernel's time, by the bytes: five tensors against three."""
    rest = sum(SERIES_GEMMS_US)
    value = (rest + SERIES_FUSED_US * 5 / 3) / (rest + SERIES_FUSED_US)
    return Figure(value, "x", origin="computed from the times that Part 2 gives for its A100, at equal bandwidth")


def _saved_us(device: str) -> Figure:
    eager, fused = (timings(name, device).warm.samples_us for name in _FORWARD[:2])
    q1, median, q3 = statistics.quantiles([a - b for a, b in zip(eager, fused, strict=True)], n=4, method="inclusive")
    return Figure(median, "us", (q1, q3), "mlp/eager less mlp/compiled, warm, in turns")


def _predicted_us(device: str) -> Figure:
    copy, _ = ceiling("compiled", "copy", device)
    return Figure(float(_saved_bytes(device).value) / copy * 1e6, "us", origin="the saved bytes at a plain copy's rate")


def _free_pointwise(device: str) -> Figure:
    share = amount("eager", "%", _share)(device)
    return Figure(1 / (1 - float(share.value) / 100), "x", origin=share.origin)


def _clock(device: str) -> Figure:
    clocks = recording.load("mlp/eager", device).circumstances.clocks
    if "sm_mhz" not in clocks:
        raise RecordingError("mlp/eager has no clocks; make record CHAPTER=mlp")
    return Figure(clocks["sm_mhz"], said=f"{clocks['sm_mhz']:,.0f} MHz", origin="nvidia-smi, just after timing")


def _kernel_time(traced: Trace, step: Step) -> float:
    return trace.kernel_time_us(step.activities)


FIGURES: Mapping[str, Callable[[str], Figure]] = {
    "order": in_steps("eager", order),
    "gate_gemm": in_steps("eager", lambda t, s: gemms(t, s)[0].name),
    "down_gemm": in_steps("eager", lambda t, s: gemms(t, s)[2].name),
    "gate_us": kernel_us("eager", gemms, 0),
    "down_us": kernel_us("eager", gemms, 2),
    "gelu_us": gelu_us,
    "mul_us": mul_us,
    "fused_us": fused_us,
    "liger_us": liger_us,
    "gemm_flops": amount("eager", "flop", lambda t, s: 2 * math.prod(products(t, s)[0])),
    "intermediate_bytes": amount("eager", "bytes", intermediate_bytes),
    "eager_bytes": amount("eager", "bytes", eager_pointwise_bytes),
    "fused_bytes": amount("compiled", "bytes", fused_pointwise_bytes),
    "saved_bytes": _saved_bytes,
    "saved_us": _saved_us,
    "predicted_us": _predicted_us,
    "fused_percent": percent_of_copy("compiled"),
    "gelu_percent": percent_of_copy("eager", 0),
    "liger_percent": percent_of_copy("liger"),
    "liger_over_inductor": trace_ratio(liger_us, fused_us),
    "trace_over_bare": _trace_over_bare,
    "clock": _clock,
    "pointwise_share": amount("eager", "%", _share),
    "free_pointwise": _free_pointwise,
    "trace_speedup": trace_ratio(amount("eager", "us", _kernel_time), amount("compiled", "us", _kernel_time)),
    "series_speedup": _series_speedup,
    "compiled_speedup": paired(_FORWARD[0], _FORWARD[1], "warm"),
    "liger_speedup": paired(_FORWARD[0], _FORWARD[2], "warm"),
    "compiled_from_python": paired(_FORWARD[0], _FORWARD[1], "launched"),
    "one_token_compiled": _slower_from_python(ONE_TOKEN, 1),
    "one_token_liger": _slower_from_python(ONE_TOKEN, 2),
    "one_token_gpu": paired(_SWEEP[0], _SWEEP[1], "warm", ONE_TOKEN),
    "compile_cost": _cost_of_compiling,
    "memory_saved": _saved_memory,
    "error_ratio": _error_ratio,
}
"""The chapter's own numbers, `#!fig mlp.<name>`."""
