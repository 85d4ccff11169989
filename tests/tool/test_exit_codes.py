"""Exit codes of all commands: success, a check that does not pass, wrong usage, damaged files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kinetoscope.__main__ import COMMANDS, main
from kinetoscope.exit_codes import CHECKS, DAMAGED, EXIT_CODES, INTERRUPTED, NO, OK, USAGE
from tests.tool.events import Event, kernel, launch, op, step, trace_bytes
from tests.tool.recorded import PROJECT, RECORDINGS

FAULTS = RECORDINGS / "nvidia-h200" / "training_step"
HIGH = str(FAULTS / "tensor_cores_before.trace.json.gz")
LOW = str(FAULTS / "healthy.trace.json.gz")
ONCE = str(FAULTS / "cold_before.trace.json.gz")
SOUND = str(PROJECT / "tests/traces/mlp_eager.json.gz")
OTHER = str(PROJECT / "tests/traces/mlp_compile.json.gz")
README = str(PROJECT / "README.md")


def exit_code(*arguments: str) -> int:
    try:
        return main(arguments)
    except SystemExit as ended:
        return int(str(ended.code or 0))


@pytest.fixture
def cut(tmp_path: Path) -> str:
    """A trace that ends in the middle."""
    (whole,) = ranks(tmp_path, 0.0)
    path = tmp_path / "cut.json"
    path.write_bytes(Path(whole).read_bytes()[:-400])
    return str(path)


@pytest.fixture
def no_gpu(tmp_path: Path) -> str:
    """A trace that called the GPU, and of which the GPU's events are lost: `doctor` fails it."""
    path = tmp_path / "no_gpu.json"
    events = [each for n in range(9) for each in (step(n, n * 100.0, 90), launch(n + 1, n * 100.0 + 5))]
    path.write_bytes(trace_bytes(*events, op("aten::mm", 1, 20)))
    return str(path)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["report", HIGH, "--json"], OK),
        (["report", LOW, "--json", "--fail-on", "medium"], OK),
        (["report", LOW, "--json", "--fail-on", "low"], NO),
        (["report", HIGH, "--json", "--fail-on", "high"], NO),
        (["report", ONCE, "--json", "--fail-on", "low"], OK),
        (["report", SOUND, OTHER, "--json", "--fail-on", "high"], USAGE),
        (["report", HIGH, "--fail-on", "severe"], USAGE),
        (["report", HIGH, "--json", "--top", "0"], USAGE),
        (["report", HIGH, "--json", "--site", "javascript:alert(1)"], USAGE),
        (["report", README], USAGE),
        (["summary", SOUND], OK),
        (["summary", README], USAGE),
        (["diff", SOUND, OTHER], OK),
        (["diff", SOUND, README], USAGE),
        (["doctor", SOUND], OK),
        (["doctor", README], USAGE),
        (["merge", SOUND, OTHER, "-o", SOUND], USAGE),
        (["merge", README, "-o", "job.json.gz"], USAGE),
        (["decode", "nvjet_sm90_tst_128x64"], OK),
        (["decode"], USAGE),
        (["schema", "report"], OK),
        (["schema", "trace"], USAGE),
        (["skill"], OK),
        (["skill", "more"], USAGE),
        (["open", README], USAGE),
        ([], USAGE),
    ],
    ids=lambda value: " ".join(Path(each).name for each in value) if isinstance(value, list) else None,
)
def test_exit_codes(arguments: list[str], code: int) -> None:
    assert exit_code(*arguments) == code


def test_every_command_has_a_code_here() -> None:
    marks = test_exit_codes.pytestmark[0].args[1]  # type: ignore[attr-defined]
    assert {arguments[0] for arguments, _ in marks if arguments} == {*COMMANDS}
    assert {*EXIT_CODES} == {OK, NO, USAGE, DAMAGED, INTERRUPTED} == {0, 1, 2, 3, 130}
    assert {name.split()[0] for name in CHECKS} <= {*COMMANDS}


def test_a_check_on_a_damaged_file_neither_passes_nor_fails(cut: str) -> None:
    assert exit_code("report", cut, "--json") == OK, "without a check it is read as far as it goes"
    assert exit_code("report", cut, "--json", "--fail-on", "high") == DAMAGED
    assert exit_code("diff", cut, cut, "--gate", "3") == DAMAGED


def test_ctrl_c(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt() -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr("kinetoscope.skill.skill_text", interrupt)
    assert exit_code("skill") == INTERRUPTED
    assert capsys.readouterr().err == "\nstopped\n"


def test_doctor_fails_what_cannot_be_read_as_it_is(no_gpu: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("doctor", no_gpu, "--json") == NO
    data = json.loads(capsys.readouterr().out)
    assert (data["kind"], data["ok"], data["file"]) == ("doctor", False, "no_gpu.json")


def ranks(folder: Path, *late_us: float) -> list[str]:
    """Ranks of a job, each with an allreduce that begins late by so much."""
    paths = []
    for rank, late in enumerate(late_us):
        events: list[Event] = []
        for number in range(4):
            at, args = number * 1000.0, {"Collective name": "allreduce", "Process Group Name": "0", "Group size": 2}
            first, second = number * 2 + 1, number * 2 + 2
            events += [step(number, at, 900), launch(first, at + 10), launch(second, at + 20)]
            events += [kernel("gemm", first, at + 30, 100 + late)]
            events += [kernel("ncclDevKernel_AllReduce_Sum", second, at + 140 + late, 500 - late, **args)]
        path = folder / f"rank{rank}.json"
        path.write_bytes(trace_bytes(*events, distributedInfo={"rank": rank, "world_size": len(late_us)}))
        paths.append(str(path))
    return paths


def test_ranks_fail_on_their_findings_and_late_ranks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = ranks(tmp_path, 0.0, 300.0)
    assert exit_code("report", *paths, "--json") == OK
    data = json.loads(capsys.readouterr().out)
    assert (data["kind"], data["straggler"]["rank"]) == ("ranks", 1)
    assert exit_code("report", *paths, "--json", "--fail-on", "high") == NO
    digest = str(tmp_path / "0.digest.json")
    assert exit_code("report", paths[0], "--digest-only", "-o", digest) == OK
    capsys.readouterr()
    assert exit_code("report", digest, paths[1], "--json", "--fail-on", "high") == USAGE
    assert "give one trace, or the traces of all ranks and no digest" in capsys.readouterr().err


def test_the_report_is_written_even_if_the_check_fails(tmp_path: Path) -> None:
    path = tmp_path / "slow.html"
    assert exit_code("report", HIGH, "-o", str(path), "--fail-on", "high", "--site", "https://example.org/book") == NO
    html = path.read_text(encoding="utf-8")
    assert 'href="https://example.org/book/training_step_faults/#no-tensor-cores"' in html
