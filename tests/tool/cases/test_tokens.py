"""Token loops of others, which lie beside the checkout."""

from __future__ import annotations

import pytest

from kinetoscope.report.diagnosed import DiagnosedTrace, read_diagnosed
from kinetoscope.report.headline import headline
from kinetoscope.report.trace_report import report_data
from tests.tool.trace.public import PROJECT

TOKENS = PROJECT.parent / "shared" / "traces" / "tokens"


def read(name: str) -> DiagnosedTrace:
    path = TOKENS / f"{name}.json.gz"
    if not path.exists():
        pytest.skip("no token loops in ../shared/traces/tokens")
    return read_diagnosed(path)


def test_graph_replays_after_a_prompt() -> None:
    diagnosed = read("generate_static")
    assert headline(diagnosed) == (
        "A token takes 3.95 ms and the GPU works 43 % of it. The host reads values of every token: a fix saves at "
        "most 1.15 ms per token (29 %)."
    )
    loop = report_data(diagnosed)["token_loop"]
    assert (loop["tokens"], loop["us_per_token"]) == (7, 3950.17)
    assert [(group.reason, len(group.activities)) for group in diagnosed.trace.uncounted] == [
        ("launched before the first step", 1126)
    ]


def test_eager_tokens() -> None:
    diagnosed = read("decode_eager")
    assert headline(diagnosed).startswith("A token takes 31.4 ms and the GPU works 8 % of the time from the ")
    found = {finding.rule.name: finding for finding in diagnosed.diagnosis.findings}
    assert found["launch-bound"].title.endswith("; a token needs 1,130 launches")
    assert found["launch-bound"].saving_us_per_step == pytest.approx(28523.9, abs=0.1)
