"""The command `claims`: its lines, its JSON, and the exit code and message of `--check`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from snippets.lab.__main__ import main
from snippets.lab.finding.device import Device
from snippets.lab.finding.figure import Figure
from snippets.lab.trace.events import TraceError
from tests.lab.conftest import Book
from tests.lab.samples import DEVICE, EVIL, claim, findings, recordings, sample, save_all


def no_steps(device: Device) -> Figure:
    raise TraceError("no steps")


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nothing is recorded: the default device is the only one."""
    return recordings(monkeypatch, tmp_path)


def test_claims_prints_a_line_for_each_claim_and_counts_them(book: Book, capsys: pytest.CaptureFixture[str]) -> None:
    book(
        mlp=findings(claim(), claim(4, id="M2"), claim(measure=no_steps, id="M3")),
        linear=findings(claim(measure=lambda device: Figure(5, conclusive=False), id="L1")),
    )
    assert main(["claims"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.splitlines() == [
        "nvidia-h200    M1    holds         5                         Five kernels.",
        "nvidia-h200    M2    differs       4                         Five kernels.",
        "nvidia-h200    M3    not measured  no steps                  Five kernels.",
        "nvidia-h200    L1    inconclusive  5                         Five kernels.",
        "1 holds, 1 differs, 1 inconclusive, 1 not measured",
    ]


def test_a_measured_text_cannot_control_the_terminal(book: Book, capsys: pytest.CaptureFixture[str]) -> None:
    book(mlp=findings(claim("\x1b[2J\nM2 holds")))
    assert main(["claims"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert "\x1b" not in lines[0]


def test_claims_prints_json(book: Book, capsys: pytest.CaptureFixture[str]) -> None:
    book(mlp=findings(claim(), claim(4, id="M2"), *(claim(name, id=f"X{index}") for index, name in enumerate(EVIL))))
    assert main(["claims", "--json"]) == 0
    ledger = json.loads(capsys.readouterr().out)
    assert [(row["id"], row["verdict"]) for row in ledger[:2]] == [("M1", "holds"), ("M2", "differs")]
    assert [row["measured"]["value"] for row in ledger[2:]] == list(EVIL)


@pytest.mark.parametrize("options", [[], ["--json"]])
@pytest.mark.parametrize(
    ("value", "expected", "message"),
    [
        (5, {}, ""),
        (4, {}, "differs, but the prose was written for holds"),
        (4, {"*": "differs"}, ""),
        (5, {"*": "differs"}, "holds, but the prose was written for differs"),
    ],
)
def test_check_fails_on_a_flipped_verdict(
    book: Book,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    value: int,
    expected: dict[str, Any],
    message: str,
) -> None:
    book(mlp=findings(claim(value, expected=expected)))
    assert main(["claims", *options]) == 0
    without_check = capsys.readouterr()
    assert without_check.err == ""
    assert main(["claims", "--check", *options]) == (1 if message else 0)
    out, err = capsys.readouterr()
    assert out == without_check.out
    assert err == (f"M1 on nvidia-h200: {message}; read mlp's page and findings.py again\n" if message else "")


def test_check_passes_a_claim_that_is_not_measured(book: Book, capsys: pytest.CaptureFixture[str]) -> None:
    book(mlp=findings(claim(measure=no_steps)))
    assert main(["claims", "--check"]) == 0
    assert capsys.readouterr().err == ""


def test_claims_covers_all_devices_or_the_named_one(book: Book, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    book(mlp=findings(claim()))
    save_all(root, sample())
    save_all(root, sample(), device="nvidia-a")
    for options, devices in ([], [DEVICE, "nvidia-a"]), (["--device", "nvidia-a"], ["nvidia-a"]):
        assert main(["claims", "--json", *options]) == 0
        assert sorted(row["device"] for row in json.loads(capsys.readouterr().out)) == sorted(devices)
