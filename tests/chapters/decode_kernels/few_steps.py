"""python -m tests.chapters.decode_kernels.few_steps [outside]: some decode steps, for a tool that watches kernels."""

from __future__ import annotations

import sys
from dataclasses import replace

import torch
import triton
import triton.language as tl

from tests.chapters.decode_kernels.test_gpu import CASES, FEW, FIRST, started

WATCHED = [FIRST, replace(FIRST, int8=True), FEW, CASES[2]]
"""One text, one text in int8, 8 texts, 16 texts."""
KINDS = ("plain_kernels", "kernels", "one_kernel")
STEPS = 2


@triton.jit
def decode_outside_kernel(out: tl.tensor) -> None:
    tl.store(out + tl.arange(0, 64), 1.0)


def run() -> int:
    """Run each kind of step for each case, and return how many steps ran."""
    count = 0
    for case in WATCHED:
        for kind in KINDS if case.batch == 1 else KINDS[:2]:
            step, _ = started(replace(case, answer=STEPS), kind)
            for _ in range(STEPS):
                step()
                count += 1
            torch.cuda.synchronize()
    return count


def main() -> None:
    if sys.argv[1:] == ["outside"]:
        decode_outside_kernel[(1,)](torch.empty(32, device="cuda"))
        torch.cuda.synchronize()
    else:
        print(f"{run()} steps")


if __name__ == "__main__":
    main()
