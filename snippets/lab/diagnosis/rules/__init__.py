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
from snippets.lab.diagnosis.rules.float64_kernels import RULE as FLOAT64_KERNELS
from snippets.lab.diagnosis.rules.layout_conversions import RULE as LAYOUT_CONVERSIONS
from snippets.lab.diagnosis.rules.needless_copies import RULE as NEEDLESS_COPIES
from snippets.lab.diagnosis.rules.no_tensor_cores import RULE as NO_TENSOR_CORES
from snippets.lab.diagnosis.rules.optimizer_loop import RULE as OPTIMIZER_LOOP
from snippets.lab.diagnosis.rules.slow_products import RULE as SLOW_PRODUCTS
from snippets.lab.diagnosis.rules.small_copies import RULE as SMALL_COPIES
from snippets.lab.diagnosis.rules.tiny_kernels import RULE as TINY_KERNELS
from snippets.lab.diagnosis.rules.type_round_trips import RULE as TYPE_ROUND_TRIPS
from snippets.lab.diagnosis.rules.unfused_attention import RULE as UNFUSED_ATTENTION
from snippets.lab.diagnosis.rules.unfused_elementwise import RULE as UNFUSED_ELEMENTWISE

RULES: tuple[Rule, ...] = (
    FLOAT64_KERNELS,
    LAYOUT_CONVERSIONS,
    NEEDLESS_COPIES,
    NO_TENSOR_CORES,
    OPTIMIZER_LOOP,
    SLOW_PRODUCTS,
    SMALL_COPIES,
    TINY_KERNELS,
    TYPE_ROUND_TRIPS,
    UNFUSED_ATTENTION,
    UNFUSED_ELEMENTWISE,
)
