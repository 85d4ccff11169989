"""The report as a file: its parts, its links, what stands in it, and that names stay text."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace
from pathlib import Path

import pytest

from kinetoscope.diagnosis.pages import PAGES
from kinetoscope.diagnosis.rule import CannotTell
from kinetoscope.diagnosis.rules import RULES
from kinetoscope.report.diagnosed import read_diagnosed
from kinetoscope.report.document import report_html
from kinetoscope.report.headline import headline
from kinetoscope.trace.events import GpuActivity, MemoryEvent, PythonFunction, Trace, Uncounted
from kinetoscope.trace.kineto import read_trace
from tests.tool.events import annotation, kernel, launch, op, step, trace_bytes
from tests.tool.recorded import DEVICE, RECORDINGS
from tests.tool.report.samples import SHAPES, SMALL, SYNC, Page, diagnosed, events, traced

EVIL = "</title></style><script>alert(1)</script><img src=x onerror=alert(1)>\"' \x1b[2J\u202e&amp;"


def sections(page: Page) -> list[str]:
    return [value for value in page.of("id") if re.fullmatch(r"[a-z-]+", value) and f"{value}-title" in page.of("id")]


def page(trace: Trace, *rules: object) -> Page:
    return Page(report_html(diagnosed(trace, *rules)))  # type: ignore[arg-type]


def test_headline_with_a_finding() -> None:
    assert headline(diagnosed(traced(), SMALL, SYNC)) == (
        "A step takes 100 µs and the GPU works 45 % of it. Waits: a fix saves at most 30.0 µs per step (30 %)."
    )


def test_what_costs_time_once_promises_no_saving_per_step() -> None:
    """A first step of 9 ms before two of 100 us."""
    events = []
    for number, (start, lasts) in enumerate(((0, 9000), (9000, 100), (9100, 100))):
        events += [step(number, start, lasts), op("aten::mm", start + 10, 60), launch(number + 1, start + 20)]
        events.append(kernel("gemm", number + 1, start + 50, 40))
    made = diagnosed(read_trace(trace_bytes(*events)), *(rule for rule in RULES if rule.name == "first-step"))
    assert headline(made).endswith("The first step takes 9.00 ms, the others 100 µs.")
    text = Page(report_html(made)).text
    assert "Saves at most 2.97 ms per step, in the mean of this trace's steps; later steps gain nothing" in text


def test_headline_of_a_gpu_that_works_on_after_the_step() -> None:
    trace = read_trace(trace_bytes(step(1, 0, 100), op("aten::mm", 10, 60), launch(1, 20), kernel("gemm", 1, 50, 90)))
    assert headline(diagnosed(trace)).startswith(
        "A step takes 100 µs and the GPU works 64 % of the time from the first step until its work is done."
    )


def test_headline_without() -> None:
    name = "nvjet_sm90_tst_128x64_64x8_1x2_h_bz_TNT"
    events = step(1, 0, 100), op("aten::mm", 10, 60), launch(1, 20), kernel(name, 1, 30, 65)
    assert headline(diagnosed(read_trace(trace_bytes(*events)))) == (
        "A step takes 100 µs and the GPU works 65 % of it. No fault was found; 100 % of the GPU's time is cuBLAS GEMM "
        "bf16 · 128x64x64 · TNT."
    )
    assert headline(diagnosed(traced())) == (
        "A step takes 100 µs and the GPU works 45 % of it. No rule found why: most of the GPU's idle time is "
        "synchronization."
    )


def test_headline_of_a_trace_that_lost_kernels() -> None:
    """Two of four launches; a finding is told all the same."""
    trace = traced(launch(70, 16), launch(71, 116))
    lost = "A step takes 100 µs and the GPU works 45 % of it. The GPU works more than that: 50 % of the launches have"
    assert headline(diagnosed(trace)) == f"{lost} no kernel in the trace. Record the trace again."
    assert headline(diagnosed(trace, SYNC)).startswith(f"{lost} no kernel in the trace. Waits: a fix saves")
    assert "2 of 4 launches (50%) have no kernel in the trace: the GPU's busy time" in page(trace).text


def test_a_gpu_that_is_idle_without_a_known_fault() -> None:
    trace = read_trace(
        trace_bytes(step(1, 0, 1000), op("aten::mm", 10, 20), launch(1, 15), kernel("gemm", 1, 20, 10), op("x", 990, 5))
    )
    why = "No rule found why: most of the GPU's idle time is Python between the operators."
    assert headline(diagnosed(trace)) == f"A step takes 1.00 ms and the GPU works 1 % of it. {why}"
    assert f"No finding. {why}" in page(trace).text


def test_headline_of_the_cpu_alone() -> None:
    trace = read_trace(trace_bytes(step(1, 0, 100), op("aten::mm", 10, 20)))
    assert headline(diagnosed(trace)) == (
        "A step takes 100 µs; the trace shows no work on a GPU. No rule found a fault: most of a step goes to code "
        "outside operators (80 %)."
    )


def test_the_parts_in_their_order() -> None:
    found = page(traced(), SYNC, SMALL, SHAPES)
    assert sections(found) == [
        *("diagnosis", "cannot-tell", "waiting", "timeline", "kernels", "operators", "counted", "made"),
    ]
    assert found.open_elements == found.wrong == []


def test_parts_that_only_some_traces_have() -> None:
    trace = traced(kernel("ncclDevKernel_AllReduce", None, 95, 3, **{"Collective name": "allreduce"}))
    function = PythonFunction("nn.Module: Linear_0", 5, 30, "412/412")
    memory = (MemoryEvent(5, 400, 400, 1000, 0), MemoryEvent(20, -400, 0, 1000, 0))
    uncounted = (Uncounted("no launch in the trace", trace.unattributed),)
    found = page(Trace(**{**fields(trace), "functions": (function,), "memory": memory, "uncounted": uncounted}))
    assert {"places", "memory"} <= set(sections(found))
    assert "no launch in the trace 1 3.00 µs" in found.text
    assert "GPU 0: allocated memory, peak 400 bytes" in found.text
    assert "Linear 22.5 µs 50.0 % 1" in found.text


def fields(trace: Trace) -> dict[str, object]:
    return {name: getattr(trace, name) for name in trace.__struct_fields__}


def test_a_finding_says_all() -> None:
    text = page(traced(), SYNC, SMALL).text
    assert "▲▲▲ high The CPU waits <50 us> Saves at most 30.0 µs per step, 30 % of it" in text
    assert "Evidence 50.0 µs per step Where train.py:3 What to do Wait later." in text
    assert "cudaStreamSynchronize runtime call show 50.0 µs 0.040 ms 0.040 ms" in text
    assert "Source of the rule a list, https://example.org/rules ." in text
    assert "▲ low One small copy Saves at most 2.00 µs per step, 2.0 % of it" in text
    assert "What to do Leave it." in text


def test_no_finding_is_a_result() -> None:
    events = step(1, 0, 100), op("aten::mm", 10, 60), launch(1, 20), kernel("gemm", 1, 30, 65)
    assert (
        "No finding. No rule found a fault that this trace can show. The kernels with the most time"
        in page(read_trace(trace_bytes(*events)), SHAPES).text
    )


def test_what_it_cannot_tell_names_the_option() -> None:
    text = page(traced(), SHAPES).text
    assert "Slow products no shapes record_shapes=True" in text


def test_rules_without_what_they_need_share_a_reason() -> None:
    other = replace(
        SHAPES,
        name="copies",
        title="Needless copies",
        find=lambda facts: CannotTell(other, "no shapes", "record_shapes=True"),
    )
    text = page(traced(), SHAPES, other).text
    assert "Slow products , Needless copies no shapes record_shapes=True" in text
    assert text.count("no shapes") == 1


def test_the_page_of_the_book_is_a_link_where_the_book_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PAGES, SYNC.name, "a_page/#item")
    made = diagnosed(traced(), SYNC)
    assert "a_page/#item" in Page(report_html(made)).text
    assert "a_page/#item" not in Page(report_html(made)).of("href")
    assert "../../a_page/#item" in Page(report_html(replace(made, book="../../"))).of("href")


def test_links_lead_somewhere_and_evidence_into_the_timeline() -> None:
    found = page(traced(), SYNC, SMALL, SHAPES)
    links, ids = found.of("href"), found.of("id")
    assert len(ids) == len(set(ids))
    assert {link[1:] for link in links if link.startswith("#")} <= set(ids)
    assert [link for link in links if link.startswith("#event-")] == ["#event-1", "#event-2"]
    assert [link for link in links if not link.startswith("#")] == ["https://example.org/rules"]
    used = {name for _, value in found.attributes for name in re.findall(r"url\(#([^)]+)\)", value)}
    assert used <= set(ids)


def test_it_makes_no_request_and_runs_one_script() -> None:
    html = report_html(diagnosed(traced(), SYNC))
    found = Page(html)
    policy = found.of("content")[0]
    (script,) = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy == (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'; "
        "form-action 'none'"
    )
    assert not {"src", "srcset", "data", "action", "onclick", "onload"} & {name for name, _ in found.attributes}
    assert not {"img", "iframe", "link", "object", "form", "base"} & set(found.elements)
    assert not re.search(r"@import|url\((?!#)", html)


def test_names_stay_text() -> None:
    evil = (
        step(1, 0, 500),
        annotation(EVIL, 5, 400),
        op(f"aten::{EVIL}", 10, 390, external=1),
        launch(1, 20, 30, name=f"cuda{EVIL}", external=1),
        kernel(EVIL, 1, 60, 40),
    )
    trace = read_trace(trace_bytes(*evil, deviceProperties=[{"name": EVIL}]))
    function = PythonFunction(f"{EVIL}.py(3): {EVIL}", 1, 300, "412/412")
    trace = Trace(**{**fields(trace), "functions": (function,), "steps_from": f"annotation '{EVIL}'"})
    html = report_html(diagnosed(trace, SYNC, name=f"{EVIL}\ud800"))
    plain = Page(re.sub(r"<(/?)title>", r"<\1text>", html))  # to this parser, a title's content is text in any case
    assert plain.elements.count("script") == 1
    assert not {"img", "b"} & set(plain.elements)
    assert [name for name, _ in plain.attributes if name.startswith("on")] == []
    assert plain.open_elements == plain.wrong == []
    assert plain.text.count("<script>alert(1)</script>") > 8
    assert not re.search("[\x00-\x09\x0b-\x1f\u202e\ud800]", html)
    assert html.encode()


def test_every_part_of_two_hundred_findings_is_bounded() -> None:
    many = [kernel(f"kernel_{index}", None, 50 + index / 10, 0.05) for index in range(3000)]
    names = [op(f"aten::operator_{index}", 50 + index / 100, 0.005) for index in range(3000)]
    html = report_html(diagnosed(traced(*many, *names), SYNC))
    assert len(html.encode()) < 1_000_000


@pytest.mark.parametrize("path", sorted((RECORDINGS / DEVICE).glob("*/*eager*.trace.json.gz")))
def test_recordings(path: Path) -> None:
    html = report_html(read_diagnosed(path, (SHAPES,)))
    assert len(html.encode()) < 1_000_000
    found = Page(html)
    assert found.open_elements == found.wrong == []
    assert len(found.of("id")) == len(set(found.of("id")))


def test_a_gpu_activity_of_no_step_is_drawn_as_a_ghost() -> None:
    other = kernel("stray", None, 90, 8)
    assert [said.split("\n")[0] for said in ghosts(traced(other))] == ["stray"]
    assert isinstance(traced(other).unattributed[0], GpuActivity)
    assert ghosts(read_trace(trace_bytes(*events()[:7]))) == []


def ghosts(trace: Trace) -> list[str]:
    html = report_html(diagnosed(trace)).replace("&#10;", "\n")
    return re.findall(r'<rect class="ghost [^>]* data-said="([^"]*)"', html)
