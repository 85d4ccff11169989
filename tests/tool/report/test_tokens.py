"""The report on a loop that produces one token per step."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from kinetoscope.__main__ import main
from kinetoscope.report.diagnosed import read_diagnosed
from kinetoscope.report.document import report_html
from kinetoscope.report.headline import headline
from kinetoscope.report.trace_report import report_data
from tests.tool.events import Event, trace_bytes
from tests.tool.report.samples import events as two_steps
from tests.tool.token_loops import answer, events, forward
from tests.tool.trace.test_replays import captured, eager, replayed


def write(folder: Path, made: Sequence[Event], name: str = "tokens.json") -> Path:
    path = folder / name
    path.write_bytes(trace_bytes(*made, deviceProperties=[{"name": "NVIDIA H200"}]))
    return path


@pytest.mark.parametrize(("sequences", "subject"), [(1, "A token"), (4, "A token of each of 4 sequences")])
def test_a_token_is_the_unit(tmp_path: Path, sequences: int, subject: str) -> None:
    """Tokens of 18 launches, 10 us apart, of 3 us each, and a prompt of 18 of 9 us."""
    diagnosed = read_diagnosed(write(tmp_path, events(answer(64, 6, sequences=sequences))))
    assert len(forward(1, 1)) == 18
    assert headline(diagnosed) == (
        f"{subject} takes 180 µs and the GPU works 30 % of it. The GPU waits for launches: a fix saves at most "
        "126 µs per token (70 %)."
    )
    assert report_data(diagnosed)["token_loop"] == {
        "tokens": 6,
        "sequences": sequences,
        "us_per_token": 180.0,
        "before_first_us": 18 * 9.0,
    }
    html = report_html(diagnosed)
    assert (
        "time of a token</span><strong>180 µs</strong><small>median of 6; before the first, 162 µs of GPU work" in html
    )
    assert "6 steps, marked by: tokens of a loop." in html


def test_the_prompts_of_further_requests_are_told(tmp_path: Path) -> None:
    """Five requests of a prompt of 162 us and six tokens of 54 us: four prompts are 648 of 2,430 us."""
    requests = [each for _ in range(5) for each in answer(64, 6)]
    assert headline(read_diagnosed(write(tmp_path, events(requests)))).startswith(
        "A token takes 180 µs and the GPU works 37 % of the time from the first step until its work is done; 27 % of "
        "the GPU's time is between tokens, as in prompts. The GPU waits for launches"
    )


def test_other_steps_are_no_tokens(tmp_path: Path) -> None:
    assert report_data(read_diagnosed(write(tmp_path, two_steps())))["token_loop"] is None
    texts = read_diagnosed(write(tmp_path, events(forward(64, 64) * 5)))
    assert headline(texts).startswith("An iteration takes 180 µs ")
    assert report_data(texts)["token_loop"] is None


@pytest.mark.parametrize("capture", [captured(), eager()])
def test_a_capture_names_the_operators_of_replays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], capture: list[Event]
) -> None:
    trace, other = write(tmp_path, replayed()), write(tmp_path, capture, "capture.json")
    assert main(["report", str(trace), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["operators_from_capture"] == 0
    out = tmp_path / "out.html"
    assert main(["report", str(trace), "--capture", str(other), "--json", "-o", str(out)]) == 0
    assert json.loads(capsys.readouterr().out)["operators_from_capture"] == 24
    assert "24 activities of graph replays have the operators of the capture, by their order." in out.read_text("utf-8")


def test_a_capture_of_something_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace, other = write(tmp_path, replayed()), write(tmp_path, two_steps(), "other.json")
    assert main(["report", str(trace), "--capture", str(other), "--json"]) == 2
    assert "other.json: has no sequence of launches that equals a graph replay of" in capsys.readouterr().err
    assert main(["report", str(trace), str(trace), "--capture", str(other), "--json"]) == 2
    assert "--capture goes with one trace" in capsys.readouterr().err
