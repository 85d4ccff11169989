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
            "It works in operators",
            "Operators and launches follow each other without a pause, above short kernels and gaps.",
            "Launch less: compile, use CUDA graphs, a fused optimizer or a larger batch. A faster kernel changes "
            "nothing here.",
            "training_step_faults/#thousands-of-tiny-kernels",
            ("launch-bound", "optimizer-loop", "small-copies", "tiny-kernels", "tiny-operators"),
            also=("decoder/#who-waits",),
        ),
        Symptom(
            "gap-in-a-wait",
            "It waits for the GPU",
            "A synchronize call or a blocking copy: `.item()`, `print(loss)`, or `.to()` from pageable memory.",
            "Read values every hundredth step only. Copy from pinned memory with `non_blocking=True`.",
            "training_step_faults/#item-in-every-step",
            ("exposed-copies", "gpu-bubbles", "host-reads", "pageable-copies", "sync-in-step"),
            also=("training_step_faults/#pageable-copies",),
        ),
        Symptom(
            "gap-outside-pytorch",
            "It isn't in PyTorch",
            "Hardly an operator, and no CUDA call, above the gap: the loader, your own Python, or garbage collection.",
            "Raise the loader's `num_workers` and `prefetch_factor`. Record again with `with_stack=True`: it names the "
            "line.",
            "training_step_faults/#a-loader-that-stalls",
            ("garbage-collection", "loader-stall", "slow-cpu-code", "slow-python"),
        ),
    ),
)
FULL = Branch(
    "The GPU lane is full",
    "What fills it?",
    (
        Symptom(
            "products-at-the-ceiling",
            "GEMMs near the ceiling",
            "Matrix products that run nearly as fast as a large product on this GPU.",
            "Compute less: a smaller type, fewer or smaller products. No other kernel is much faster.",
            "regimes/#three-traces",
            (),
        ),
        Symptom(
            "bytes-at-the-ceiling",
            "Kernels near the copy rate",
            "Pointwise kernels and copies nearly as fast as a plain copy, or a softmax between two `bmm`.",
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
            "Neither of the two",
            "Products in float32 or float64, or products of odd shapes.",
            "Let products use tensor cores: bf16, or TF32 for float32; sizes that are multiples of eight.",
            "training_step_faults/#no-tensor-cores",
            ("float64-kernels", "no-tensor-cores", "slow-products"),
        ),
        Symptom(
            "collectives-alone",
            "Collectives alone",
            "NCCL's kernels, and no other kernel of their GPU meanwhile. Their time includes waiting for a late rank.",
            "Compare the ranks: the shortest call is the late rank's. Send during backward, or send less.",
            "your_trace/#which-rank-is-late",
            ("exposed-communication", "stragglers"),
        ),
    ),
)
UNEVEN = Branch(
    "Steps differ",
    "What stands out?",
    (
        Symptom(
            "one-giant-step",
            "One giant step",
            "One step takes many times as long as the others: mostly the first, in which everything is set up.",
            "Let the schedule warm up before it keeps a step. A later giant is a slowed or shared GPU.",
            "training_step_faults/#cold-measurements",
            ("first-step", "gpu-slowed", "profiler-overhead"),
        ),
        Symptom(
            "compiling-again",
            "It compiles again",
            "Seconds of compiling in a step with a new shape, or several compiled regions where you expect one.",
            "Read `TORCH_LOGS=recompiles,graph_breaks`. Use `mark_dynamic` for sizes that vary, or pad to a few sizes.",
            "training_step_faults/#recompilation",
            ("graph-breaks", "recompiles"),
            also=("training_step_faults/#graph-breaks",),
        ),
        Symptom(
            "memory-grows",
            "Memory grows, or runs out",
            "`cudaMalloc` and `cudaFree` inside a step, or a peak that grows with the square of the sequence.",
            "Attention in one kernel, checkpointing, steady shapes, no `empty_cache`. Fragmentation: "
            "`PYTORCH_ALLOC_CONF=expandable_segments:True`.",
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
