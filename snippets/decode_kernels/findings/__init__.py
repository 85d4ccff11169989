"""The figures and claims of the chapter decode_kernels: what a decode step waits for, and what fewer kernels save.

names.py      variants, sizes and experiments
waits.py      reading, boundaries and tails: what a step waits for, and what they predict
rungs.py      the steps one after the other: times, rates, energy; rung_pieces.py draws them
several_texts.py     steps for eight texts
parts.py      each part of a step alone, and the roofline
integers.py   int8 weights
answers.py    long answers against float32
tiles.py      how the kernels cut their weights
missing.py    what the last step still misses, by part
in_transformers.py   `generate` with these kernels in its layers
choosing.py   which step to take
"""

from snippets.decode_kernels.findings import (
    answers,
    choosing,
    in_transformers,
    integers,
    missing,
    parts,
    rungs,
    several_texts,
    tiles,
    waits,
)

PARTS = (waits, rungs, several_texts, parts, answers, integers, tiles, missing, in_transformers, choosing)
