"""Kernel names: the page's decoder agrees with Python's on every name, and reads what a reader pastes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from kinetoscope.trace.kernel_names import decode_kernel_name, kernel_name_data
from tests.lab.samples import EVIL
from tests.site.conftest import Opened
from tests.site.serving import ROOT

CORPUS = json.loads((ROOT / "tests" / "tool" / "trace" / "kernel_names.json").read_text(encoding="utf-8"))
NAMES = list(dict.fromkeys(one["name"] for one in CORPUS))
ODD = [*EVIL, "", " ", "\n", "toString", "__proto__", "ünïcödé_gemm", "🙂" * 70, "void " * 30, "triton_poi_" * 3000]
ODD += ["triton_poi_fused_mul_add_0", "triton_red_fused_relu_gelu_gelu_1"]  # Inductor sorts its operators
"""What no kernel is called."""
SHORT = """(names) => names.map((name) => {
  const box = document.getElementById("kernel-decoder"), input = box.querySelector("textarea");
  input.value = name;
  input.dispatchEvent(new Event("input"));
  return box.querySelector(".short").textContent;
})"""


@pytest.fixture
def page(opened: Opened) -> Page:
    return opened("kernel_names/").page


def test_both_decoders_agree_on_every_name(page: Page) -> None:
    names = NAMES + ODD
    ours = [kernel_name_data(decode_kernel_name(name)) for name in names]
    theirs: list[dict[str, Any]] = page.evaluate("(names) => names.map(decodeKernelName)", names)
    assert len(theirs) == len(names) > 120
    differing = [(name, mine, other) for name, mine, other in zip(names, ours, theirs, strict=True) if mine != other]
    assert differing[:3] == []
    assert [list(data) for data in theirs] == [list(data) for data in ours], "the fields stand in one order"


def test_both_call_a_kernel_the_same(page: Page) -> None:
    assert page.evaluate(SHORT, NAMES) == [decode_kernel_name(name).short for name in NAMES]


def test_a_pasted_name_is_decoded(page: Page) -> None:
    box = page.get_by_role("textbox", name="A kernel's name")
    expect(box).not_to_be_empty()
    assert decode_kernel_name(box.input_value()).library != "unknown"
    name = "sm80_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_stage4_warpsize2x2x1_tensor16x8x16_kernel"
    box.fill(name)
    kernel = decode_kernel_name(name)
    decoder = page.locator("#kernel-decoder")
    expect(decoder.locator(".short")).to_have_text(kernel.short)
    terms, values = decoder.locator("dt").all_inner_texts(), decoder.locator("dd").all_inner_texts()
    facts = dict(zip(terms, values, strict=True))
    assert {
        "library": kernel.library,
        "tile": kernel.tile,
        "arch": kernel.arch,
        "dtype": kernel.dtype,
    }.items() <= facts.items()
    rows = [row.split("\t") for row in decoder.locator("tbody tr").all_inner_texts()]
    assert [(token, meaning) for token, meaning, _ in rows] == [(one.token, one.meaning) for one in kernel.tokens]
    assert [basis.split()[1] for _, _, basis in rows] == [one.basis for one in kernel.tokens]


def test_a_pasted_name_stays_text(page: Page) -> None:
    page.evaluate("() => { window.alert = () => { throw new Error('ran') } }")
    for name in EVIL:
        page.get_by_role("textbox", name="A kernel's name").fill(name)
        expect(page.locator("#kernel-decoder .short")).to_contain_text(decode_kernel_name(name).short[:20])
        expect(page.locator("#kernel-decoder").locator("img, script, b")).to_have_count(0)


def test_the_raw_name_is_one_step_away(opened: Opened) -> None:
    page = opened("linear/").page
    button = page.get_by_role("button", name="cuBLAS GEMM").filter(visible=True).first
    raw = page.locator(f"#{button.get_attribute('popovertarget')}")
    expect(raw).to_be_hidden()
    button.press("Enter")
    expect(raw).to_be_visible()
    assert decode_kernel_name(raw.locator("code").inner_text()).short == button.inner_text()
    page.keyboard.press("Escape")
    expect(raw).to_be_hidden()
    expect(button).to_be_focused()


def test_without_scripts_the_page_says_where_to_ask(opened: Opened) -> None:
    page = opened("kernel_names/", scripts=False).page
    expect(page.get_by_role("textbox", name="A kernel's name")).to_have_count(0)
    expect(page.get_by_text("kinetoscope decode NAME").first).to_be_visible()
