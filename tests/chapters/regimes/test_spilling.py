"""Reading machine code: instructions, the loop that multiplies, spilled registers."""

from __future__ import annotations

import pytest

from snippets.regimes.experiments.spilling import (
    TRIED,
    Instruction,
    code_summary,
    counts,
    instructions,
    main_loop,
    tile_name,
)
from snippets.regimes.findings.spilling import excerpt

PRINTED = """
	code for sm_90a
		Function : linear_gelu_kernel
	.headerflags	@"EF_CUDA_TEXMODE_UNIFIED"
        /*0000*/                   LDC R1, c[0x0][0x28] ;                        /* 0x00000a00ff017b82 */
                                                                                 /* 0x000e620000000800 */
        /*0010*/                   STL.64 [R1+0x8], R24 ;                        /* 0x0000082201007387 */
                                                                                 /* 0x000fe20000100800 */
        /*0020*/                   HGMMA.64x256x16.F32.BF16 R24, gdesc[UR4] ;    /* 0x01e00000040079f0 */
                                                                                 /* 0x000fe20008701818 */
        /*0030*/              @!P0 LDL.LU.64 R24, [R1+0x8] ;                     /* 0x0000080001187983 */
                                                                                 /* 0x000ee20000300a00 */
        /*0040*/               @P1 BRA 0x10 ;                                    /* 0xfffffffc00341947 */
                                                                                 /* 0x000fea000383ffff */
       /*10050*/                   BRA 0x10050;                                  /* 0xfffffffc00341947 */
                                                                                 /* 0x000fc0000383ffff */
"""


def test_instructions_have_their_addresses() -> None:
    assert instructions(PRINTED) == [
        Instruction(0x0, "LDC R1, c[0x0][0x28]"),
        Instruction(0x10, "STL.64 [R1+0x8], R24"),
        Instruction(0x20, "HGMMA.64x256x16.F32.BF16 R24, gdesc[UR4]"),
        Instruction(0x30, "@!P0 LDL.LU.64 R24, [R1+0x8]"),
        Instruction(0x40, "@P1 BRA 0x10"),
        Instruction(0x10050, "BRA 0x10050"),
    ]


def test_the_loop_is_what_a_backward_branch_repeats() -> None:
    code = instructions(PRINTED)
    assert main_loop(code) == code[1:5]
    assert counts(code) == {"instructions": 6, "stores": 1, "loads": 1, "products": 1}
    summary = code_summary(code, listed=True)
    assert summary["loop"] == {"instructions": 4, "stores": 1, "loads": 1, "products": 1}
    assert summary["listing"][0] == "STL.64 [R1+0x8], R24"
    assert "listing" not in code_summary(code, listed=False)


def test_of_two_loops_the_one_that_multiplies_counts() -> None:
    code = [
        Instruction(0x0, "FADD R0, R0, R1"),
        Instruction(0x10, "BRA.U 0x0"),
        Instruction(0x20, "HMMA.16816.F32.BF16 R4, R8, R10, R4"),
        Instruction(0x30, "BRA 0x20"),
        Instruction(0x40, "BRA 0x60"),
    ]
    assert main_loop(code) == code[2:4]


def test_code_without_a_loop_has_none() -> None:
    assert main_loop(instructions(PRINTED)[:2]) == []


def test_a_tile_is_named_by_all_that_differs() -> None:
    names = [tile_name(sizes) for tried in TRIED.values() for sizes in tried]
    assert names[-2:] == ["128x256x64, 4 warps, 3 stages", "256x256x64, 8 warps, 2 stages"]
    assert all(len(set(tried)) == len(tried) for tried in TRIED.values())


@pytest.mark.parametrize(
    ("listing", "shown"),
    [
        (["STL A", "IADD", "STL B", "STL C"], ["STL A", "STL B", "STL C"]),
        (["STL A", "STL B", "STL C", "STL D", "HGMMA E"], ["STL A", "STL B", "…", "HGMMA E"]),
        (["IADD", "BRA"], []),
    ],
)
def test_an_excerpt_keeps_the_first_two_of_a_run(listing: list[str], shown: list[str]) -> None:
    assert excerpt(listing) == shown
