"""The rules, a file each; `RULES` has them in the order of their names.

float64_kernels.py      float64 by accident
layout_conversions.py   convolutions that convert the layout of their tensors
needless_copies.py      copies that change neither values nor type
no_tensor_cores.py      products on the ordinary units
optimizer_loop.py       an optimizer that updates one parameter after the other
slow_products.py        products far below the roof of their shape
small_copies.py         many small copies
tiny_kernels.py         many tiny kernels
type_round_trips.py     tensors converted to another type and back
unfused_attention.py    attention that writes its scores to memory
unfused_elementwise.py  elementwise kernels in a row
"""

from __future__ import annotations

from snippets.lab.diagnosis.rule import Rule
from snippets.lab.diagnosis.rules import (
    float64_kernels,
    layout_conversions,
    needless_copies,
    no_tensor_cores,
    optimizer_loop,
    slow_products,
    small_copies,
    tiny_kernels,
    type_round_trips,
    unfused_attention,
    unfused_elementwise,
)

RULES: tuple[Rule, ...] = (
    float64_kernels.RULE,
    layout_conversions.RULE,
    needless_copies.RULE,
    no_tensor_cores.RULE,
    optimizer_loop.RULE,
    slow_products.RULE,
    small_copies.RULE,
    tiny_kernels.RULE,
    type_round_trips.RULE,
    unfused_attention.RULE,
    unfused_elementwise.RULE,
)
