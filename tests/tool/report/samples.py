"""A trace written by hand with a known answer, and stub rules."""

from __future__ import annotations

from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path

import kinetoscope.diagnosis.rule as rules
from kinetoscope.diagnosis.diagnose import diagnose
from kinetoscope.diagnosis.facts import Facts
from kinetoscope.report.diagnosed import DiagnosedTrace
from kinetoscope.trace.events import Trace
from kinetoscope.trace.kineto import read_trace
from kinetoscope.trace.totals import summarize
from tests.tool.events import Event, kernel, launch, memcpy, op, step, trace_bytes

GEMM = "nvjet_sm90_tst_128x64_64x8_1x2_h_bz_TNT"


def events() -> list[Event]:
    """Two steps of 100 us. Each: the CPU works 10..40 and waits 40..90; a GEMM runs 30..70 and a copy 80..85."""
    found: list[Event] = []
    for number, at in ((1, 0.0), (2, 100.0)):
        identity = number * 10
        found += [
            step(number, at, 100),
            op("aten::mm", at + 10, 20, external=identity),
            launch(identity, at + 15, 5, external=identity),
            launch(identity + 1, at + 30, 10, name="cudaMemcpyAsync"),
            launch(identity + 2, at + 40, 50, name="cudaStreamSynchronize"),
            kernel(GEMM, identity, at + 30, 40, **{"External id": identity}),
            memcpy(identity + 1, at + 80, 5, 4096),
        ]
    return found


def waits(facts: Facts) -> Sequence[rules.Finding]:
    calls = tuple(call for call in facts.step.calls if "Synchronize" in call.name)
    measured = (rules.Measured("calls that wait", 1.0, "calls"),)
    return [rules.Finding(SYNC, "The CPU waits <50 us>", "train.py:3", calls, 50.0, 30.0, measured=measured)]


def small(facts: Facts) -> Sequence[rules.Finding]:
    return [rules.Finding(SMALL, "One small copy", "", facts.step.memcpys, 5.0, 2.0, advice="Leave it.")]


SYNC = rules.Rule(
    "sync", "Waits", "Calls that wait.", "1 %", "a list, https://example.org/rules.", "Wait later.", waits,
    confidence="high", mistaken="The wait is wanted.",
)  # fmt: skip
SMALL = rules.Rule("small", "Copies", "Copies.", "1 us", "our own", "Copy less.", small)
SHAPES = rules.Rule(
    "shapes", "Slow products", "x", "x", "x", "x", lambda _: rules.CannotTell(SHAPES, "no shapes", "record_shapes=True")
)


def traced(*more: Event) -> Trace:
    return read_trace(trace_bytes(*events(), *more, deviceProperties=[{"name": "NVIDIA H200"}]))


def diagnosed(trace: Trace, *checked: rules.Rule, name: str = "train.json.gz") -> DiagnosedTrace:
    return DiagnosedTrace(name, diagnose(trace, checked), summarize(trace))


def write(folder: Path, *more: Event) -> Path:
    path = folder / "train.json"
    path.write_bytes(trace_bytes(*events(), *more))
    return path


class Page(HTMLParser):
    """Elements, attributes, ids and text of a report; `open_elements` is empty if all are closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.open_elements: list[str] = []
        self.wrong: list[str] = []
        self.texts: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag != "meta":
            self.open_elements.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        if not self.open_elements or self.open_elements.pop() != tag:
            self.wrong.append(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def of(self, attribute: str) -> list[str]:
        return [value for name, value in self.attributes if name == attribute]

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())
