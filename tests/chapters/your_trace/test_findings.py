"""The page on a reader's own trace: what its fences show of the book's recordings and of the rules."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kinetoscope import __version__
from kinetoscope.diagnosis.pages import PAGES
from kinetoscope.diagnosis.rules import RULES
from snippets.lab.finding import Device, NotRecorded, TraceError
from snippets.lab.finding.book import figure
from snippets.lab.finding.device import all_devices
from snippets.your_trace.findings import (
    ceilings,
    compared,
    examples,
    finding,
    first_lines,
    rules,
    traced_busy,
    traced_step,
    without_installing,
)
from snippets.your_trace.publish import publish_reports
from snippets.your_trace.reports import EXAMPLES
from tests.lab.samples import BOOK, Markup, sample, save_all
from tests.tool.events import op, trace_bytes

FAULTS = {
    "matmul_add/item_4096": "sync-in-step",
    "attention/naive": "unfused-attention",
    "mlp/eager": "unfused-elementwise",
}
NAME = f"kinetoscope-{__version__}-py3-none-any.whl"
DEVICES = all_devices(BOOK.root)


def test_the_examples_teach_three_faults() -> None:
    assert list(EXAMPLES.values()) == list(FAULTS)
    for experiment, rule in FAULTS.items():
        assert finding(BOOK, experiment, rule).saving_us_per_step > 0


def test_the_tool_is_installed_from_the_site() -> None:
    """The theme writes the address of the site into the empty element."""
    assert f"\npip install <span data-site></span>wheel/{NAME}\nkinetoscope doctor" in first_lines(BOOK)
    assert f'<a href="../wheel/{NAME}" download>{NAME}</a>' in without_installing(BOOK)
    assert Markup(without_installing(BOOK)).text.startswith(
        f"uvx --from wheel/{NAME} kinetoscope report trace.json.gz\n"
    )


@pytest.mark.parametrize("device", DEVICES, ids=lambda device: device.name)
def test_every_example_has_a_report_where_the_page_links_to(device: Device, tmp_path: Path) -> None:
    written = {path.relative_to(tmp_path).as_posix() for path in publish_reports(tmp_path, BOOK.root)}
    links = re.findall(r'href="\.\./(reports/[^"]+)"', examples(device))
    assert len(links) == len(EXAMPLES)
    assert written >= set(links)
    assert len(written) == len(EXAMPLES) * len(DEVICES)


def test_a_report_names_its_trace_and_links_to_the_book(tmp_path: Path) -> None:
    publish_reports(tmp_path, BOOK.root)
    html = (tmp_path / f"reports/{BOOK.name}/matmul_add-item_4096.html").read_text(encoding="utf-8")
    name = f"docs/recordings/{BOOK.name}/matmul_add/item_4096.trace.json.gz"
    assert f"<h1>{name}</h1>" in html
    assert f"kinetoscope open {name}" in html
    assert f'<a href="../../{PAGES["sync-in-step"]}"><code>' in html
    assert '<a href="../../#see-gap-in-a-wait">The GPU lane has gaps: The CPU waits for the GPU</a>' in html


def test_what_is_not_recorded_has_no_report(tmp_path: Path) -> None:
    device = save_all(tmp_path / "recordings", sample("mlp/eager"))
    written = publish_reports(tmp_path / "site", device.root)
    assert [path.name for path in written] == ["mlp-eager.html"]
    with pytest.raises(NotRecorded, match="make record CHAPTER=matmul_add"):
        examples(device)


def test_a_trace_of_another_gpu_that_has_no_report(tmp_path: Path) -> None:
    """Nothing is published, nothing links there, and the build goes on."""
    empty = trace_bytes(op("aten::mm", 10, 20))
    device = save_all(tmp_path / "recordings", *map(sample, EXAMPLES.values()), trace=empty, device="nvidia-t100")
    assert publish_reports(tmp_path / "site", device.root) == []
    with pytest.raises(TraceError, match="no GPU kernels"):
        examples(device)


def test_a_finding_that_is_not_there() -> None:
    with pytest.raises(TraceError, match="optimizer-loop finds nothing in mlp/eager on nvidia-h200"):
        finding(BOOK, "mlp/eager", "optimizer-loop")


@pytest.mark.parametrize("device", DEVICES, ids=lambda device: device.name)
@pytest.mark.parametrize("name", ["attention_saved", "mlp_saved"])
def test_mending_saves_no_more_than_the_ceiling(device: Device, name: str) -> None:
    share = figure(f"your_trace.{name}", device)
    assert share.unit == "%"
    assert 0 < share.number <= share.bounds[1] <= 100


@pytest.mark.parametrize("device", DEVICES, ids=lambda device: device.name)
def test_the_gaps_of_the_eager_mlp_are_the_profilers(device: Device) -> None:
    """As the page says: the trace shows gaps, a loop without the profiler takes as long as its GPU work."""
    run = device["mlp/eager"]
    from_python_us, interleaved_us = run.timing("from_python").median_us, run.timing().median_us
    assert from_python_us == pytest.approx(interleaved_us, rel=0.05)
    assert traced_step(device).number > 1.2 * from_python_us
    assert traced_busy(device).number < 80
    with pytest.raises(TraceError, match="launch-bound finds nothing"):
        finding(device, "mlp/eager", "launch-bound")


def test_ceilings_and_what_was_saved() -> None:
    text = Markup(ceilings(BOOK)).text
    assert "Attention writes its scores to memory" in text
    assert "mlp/eager → mlp/compiled" in text


@pytest.mark.parametrize("device", DEVICES, ids=lambda device: device.name)
def test_compiling_replaces_two_kernels_by_one(device: Device) -> None:
    text = " ".join(Markup(compared(device)).text.split())
    assert "replaced GELU (ATen, vectorized) + mul (ATen, vectorized) → Inductor:" in text
    assert text.count("same") >= 2


def test_every_rule_is_listed_with_its_own_words() -> None:
    html = rules(BOOK)
    text = " ".join(Markup(html).text.split())
    assert html.count("<details") == len(RULES)
    assert text.startswith(f"There are {len(RULES)} rules.")
    for rule in RULES:
        assert f'id="rule-{rule.name}"' in html
        for words in (rule.title, rule.looks_for, rule.threshold, rule.advice, rule.source):
            assert " ".join(words.replace("`", "").split()) in text
    assert html.count("In this book:") == len(PAGES)
    titles = re.findall(r"<summary>(.*?) <code>", html)
    assert titles == sorted(titles)
