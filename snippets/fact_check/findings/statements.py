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
            "Part 2 has no such number. Compiling the MLP removes one of five kernels. Even if two kernels "
            "replace all five, a call saves less of the CPU's time than the article says.",
            "#launch-overhead",
            ("O-P13", "RG18"),
        ),
        "FC25": Statement(
            "The speedup depends on the layer and on the fused operators. At about half of our shapes, the "
            "fastest fused forward is a fifth faster than eager. The compiled MLP gains less, and our fused stack "
            "of Linears is slower than eager.",
            "#wall-time",
            ("O-P11", "RG19", "RG20"),
        ),
        "FC26": Statement(
            "Only measurements on an A100 can test these two times, and the article names no batch. When the "
            "block takes the article's first time on our GPUs, fusing saves less than the article says.",
            "#from-2-1-to-1-5",
        ),
        "FC47": Statement("Right: each Linear of the eager MLP launches one kernel.", "../mlp/#how-many-kernels-run"),
        "FC33": Statement(
            "Right for times from Python: at one token, the CPU limits the forward, and a compiled call takes the "
            "CPU longer than an eager call.",
            "#small-batches",
        ),
        "FC34": Statement(
            "Registers aren't the cause. The fused kernel uses fewer registers than eager's kernels, and even at "
            "one token, the fused forward takes the GPU less time than the unfused forward. From Python, the "
            "unfused forward is faster because it takes less CPU time.",
            "#small-batches",
        ),
        "FC8": Statement(
            "Right: on Hopper GPUs, the kernels have other names, tiles and widths than on an A100. The order and the "
            "number of the kernels stay the same.",
            "../mlp/#how-many-kernels-run",
        ),
        "FC35": Statement(
            "Fusing might not help in some cases, but fusing helps in both of our tests. One test has a tensor "
            "larger than the L2 cache, and the other test uses autocast.",
            "#memory",
            ("TM18",),
            "fusion might not help if the data can't stay in cache",
        ),
        "FC48": Statement(
            "One model can't show what happens often. In our model, kernels that come near the memory's bandwidth "
            "take a part of the step, and matrix products take about half of the step.",
            "#memory",
            (),
            "Memory bandwidth is often the bottleneck there",
        ),
        "FC12": Statement(
            "Only running threads hold registers, so registers don't limit the batch. Memory limits the batch, and "
            "fusing lowers the peak memory.",
            "#memory",
            (),
            "fused kernels can increase register pressure, potentially limiting batch size",
        ),
        "stresses": Statement(
            "Part 2 mentions neither small batches nor register pressure. Part 2 warns of shapes that change.",
            "https://huggingface.co/blog/torch-mlp-fusion#why-tuned-kernels-are-better",
            (),
            "The tutorial also stresses that fusion doesn't always win",
        ),
        "hand-roll": Statement(
            "The authors of Part 2 write no Triton kernel, but use a kernel from the library Liger.",
            "https://huggingface.co/blog/torch-mlp-fusion#lets-use-hand-tuned-kernels",
            (),
            "it shows how to hand-roll a fused Triton kernel",
        ),
        "inductor": Statement(
            "Part 2 doesn't tune kernels, but explains the kernel that Inductor generates, and the kernel's name.",
            "https://huggingface.co/blog/torch-mlp-fusion#the-fused-triton-kernel",
            (),
            "HuggingFace doesn't cover auto-tuning or integration with torch.compile's inductor backend",
        ),
        "kineto": Statement(
            "The profiler and Kineto aren't two tools: `torch.profiler` records with the library Kineto.",
            "https://github.com/pytorch/kineto",
            (),
            "torch.profiler, and the newer Kineto trace",
        ),
        "shape": Statement(
            "Right: Part 2 has one shape of an MLP and one GPU. Before the MLP, Part 2 profiles a Linear of another "
            "shape.",
            "https://huggingface.co/blog/torch-mlp-fusion#from-matmul-add-to-linear",
            (),
            "focuses on a single MLP shape and assumes a specific GPU architecture",
        ),
        "cycles": Statement(
            "Part 2 shows launches, and a tensor that is written to memory and read back. Part 2 measures no "
            "bandwidth, and mentions occupancy only in the name of a query.",
            "../regimes/",
            (),
            "launch overhead, memory bandwidth saturation, and suboptimal occupancy",
        ),
        "last-year": Statement(
            "Not last year: PyTorch 2.0 brought the compiler in 2023, and Part 2 is from 2026.",
            "https://pytorch.org/blog/pytorch-2.0-release/",
            (),
            "Since last year, PyTorch 2.0's torch.compile",
        ),
    },
    DIGEST: {
        "FC1": Statement(
            "Right: eager runs five kernels, and the compiled forward runs four. The fused kernel's name contains "
            "the reshape, but eager's reshape launches no kernel.",
            "../mlp/#what-is-in-the-fused-kernel",
        ),
        "FC52": Statement(
            "The products, GELU and the multiplication run as one kernel each. But transposes, reshapes and views "
            "launch no kernel.",
            "../mlp/#which-rows-of-the-table-are-metadata-only",
        ),
        "FC51": Statement(
            "Right: the GPU idles between kernels, and idles most in the first step of the trace.",
            "../mlp/#how-many-kernels-run",
        ),
        "FC2": Statement(
            "The quote has the shape of the MLP's input. The tensor that fusing removes is four times as wide, "
            "and this wider tensor has the size in the quote.",
            "../mlp/#what-is-in-the-fused-kernel",
        ),
        "FC3": Statement(
            "Eager writes the removed tensor and reads it back, so fusing saves twice the bytes in the quote.",
            "../mlp/#what-is-in-the-fused-kernel",
        ),
        "FC43": Statement(
            "Right: the tensor that the fused forward doesn't write has the size in the quote.",
            "../mlp/#what-is-in-the-fused-kernel",
        ),
        "FC44": Statement("Right: the MLP's input has the shape in the quote.", "../mlp/#how-many-kernels-run"),
        "FC45": Statement(
            "Right: most of the time that compiling saves was spent in pointwise kernels.",
            "../mlp/#what-did-it-buy-end-to-end",
        ),
        "FC38": Statement(
            "Right: the compiled forward uses less energy than the eager forward.", "../mlp/#what-did-it-buy-end-to-end"
        ),
        "FC20": Statement(
            "Part 2 measured this time on an A100, and we have no recording from an A100 yet. On our GPUs, which "
            "have faster memory, the kernel takes less time than in Part 2.",
            "../mlp/#does-the-compiler-always-choose-the-same-kernel",
        ),
        "FC21": Statement(
            "Part 2 measured this time on an A100, and the kernel takes less time on our GPUs than in Part 2.",
            "../mlp/#can-a-kernel-from-a-library-do-the-same",
        ),
        "FC37": Statement(
            "Part 2 measured this time for one kernel on an A100. The whole MLP runs four kernels, and three of them, "
            "the products, take most of the time.",
            "../mlp/#can-a-kernel-from-a-library-do-the-same",
        ),
        "K3": Statement(
            "Inductor picks one of two launch configurations. Inductor's choice decides whether Inductor's or "
            "Liger's kernel is faster.",
            "../mlp/#does-the-compiler-always-choose-the-same-kernel",
            (),
            "a gap of roughly 4 percent",
        ),
        "FC39": Statement(
            "Right within the precision of bf16. The two results aren't equal bit for bit, because the compiled "
            "forward rounds less often.",
            "../mlp/#what-did-it-buy-end-to-end",
        ),
        "FC11": Statement(
            "Liger's package contains Triton source code, which your machine compiles at the first call.",
            "../mlp/#what-happens-when-the-shape-changes",
        ),
        "FC10": Statement(
            "Right: Liger's kernel needs no new compilation for a new batch size.",
            "../mlp/#what-happens-when-the-shape-changes",
        ),
        "FC53": Statement(
            "Right if “data” means the data's shape. Liger's kernel starts one block for each row, and Part 2 says "
            "that the number of columns sets the other launch settings. We recorded only one number of rows.",
            "../mlp/#can-a-kernel-from-a-library-do-the-same",
        ),
        "FC54": Statement(
            "A compiled model checks its guards at every call, not only after a change. As the article says, Liger's "
            "layer has no guards.",
            "../mlp/#what-does-a-compiled-call-do-before-its-first-kernel",
        ),
        "FC9": Statement(
            "Right: the first new batch size makes `torch.compile` compile again. The next new sizes don't cause "
            "another compilation.",
            "../mlp/#what-happens-when-the-shape-changes",
        ),
        "FC40": Statement(
            "A forward compiled for any size takes no longer than a forward compiled for one size. The compiled "
            "kernel is fast because it is fused.",
            "#new-shapes",
        ),
    },
    NEWS: {
        "FC5": Statement(
            "Right for the arithmetic. On the GPU, Part 1's product and sum run as two kernels. A Linear runs one "
            "kernel, because cuBLAS adds the bias in the product's kernel.",
            "../linear/#where-is-the-addition",
        ),
        "FC50": Statement(
            "Two of the three Linears read the same input, and a multiplication joins their results. Part 2 also "
            "says “stack”, but Part 2's code shows the two branches.",
            "../mlp/#how-many-kernels-run",
        ),
        "FC4": Statement(
            "Right: the fused forward reads and writes fewer tensors than the eager forward.",
            "../mlp/#what-is-in-the-fused-kernel",
        ),
        "FC46": Statement(
            "Right for the training steps that we measured. The gain depends on the share of the step that fusing "
            "affects.",
            "../training_memory/#casts-compiled",
        ),
        "regimes": Statement(
            "Right for Part 1 and Part 2 together. Part 1 explains these regimes, and Part 2 only refers to them.",
            "../regimes/",
            (),
            "the difference between overhead-bound and compute-bound regimes",
        ),
    },
    TUTORIAL: {
        "FC6": Statement(
            "`aten::addmm` is an operator, which runs on the CPU. The kernel has another name.", "#operator-or-kernel"
        ),
        "FC49": Statement("Right: the kernel's name shows that it is from cuBLAS.", "#operator-or-kernel"),
        "FC41": Statement(
            "Right: by the tensors' shapes, the fused kernel moves less than half of the bytes that the eager "
            "kernels move.",
            "../fused_mlp/#can-the-activation-ride-in-the-epilogue-of-one-linear",
        ),
        "FC28": Statement("Right for GELU's time in a trace, where GELU follows its Linear.", "#h100-table"),
        "FC27": Statement("When GELU is timed alone, it takes longer than the table says.", "#h100-table"),
        "FC29": Statement("Right for the fused Linear, at the size that fits the table best.", "#h100-table"),
        "FC30": Statement(
            "Right at the size that fits the table best: two Linears and a GELU add up to the quoted time.",
            "#h100-table",
        ),
        "FC31": Statement(
            "The table's last row doesn't follow from the rows above it: even without GELU, the rows above it add "
            "up to more time.",
            "#h100-table",
        ),
        "FC32": Statement(
            "Our measured spread contains the lower end of the article's range. So our measurement doesn't decide "
            "whether the article is right.",
            "#h100-table",
        ),
        "TM58": Statement(
            "Fragmentation is possible. But a step without fragmentation also uses far more memory than the sum "
            "in the quote, because of gradients and optimizer states.",
            "../training_memory_peak/#memory-summary",
            (),
            "significantly higher than the sum of your weights and activations, you might be suffering from "
            "fragmentation",
        ),
        "TM53": Statement(
            "Right: `memory_summary()` distinguishes a fragmented segment from free segments.",
            "../training_memory_peak/#memory-summary",
        ),
        "TM54": Statement(
            "Right: the profiler's table counts each operator's allocations. But only a memory snapshot shows which "
            "blocks cause the fragmentation.",
            "../training_memory_peak/#memory-summary",
        ),
        "conceptual": Statement(
            "The article's kernel leaves out the pointers and can't run, as its heading says. Our kernel "
            "for a fused Linear and GELU does run.",
            "../fused_mlp/#can-the-activation-ride-in-the-epilogue-of-one-linear",
            (),
            "Conceptual Triton Kernel for Fused Linear + GeLU",
        ),
    },
}
