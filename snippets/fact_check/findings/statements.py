"""What each article says, statement by statement: its words, the claims that test it, and a sentence with the verdict.

Who changes a sentence reads the verdicts of all recorded devices: `python -m snippets.lab claims`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from snippets.fact_check.findings.sources import DEEP_DIVE, DIGEST, NEWS, TUTORIAL, Document


class Statement(NamedTuple):
    """A statement of an article; its key is the claim that tests it, or a word if no recording can."""

    plain: str
    """What came out, and why."""
    link: str
    """The section or the page that shows it."""
    also: tuple[str, ...] = ()
    """Other claims that test the same words, in another way or at another size."""
    quote: str = ""
    """The article's words; empty if they are the source's value of the first claim."""


STATEMENTS: Mapping[Document, Mapping[str, Statement]] = {
    DEEP_DIVE: {
        "FC23": Statement(
            "Part 2 has no such figure. Of its five kernels one goes, and even two kernels in place of five save less "
            "of the CPU's time.",
            "#launch-overhead",
            ("O-P13", "RG18"),
        ),
        "FC25": Statement(
            "It depends on the layer and on what is fused. About half of our shapes gain a fifth, the compiled MLP "
            "gains less, and a stack of Linears loses.",
            "#wall-time",
            ("O-P11", "RG19", "RG20"),
        ),
        "FC26": Statement(
            "Only an A100 can judge these times, and the article names no batch. Where the block takes the first time "
            "on our GPUs, fusing gains less.",
            "#from-2-1-to-1-5",
        ),
        "FC47": Statement("Right: each Linear launches one kernel.", "../mlp/#how-many-kernels-run"),
        "FC33": Statement("Right, from Python: at one token the CPU sets the pace.", "#small-batches"),
        "FC34": Statement(
            "Registers aren't the cause. The fused kernel has fewer, and the GPU finishes it sooner, even at one "
            "token. The CPU takes longer.",
            "#small-batches",
        ),
        "FC8": Statement(
            "Right: on Hopper the kernels have other names, tiles and widths. Their order and number stay.",
            "../mlp/#how-many-kernels-run",
        ),
        "FC35": Statement(
            "It may happen, but fusing helps in both of our tests: with a tensor beyond the L2 cache, and under "
            "autocast.",
            "#memory",
            ("TM18",),
            "fusion might not help if the data can't stay in cache",
        ),
        "FC48": Statement(
            "One model can't say how often. In ours, such kernels take a part of the step, and matrix products about "
            "half.",
            "#memory",
            (),
            "Memory bandwidth is often the bottleneck there",
        ),
        "FC12": Statement(
            "Registers belong to threads that run, whatever the batch. Memory limits the batch, and fusing lowers its "
            "peak.",
            "#memory",
            (),
            "fused kernels can increase register pressure, potentially limiting batch size",
        ),
        "stresses": Statement(
            "Part 2 mentions neither small batches nor register pressure. It warns of shapes that change.",
            "https://huggingface.co/blog/torch-mlp-fusion#why-tuned-kernels-are-better",
            (),
            "The tutorial also stresses that fusion doesn't always win",
        ),
        "hand-roll": Statement(
            "Part 2 uses Liger's kernel, from a library, and writes none.",
            "https://huggingface.co/blog/torch-mlp-fusion#lets-use-hand-tuned-kernels",
            (),
            "it shows how to hand-roll a fused Triton kernel",
        ),
        "inductor": Statement(
            "Part 2 doesn't tune, but it explains the kernel that Inductor generates, name and all.",
            "https://huggingface.co/blog/torch-mlp-fusion#the-fused-triton-kernel",
            (),
            "HuggingFace doesn't cover auto-tuning or integration with torch.compile's inductor backend",
        ),
        "kineto": Statement(
            "They are one tool: `torch.profiler` records with Kineto.",
            "https://github.com/pytorch/kineto",
            (),
            "torch.profiler, and the newer Kineto trace",
        ),
        "shape": Statement(
            "Right of the MLP and of the GPU. A Linear of another shape comes before the MLP.",
            "https://huggingface.co/blog/torch-mlp-fusion#from-matmul-add-to-linear",
            (),
            "focuses on a single MLP shape and assumes a specific GPU architecture",
        ),
        "cycles": Statement(
            "Part 2 shows launches and a round trip to memory. It measures no bandwidth, and occupancy is only "
            "the name of a query.",
            "../regimes/",
            (),
            "launch overhead, memory bandwidth saturation, and suboptimal occupancy",
        ),
        "last-year": Statement(
            "PyTorch 2.0, which brought the compiler, is from 2023, and Part 2 from 2026.",
            "https://pytorch.org/blog/pytorch-2.0-release/",
            (),
            "Since last year, PyTorch 2.0's torch.compile",
        ),
    },
    DIGEST: {
        "FC1": Statement(
            "Right. The reshape is in the fused kernel's name, but saves no kernel: eager's reshape launches nothing.",
            "../mlp/#what-is-in-the-fused-kernel",
        ),
        "FC52": Statement(
            "The products, GELU and the multiplication do. Transposes, reshapes and views launch nothing.",
            "../mlp/#which-rows-of-the-table-are-metadata-only",
        ),
        "FC51": Statement(
            "Right: the GPU idles between kernels, most of all in the first step of the trace.",
            "../mlp/#how-many-kernels-run",
        ),
        "FC2": Statement(
            "This is the shape of the input. The tensor that fusing spares is four times as wide, and has that size.",
            "../mlp/#what-is-in-the-fused-kernel",
        ),
        "FC3": Statement(
            "Eager writes this tensor and reads it back, so twice the bytes are spared.",
            "../mlp/#what-is-in-the-fused-kernel",
        ),
        "FC43": Statement("Right of the writes alone.", "../mlp/#what-is-in-the-fused-kernel"),
        "FC44": Statement("Right: this is the input of the MLP.", "../mlp/#how-many-kernels-run"),
        "FC45": Statement(
            "Right: most of the time that compiling saves is that of the pointwise kernels.",
            "../mlp/#what-did-it-buy-end-to-end",
        ),
        "FC38": Statement("Right: the compiled forward uses less energy.", "../mlp/#what-did-it-buy-end-to-end"),
        "FC20": Statement(
            "Part 2 has this time from an A100, and none has recorded here yet. Our GPUs have faster memory and take "
            "less.",
            "../mlp/#does-the-compiler-always-choose-the-same-kernel",
        ),
        "FC21": Statement(
            "This time, too, is an A100's, and our GPUs take less.",
            "../mlp/#can-a-kernel-from-a-library-do-the-same",
        ),
        "FC37": Statement(
            "Part 2 has this time for one kernel, an A100's. The MLP runs four, and the three products take most of "
            "its time.",
            "../mlp/#can-a-kernel-from-a-library-do-the-same",
        ),
        "K3": Statement(
            "Inductor picks one of two launch configurations, and its choice decides which kernel is ahead.",
            "../mlp/#does-the-compiler-always-choose-the-same-kernel",
            (),
            "a gap of roughly 4 percent",
        ),
        "FC39": Statement(
            "Right to the precision of bf16. They aren't equal bit for bit, because the compiled forward rounds less "
            "often.",
            "../mlp/#what-did-it-buy-end-to-end",
        ),
        "FC11": Statement(
            "The package has Triton's source, which your machine compiles at the first call.",
            "../mlp/#what-happens-when-the-shape-changes",
        ),
        "FC10": Statement("Right for batch sizes.", "../mlp/#what-happens-when-the-shape-changes"),
        "FC53": Statement(
            "Right of the data's shape: it starts a block for each row and, by Part 2, the columns set the rest. We "
            "recorded only one number of rows.",
            "../mlp/#can-a-kernel-from-a-library-do-the-same",
        ),
        "FC54": Statement(
            "A compiled model checks its guards at every call. Liger's layer has none, as the article says.",
            "../mlp/#what-does-a-compiled-call-do-before-its-first-kernel",
        ),
        "FC9": Statement(
            "Right: the first new size compiles again, and the next ones don't.",
            "../mlp/#what-happens-when-the-shape-changes",
        ),
        "FC40": Statement(
            "Compiled for any size, the forward is no slower. The fusion makes it fast, not the fixed size.",
            "#new-shapes",
        ),
    },
    NEWS: {
        "FC5": Statement(
            "Right as arithmetic. On the GPU, Part 1 runs two kernels and a Linear runs one, because cuBLAS adds the "
            "bias to the product.",
            "../linear/#where-is-the-addition",
        ),
        "FC50": Statement(
            "Two of the three read the same input, and a multiplication joins them. Part 2 says “stack”, too, and its "
            "code has the branch.",
            "../mlp/#how-many-kernels-run",
        ),
        "FC4": Statement("Right: fewer tensors move.", "../mlp/#what-is-in-the-fused-kernel"),
        "FC46": Statement(
            "Right of these training steps. How much depends on the share that fusing reaches.",
            "../training_memory/#casts-compiled",
        ),
        "regimes": Statement(
            "Right of both posts together. Overhead and its regimes are in Part 1, and Part 2 recalls them.",
            "../regimes/",
            (),
            "the difference between overhead-bound and compute-bound regimes",
        ),
    },
    TUTORIAL: {
        "FC6": Statement(
            "This is the operator, which runs on the CPU. The kernel has another name.", "#operator-or-kernel"
        ),
        "FC49": Statement("Right, by the kernel's name.", "#operator-or-kernel"),
        "FC41": Statement(
            "Right, by the tensors' shapes: less than half of the bytes are left.",
            "../fused_mlp/#can-the-activation-ride-in-the-epilogue-of-one-linear",
        ),
        "FC28": Statement("Right in a trace, where GELU follows its Linear.", "#h100-table"),
        "FC27": Statement("Timed alone, GELU takes longer than the table says.", "#h100-table"),
        "FC29": Statement("Right at the size that fits the table best.", "#h100-table"),
        "FC30": Statement("Right at that size: two Linears and a GELU make this sum.", "#h100-table"),
        "FC31": Statement(
            "This row doesn't follow from those above it: without GELU, their sum is larger.", "#h100-table"
        ),
        "FC32": Statement(
            "Undecided: the range begins within the spread of what we measured at that size.", "#h100-table"
        ),
        "TM58": Statement(
            "You might. But a healthy step is far above this sum, too, because of gradients and optimizer states.",
            "../training_memory_peak/#memory-summary",
            (),
            "significantly higher than the sum of your weights and activations, you might be suffering from "
            "fragmentation",
        ),
        "TM53": Statement(
            "Right: `memory_summary()` tells a fragmented segment from free ones.",
            "../training_memory_peak/#memory-summary",
        ),
        "TM54": Statement(
            "Right: the table counts each operator's allocations. Only a snapshot tells whose blocks are in the way.",
            "../training_memory_peak/#memory-summary",
        ),
        "conceptual": Statement(
            "It leaves out the pointers and can't run, as its heading says. Ours does run.",
            "../fused_mlp/#can-the-activation-ride-in-the-epilogue-of-one-linear",
            (),
            "Conceptual Triton Kernel for Fused Linear + GeLU",
        ),
    },
}
