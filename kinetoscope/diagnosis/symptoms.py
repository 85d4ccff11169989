"""The tree from a symptom in a trace to its cause, its fix, and the section of the book that shows it.

One source for the home page, the printable sheet and the report. Each leaf names the rules that find its faults.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

RECORD = "Record one step of your loop."
HOW_TO_RECORD = "your_trace/#how-do-you-record-one"
"""The section on recording: `page/#section` below the site."""
ROOT = f"{RECORD} What does the GPU lane show?"


@dataclass(frozen=True)
class Symptom:
    """A leaf of the tree. Text in backticks is code."""

    name: str
    """`gap-in-operators`: in addresses."""
    title: str
    """The answer to its branch's question, in a phrase."""
    look_for: str
    """Which events show it, in a sentence or two."""
    do: str
    """The fix, in a sentence or two."""
    section: str
    """The section that shows it: `page/#section` below the site."""
    rules: tuple[str, ...]
    """Names of the rules that find its faults; empty if nothing is wrong."""
    also: tuple[str, ...] = ()
    """Further sections, for faults that have their own."""


@dataclass(frozen=True)
class Branch:
    """An answer to `ROOT`, and the question that distinguishes its leaves."""

    title: str
    question: str
    symptoms: tuple[Symptom, ...]


GAPS = Branch(
    "The GPU lane has gaps",
    "What does the CPU do in a gap?",
    (
        Symptom(
            "gap-in-operators",
            "The CPU runs operators",
            "On the CPU, operators and launches follow each other without a pause. The GPU runs short kernels with "
            "gaps.",
            "Launch fewer kernels: compile, or use CUDA graphs, a fused optimizer or a larger batch. In transformers, "
            'pass `cache_implementation="static"` to `generate`. A faster kernel doesn\'t shorten the step.',
            "training_step_faults/#thousands-of-tiny-kernels",
            ("launch-bound", "optimizer-loop", "small-copies", "tiny-kernels", "tiny-operators"),
            also=("decoder/#who-waits", "decoder/#ladder"),
        ),
        Symptom(
            "gap-in-a-wait",
            "The CPU waits for the GPU",
            "The CPU is in a synchronize call or a blocking copy: `.item()`, `print(loss)`, or `.to()` from pageable "
            "memory.",
            "Read losses and metrics only every hundredth step. Copy inputs from pinned memory with "
            "`non_blocking=True`.",
            "training_step_faults/#item-in-every-step",
            ("exposed-copies", "gpu-bubbles", "host-reads", "pageable-copies", "sync-in-step"),
            also=("training_step_faults/#pageable-copies",),
        ),
        Symptom(
            "gap-outside-pytorch",
            "The CPU is outside PyTorch",
            "During the gap, the CPU runs almost no operator and no CUDA call. The CPU waits for the data loader, "
            "runs your own Python, or collects garbage.",
            "Raise the loader's `num_workers` and `prefetch_factor`. To find the line of Python, record again with "
            "`with_stack=True`.",
            "training_step_faults/#a-loader-that-stalls",
            ("garbage-collection", "loader-stall", "slow-cpu-code", "slow-python"),
        ),
    ),
)
FULL = Branch(
    "The GPU lane is full",
    "What fills the GPU lane?",
    (
        Symptom(
            "products-at-the-ceiling",
            "Fast matrix products",
            "Products run nearly as fast as a large product.",
            "Use a smaller type, or compute less. No other kernel is much faster.",
            "regimes/#three-traces",
            (),
        ),
        Symptom(
            "bytes-at-the-ceiling",
            "Kernels that move bytes",
            "Pointwise kernels run nearly as fast as a plain copy, or a softmax runs between two `bmm`.",
            "Move fewer bytes: fuse with `torch.compile`, compute attention in one kernel, avoid copies between types "
            "and layouts.",
            "mlp/#what-is-in-the-fused-kernel",
            (
                "cache-maximum",
                "growing-cache",
                "layout-conversions",
                "memory-rate",
                "needless-copies",
                "prompt-logits",
                "repeated-heads",
                "type-round-trips",
                "unfused-attention",
                "unfused-elementwise",
            ),
            also=("training_step_faults/#attention-written-out",),
        ),
        Symptom(
            "below-both-ceilings",
            "Slow matrix products",
            "The matrix products are in float32 or float64, or have odd shapes.",
            "Let products use tensor cores: use bf16, TF32 for float32, and sizes that are multiples of eight.",
            "training_step_faults/#no-tensor-cores",
            ("float64-kernels", "no-tensor-cores", "slow-products"),
        ),
        Symptom(
            "collectives-alone",
            "Only collectives",
            "NCCL's kernels run alone. They may wait for a late rank.",
            "Compare the ranks: the late rank has the shortest NCCL kernel. Send gradients during backward, or send "
            "fewer bytes.",
            "several_gpus/#data-parallel",
            ("exposed-communication", "stragglers"),
            also=("several_gpus_faults/#uneven",),
        ),
    ),
)
UNEVEN = Branch(
    "The steps differ",
    "How do the steps differ?",
    (
        Symptom(
            "one-giant-step",
            "One step is much longer",
            "One step takes many times as long as the others. Usually the first step is this long, "
            "because it sets everything up.",
            "Let the schedule warm up before it keeps a step. If a later step is much longer, the GPU is shared or its "
            "clock dropped.",
            "training_step_faults/#cold-measurements",
            ("first-step", "gpu-slowed", "profiler-overhead"),
        ),
        Symptom(
            "compiling-again",
            "A step compiles again",
            "A step with a new shape compiles for seconds, or a step runs several compiled regions where you expect "
            "one region.",
            "Read the log of `TORCH_LOGS=recompiles,graph_breaks`. Use `mark_dynamic` for sizes that vary, or pad to a "
            "few sizes.",
            "training_step_faults/#recompilation",
            ("graph-breaks", "recompiles"),
            also=("training_step_faults/#graph-breaks",),
        ),
        Symptom(
            "memory-grows",
            "Memory grows or runs out",
            "A step calls `cudaMalloc` and `cudaFree`, or twice the sequence length takes four times the peak memory.",
            "Compute attention in one kernel, use checkpointing, keep shapes steady, and don't call `empty_cache`. If "
            "an allocation fails while enough memory is free, set `PYTORCH_ALLOC_CONF=expandable_segments:True`.",
            "training_memory_peak/#peak-by-phase",
            ("allocator-in-step",),
            also=("training_memory_peak/#fragmentation", "training_step_faults/#allocator-in-the-step"),
        ),
    ),
)
TREE = (GAPS, FULL, UNEVEN)


def symptoms() -> Iterator[tuple[Branch, Symptom]]:
    """Every leaf with its branch, in the order of the tree."""
    return ((branch, symptom) for branch in TREE for symptom in branch.symptoms)


def symptom_of(rule_name: str) -> tuple[Branch, Symptom] | None:
    """The leaf whose faults a rule finds, with its branch; None for a rule that is not one of `RULES`."""
    return next((each for each in symptoms() if rule_name in each[1].rules), None)
