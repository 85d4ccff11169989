"""Decoded kernel names in a page: the short form in place, the raw name a click away, all of it text."""

from __future__ import annotations

import hashlib
import re
from html import unescape

import pytest

from kinetoscope.html import Html
from kinetoscope.trace.kernel_names import decode_kernel_name
from snippets.lab.page.kernel_name import kernel_name_html, short_kernel_names, with_kernel_names
from tests.lab.samples import EVIL, Markup, assert_only_text
from tests.tool.trace.test_kernel_names import GELU, NVJET


def test_a_name_in_place() -> None:
    name = "nvjet_sm90_tst_64x8_64x16_1x2_h_bz_bias_TNT"
    place = f"kernel-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    assert kernel_name_html(name) == (
        f'<button type="button" class="kernel-name cublas" popovertarget="{place}">'
        f"cuBLAS GEMM bf16 + bias · 64x8x64 · TNT</button>"
        f'<span popover id="{place}" class="kernel-raw"><code>{name}</code> '
        "<span>cublas · gemm · sm90 · bf16 · 64x8x64 · TNT · with bias</span></span>"
    )


def test_an_id_is_that_of_its_name() -> None:
    """The same at every place and in every build; `page.last` numbers those of a page."""
    names = [NVJET, GELU, "\ud800", *EVIL]
    pieces = [kernel_name_html(name) for name in names]
    ids = [value for piece in pieces for key, value in Markup(piece).attributes if key == "id"]
    opened = [value for piece in pieces for key, value in Markup(piece).attributes if key == "popovertarget"]
    assert ids == opened
    assert len(set(ids)) == len(names)
    assert [kernel_name_html(name) for name in names] == pieces


@pytest.mark.parametrize("name", [*EVIL, NVJET, GELU, "a kernel with & and < in it"])
def test_a_name_in_place_is_text_within_a_sentence(name: str) -> None:
    content = kernel_name_html(name)
    assert isinstance(content, Html)
    assert_only_text(content, name)
    assert {*Markup(content).elements} == {"button", "span", "code"}


def names_in(content: str) -> list[str]:
    """The raw names behind buttons."""
    return [unescape(name) for name in re.findall(r'class="kernel-raw"><code>(.*?)</code>', content, re.DOTALL)]


def rest(content: str) -> str:
    """All else, with `_` for each of them."""
    return re.sub(r"<button.*?</button><span popover.*?</span></span>", "_", content)


@pytest.mark.parametrize(
    ("text", "names", "between"),
    [
        (NVJET, [NVJET], "_"),
        (f"{NVJET}, {GELU}", [NVJET, GELU], "_, _"),
        (f"{GELU} then {NVJET}", [GELU, NVJET], "_ then _"),
        (f"{NVJET} against {GELU}", [NVJET, GELU], "_ against _"),
        (f"{NVJET} in both cases", [NVJET], "_ in both cases"),
        (f"2 kernels: {NVJET} + {GELU}; none", [NVJET, GELU], "2 kernels: _ + _; none"),
        ("Memcpy DtoD (Device -> Device)", ["Memcpy DtoD (Device -> Device)"], "_"),
        (f"a copy, {NVJET} and Memset (Device)", [NVJET, "Memset (Device)"], "a copy, _ and _"),
        (f"it runs {NVJET} twice", [NVJET], "it runs _ twice"),
        ("nothing here, and <b>nothing</b> there", [], "nothing here, and &lt;b&gt;nothing&lt;/b&gt; there"),
        ("1.5 µs (of 3)", [], "1.5 µs (of 3)"),
        ("", [], ""),
        ("(((", [], "((("),
        (")) , >", [], ")) , &gt;"),
    ],
)
def test_names_within_text(text: str, names: list[str], between: str) -> None:
    content = with_kernel_names(text)
    assert names_in(content) == names
    assert rest(content) == between


@pytest.mark.parametrize("name", EVIL)
def test_text_around_names_stays_text(name: str) -> None:
    assert_only_text(with_kernel_names(f"{name}, {NVJET} + {name}"), name, NVJET)


@pytest.mark.parametrize("name", [NVJET, GELU])
def test_short_names_are_plain_text(name: str) -> None:
    text = f"one <b>, {name}; two"
    assert short_kernel_names(text) == f"one <b>, {decode_kernel_name(name).short}; two"
    assert short_kernel_names("64 calls of aten::mm") == "64 calls of aten::mm"
