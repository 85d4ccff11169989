"""The calculator of a decoder's floor: it computes what the formula says, and names what is missing."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from snippets.decoder.findings.calculator import calculator
from snippets.decoder.findings.reading import LARGE
from snippets.lab.recording.device import PROJECT
from tests.chapters.decoder.probed import READ, ceilings
from tests.lab.sample_recordings import sample_of, save_samples


@pytest.fixture
def opened(page: Page, tmp_path: Path) -> Page:
    device = save_samples(tmp_path, [sample_of("decoder/ceilings", 0.0, data=ceilings())])
    page.set_content(calculator(device))
    page.add_script_tag(path=PROJECT / "docs/assets/js/floor_calculator.js")
    return page


def test_the_floor_of_eight_billion_weights(opened: Page) -> None:
    ms = 1e3 * LARGE.read_bytes(1, 1024) / READ
    expect(opened.locator("output")).to_have_text(
        f"Floor: {ms:.2f} ms a step, {1e3 / ms:.0f} tokens/s in all. The cache is 1 % of the bytes."
    )


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (
            {"weights": "1", "cache": "100", "batch": "10", "context": "2000", "rate": "2"},
            "Floor: 2 ms a step, 5,000 tokens/s in all. The cache is 50 % of the bytes.",
        ),
        ({"weights": "0"}, "Fill in weights, texts and a rate above zero."),
        ({"batch": ""}, "Fill in weights, texts and a rate above zero."),
    ],
)
def test_what_a_reader_fills_in(opened: Page, values: dict[str, str], said: str) -> None:
    for name, value in values.items():
        opened.locator(f"[name={name}]").fill(value)
    expect(opened.locator("output")).to_have_text(said)


def test_fewer_bits_are_fewer_bytes(opened: Page) -> None:
    opened.locator("[name=context]").fill("0")
    full = opened.locator("output").inner_text().split()[1]
    opened.locator("[name=type]").select_option("0.5")
    assert float(opened.locator("output").inner_text().split()[1]) == pytest.approx(float(full) / 4, rel=0.01)


def test_without_a_script_it_is_the_formula(page: Page, tmp_path: Path) -> None:
    device = save_samples(tmp_path, [sample_of("decoder/ceilings", 0.0, data=ceilings())])
    page.set_content(calculator(device))
    expect(page.locator(".fields")).to_be_hidden()
    expect(page.get_by_text("floor = (weights")).to_be_visible()
