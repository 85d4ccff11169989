"""The command `claims`: its lines, its JSON, and the exit code and messages of `--accept` and `--check`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kinetoscope.trace.events import TraceError
from snippets.lab.__main__ import main
from snippets.lab.finding.claim import Claim
from snippets.lab.finding.device import Device
from snippets.lab.finding.figure import Figure
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
        "nvidia-h200  M1    holds         5                         Five kernels.",
        "nvidia-h200  M2    differs       4                         Five kernels.",
        "nvidia-h200  M3    not measured  no steps                  Five kernels.",
        "nvidia-h200  L1    inconclusive  5                         Five kernels.",
        "nvidia-h200: 1 holds, 1 differs, 1 inconclusive, 1 not measured",
    ]


def test_claims_of_a_chapter(book: Book, capsys: pytest.CaptureFixture[str]) -> None:
    book(mlp=findings(claim(), claim(4, id="M2")), linear=findings(claim(id="L1")))
    assert main(["claims", "linear"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "nvidia-h200  L1    holds         5                         Five kernels.",
        "nvidia-h200: 1 holds, 0 differs, 0 inconclusive, 0 not measured",
    ]
    assert main(["claims", "mlp", "--json"]) == 0
    assert [row["id"] for row in json.loads(capsys.readouterr().out)] == ["M1", "M2"]
    assert main(["claims", "mpl"]) == 2
    assert "no findings of 'mpl'; did you mean mlp?" in capsys.readouterr().err
    assert main(["claims", "mlp", "--accept"]) == 2
    assert "--accept accepts all chapters of a device; leave out the chapter" in capsys.readouterr().err


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


def accepted(root: Path, device: str = DEVICE) -> dict[str, str]:
    loaded: dict[str, str] = json.loads((root / device / "accepted.json").read_bytes())
    return loaded


def test_accept_writes_what_changed(book: Book, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_all(root, sample())
    book(mlp=findings(claim(), claim(4, id="M2"), claim(id="M3"), claim(id="M4")))
    assert main(["claims", "--accept"]) == 0
    assert accepted(root) == {"M1": "holds", "M2": "differs", "M3": "holds", "M4": "holds"}
    assert capsys.readouterr().out.splitlines() == [
        f"{DEVICE}  M1: new -> holds",
        f"{DEVICE}  M2: new -> differs",
        f"{DEVICE}  M3: new -> holds",
        f"{DEVICE}  M4: new -> holds",
        f"{DEVICE}: accepted 3 holds, 1 differs, 0 inconclusive, 0 not measured",
    ]
    book(mlp=findings(claim(), claim(5, id="M2"), claim(measure=no_steps, id="M4")))
    assert main(["claims", "--accept"]) == 0
    assert accepted(root) == {"M1": "holds", "M2": "holds", "M4": "not measured"}
    assert capsys.readouterr().out.splitlines() == [
        f"{DEVICE}  M2: differs -> holds",
        f"{DEVICE}  M3: holds -> no such claim any more",
        f"{DEVICE}  M4: holds -> not measured",
        f"{DEVICE}: accepted 2 holds, 0 differs, 0 inconclusive, 1 not measured",
    ]


def test_a_new_claim_that_is_not_measured_is_not_accepted_yet(book: Book, root: Path) -> None:
    save_all(root, sample())
    book(mlp=findings(claim(), claim(measure=no_steps, id="M2")))
    assert main(["claims", "--accept"]) == 0
    assert accepted(root) == {"M1": "holds"}
    assert main(["claims", "--check"]) == 0
    book(mlp=findings(claim(), claim(4, id="M2")))
    assert main(["claims", "--check"]) == 1


def test_accept_writes_for_the_named_device_only(book: Book, root: Path) -> None:
    save_all(root, sample())
    save_all(root, sample(), device="nvidia-a")
    book(mlp=findings(claim()))
    assert main(["claims", "--accept", "--device", "nvidia-a"]) == 0
    assert accepted(root, "nvidia-a") == {"M1": "holds"}
    assert not (root / DEVICE / "accepted.json").exists()


def test_nothing_is_accepted_where_nothing_is_recorded(book: Book, capsys: pytest.CaptureFixture[str]) -> None:
    book(mlp=findings(claim()))
    assert main(["claims", "--accept"]) == 2
    assert "nothing is recorded for nvidia-h200" in capsys.readouterr().err


def doubtful(device: Device) -> Figure:
    return Figure(5, conclusive=False)


CURE = (
    f"Read the text beside these claims again. If it is right: python -m snippets.lab claims --accept --device {DEVICE}"
)


@pytest.mark.parametrize("options", [[], ["--json"]])
@pytest.mark.parametrize(
    ("before", "now", "message"),
    [
        ([claim()], [claim()], ""),
        ([claim(4)], [claim(4)], ""),
        ([claim()], [claim(4)], "differs, but holds was accepted; see mlp's page and findings"),
        ([claim(4)], [claim()], "holds, but differs was accepted; see mlp's page and findings"),
        (
            [claim()],
            [claim(measure=no_steps)],
            "not measured (no steps), but holds was accepted; see mlp's page and findings",
        ),
        (
            [claim()],
            [claim(measure=doubtful)],
            "inconclusive (the active steps of its trace disagree), but holds was accepted; "
            "see mlp's page and findings",
        ),
        ([], [claim()], "holds, and was never accepted; see mlp's page"),
        ([], [claim(measure=no_steps)], ""),  # a new chapter without recordings
        ([claim(), claim(id="M2")], [claim()], ""),  # M2 is gone: nothing to read again
    ],
)
def test_check_fails_on_a_verdict_that_was_not_accepted(
    book: Book,
    root: Path,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    before: list[Claim],
    now: list[Claim],
    message: str,
) -> None:
    save_all(root, sample())
    book(mlp=findings(*before))
    assert main(["claims", "--accept"]) == 0
    book(mlp=findings(*now))
    capsys.readouterr()
    assert main(["claims", *options]) == 0
    without_check = capsys.readouterr()
    assert without_check.err == ""
    assert main(["claims", "--check", *options]) == (1 if message else 0)
    out, err = capsys.readouterr()
    assert out == without_check.out
    assert err == (f"M1 on {DEVICE}: {message}\n{CURE}\n" if message else "")


def test_a_device_without_accepted_verdicts_is_not_wrong(
    book: Book, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A new GPU differs, and nobody has read a text beside it."""
    save_all(root, sample())
    save_all(root, sample(), device="nvidia-a")
    book(mlp=findings(claim(measure=lambda device: Figure(5 if device.name == DEVICE else 4))))
    assert main(["claims", "--accept", "--device", DEVICE]) == 0
    capsys.readouterr()
    assert main(["claims", "--check"]) == 0
    assert capsys.readouterr().err == (
        "nvidia-a is new: no verdict was accepted yet. To accept them: "
        "python -m snippets.lab claims --accept --device nvidia-a\n"
    )


def test_where_nothing_is_recorded_there_is_nothing_to_say(book: Book, capsys: pytest.CaptureFixture[str]) -> None:
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


def test_each_device_has_its_counts(book: Book, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    book(mlp=findings(claim(measure=lambda device: Figure(5 if device.name == DEVICE else 4)), claim(id="M2")))
    save_all(root, sample())
    save_all(root, sample(), device="nvidia-a100-sxm4-80gb")
    assert main(["claims"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len({line.index("M") for line in lines[:4]}) == 1, "columns, however long a device's name is"
    assert lines[4:] == [
        "nvidia-a100-sxm4-80gb: 1 holds, 1 differs, 0 inconclusive, 0 not measured",
        f"{DEVICE}: 2 holds, 0 differs, 0 inconclusive, 0 not measured",
    ]
