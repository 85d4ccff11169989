"""python -m tests.chapters.decode_kernels.few_steps KIND|outside: a few decode steps, to be watched."""

from __future__ import annotations

import sys
from dataclasses import replace

import torch
import triton
import triton.language as tl

from tests.chapters.decode_kernels.test_gpu import CASES, FEW, FIRST, Case, place, started

WATCHED = [FIRST, replace(FIRST, int8=True), FEW, CASES[2]]
"""One text, one text in int8, 8 texts, 16 texts."""
STEPS = 2


def watched(kind: str) -> list[Case]:
    """What runs of this kind: the compilation of the whole step takes many seconds."""
    return [case for case in WATCHED if kind != "one_kernel" or case.batch == 1]


@triton.jit
def decode_outside_kernel(out: tl.tensor) -> None:
    tl.store(out + tl.arange(0, 64), 1.0)


def run(kind: str) -> int:
    """Run this kind of step behind each case's prompt, and return how many steps ran."""
    count = 0
    for case in watched(kind):
        step, first = started(replace(case, answer=STEPS), kind)
        step.restart(first, place(case.prompt))
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
        print(f"{run(sys.argv[1])} steps")


if __name__ == "__main__":
    main()
