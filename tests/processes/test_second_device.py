"""All that the book shows of a second device that differs in every way: it is green, and says of whom it speaks.

Every fence and every figure is built here, for both devices; that pages of two devices build is seen in tests/site.
"""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from snippets.lab.__main__ import main
from snippets.lab.cache import end_build, start_build
from snippets.lab.finding.accepted import accept_statuses
from snippets.lab.finding.book import Verdict, judge_all
from snippets.lab.finding.claim import STATUSES
from snippets.lab.finding.device import Device
from snippets.lab.page.sections import with_claims
from snippets.lab.recording.device import DEFAULT_DEVICE
from snippets.lab.tools.archive import pack_archive, unpack_archive
from tests.book.pieces import pieces
from tests.lab.samples import BOOK
from tests.second_device import DISTURBED, NAME, make_up

AS_MANY = re.compile(r"On the (\w+), of (\d+) claims (\d+) holds?, (\d+) differs?, (\d+) (?:is|are) inconclusive")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The book's recordings, and those of the made-up device."""
    folder = tmp_path_factory.mktemp("project") / "recordings"
    shutil.copytree(BOOK.root / DEFAULT_DEVICE, folder / DEFAULT_DEVICE)
    make_up(folder)
    return folder


@pytest.fixture(scope="module")
def judged(root: Path) -> dict[str, dict[str, Verdict]]:
    """Device -> claim -> its verdict there. Those on the default device are the accepted ones."""
    devices = (Device(root, name) for name in (DEFAULT_DEVICE, NAME))
    found = {device.name: {verdict.claim.id: verdict for verdict in judge_all(device)} for device in devices}
    default = found[DEFAULT_DEVICE]
    accept_statuses(Device(root, DEFAULT_DEVICE), {name: verdict.status for name, verdict in default.items()})
    return found


def lab(root: Path, *arguments: str) -> tuple[int, list[str], list[str]]:
    """Exit code, lines, and lines of the errors of a command; in this process, which has read the traces."""
    with shown(root), redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
        code = main([*arguments])
    return code, out.getvalue().splitlines(), err.getvalue().splitlines()


@contextmanager
def shown(root: Path) -> Iterator[None]:
    """These recordings are the book's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RECORDINGS", str(root))
        patch.setenv("DEVICE", "")
        start_build()
        yield
        end_build()


ACCEPT = f"python -m snippets.lab claims --accept --device {NAME}"


def test_it_is_new_then_accepted_then_a_flip_is_reported(root: Path, judged: dict[str, dict[str, Verdict]]) -> None:
    code, lines, errors = lab(root, "claims", "--check")
    assert (code, errors) == (0, [f"{NAME} is new: no verdict was accepted yet. To accept them: {ACCEPT}"])
    counts = Counter(verdict.status for verdict in judged[NAME].values())
    assert min(counts[status] for status in STATUSES) > 0, "made up so that every verdict occurs"
    counted = ", ".join(f"{counts[status]} {status}" for status in STATUSES)
    assert [line.partition(":")[0] for line in lines[-2:]] == [DEFAULT_DEVICE, NAME]
    assert lines[-1] == f"{NAME}: {counted}"

    code, lines, errors = lab(root, "claims", "--accept", "--device", NAME)
    accepted = counted.replace(f"{counts['not measured']} not measured", "0 not measured")
    assert (code, errors, lines[-1]) == (0, [], f"{NAME}: accepted {accepted}")
    assert lab(root, "claims", "--check")[::2] == (0, [])

    path = root / NAME / "accepted.json"
    statuses = json.loads(path.read_text())
    claim_id = next(claim_id for claim_id, status in statuses.items() if status == "holds")
    path.write_text(json.dumps(statuses | {claim_id: "differs"}))
    code, _, errors = lab(root, "claims", "--check")
    path.unlink()
    assert code == 1
    assert errors[0].startswith(f"{claim_id} on {NAME}: holds, but differs was accepted; see ")
    assert errors[1:] == [f"Read the text beside these claims again. If it is right: {ACCEPT}"]


def test_it_is_listed_and_never_red(root: Path) -> None:
    code, lines, errors = lab(root, "list", "--check")
    assert (code, errors) == (0, [])
    mine = lines[lines.index(NAME) :]
    missing = sum(line.split()[-1] == "missing" for line in mine)
    assert missing > 0
    assert f"{missing} not recorded yet for {NAME}: on a machine with that GPU run make record" in mine


def test_its_recordings_travel(root: Path, tmp_path: Path) -> None:
    count = pack_archive(root, NAME, tmp_path / "recordings.tar.gz")
    imported = unpack_archive(tmp_path / "there" / "recordings", tmp_path / "recordings.tar.gz")
    assert imported.kept == []
    assert len(imported.written) == len(list((root / NAME).glob("*/*.json")))
    assert count == len(list((root / NAME).glob("*/*.*")))


@pytest.fixture(scope="module")
def book(root: Path) -> dict[str, str]:
    """Page -> all that its fences and figures show, with its list of claims."""
    found = defaultdict[str, list[str]](list)
    with shown(root):
        for place, build in pieces():
            found[re.split(r"[.:]", place.removeprefix("docs/"))[0]].append(build())
        return {name: with_claims("\n".join(parts)) for name, parts in found.items()}


def test_its_panels_are_beside_the_default_ones(book: dict[str, str]) -> None:
    mlp = book["mlp"]
    panels = Counter(re.findall(r'<(?:div|details) class="device(?: other)?" data-device="([^"]+)"', mlp))
    assert panels[NAME] == panels[DEFAULT_DEVICE] >= 30
    assert "recording of this chapter: run <code>make record" in book["attention"]
    linear = book["linear"]
    assert linear.count("Disturbed while it was recorded") == 1
    assert f"<code>{DISTURBED}</code>" in linear.split("Disturbed while it was recorded")[1][:1000]


def test_a_verdict_that_differs_names_both_devices(judged: dict[str, dict[str, Verdict]], book: dict[str, str]) -> None:
    """But on the page of the fact check, where a cell has the figures of all devices."""
    by_id = {name: verdict for name, verdict in judged[NAME].items() if verdict.chapter != "fact_check"}
    pages = "".join(book.values())
    boxes = dict(reversed(re.findall(rf'id="claim-([^"]+)-{NAME}">(.*?)</p>', pages)))
    assert {name.lower() for name, verdict in by_id.items() if verdict.status != "not measured"} <= boxes.keys()
    for claim_id, there in by_id.items():
        verdict = judged[DEFAULT_DEVICE][claim_id]
        if there.status == "not measured":
            continue  # where nothing of a chapter is recorded, one line says so
        told = f"On the H200, for which this page was written, the claim {verdict.status}."
        contradicts = there.status != verdict.status and there.status != "cannot be tested"
        is_told = contradicts and verdict.status in ("holds", "differs")
        assert (told in boxes[verdict.claim.id.lower()]) == is_told, verdict.claim.id


def test_the_ledger_counts_each_device(judged: dict[str, dict[str, Verdict]], book: dict[str, str]) -> None:
    text = re.sub(r"<[^>]+>", "", book["claims"])
    found = {short: tuple(map(int, counts)) for short, *counts in AS_MANY.findall(text)}
    for short, name in (("H200", DEFAULT_DEVICE), ("T100", NAME)):
        counts = Counter(verdict.status for verdict in judged[name].values())
        assert found[short] == (counts.total(), counts["holds"], counts["differs"], counts["inconclusive"])


def test_where_pages_open_with_it_the_ledger_leads_to_its_verdicts(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Panels of the other device may be in a file of their own, where no link of the ledger leads."""
    found = defaultdict[str, list[str]](list)
    with shown(root):
        monkeypatch.setenv("DEVICE", NAME)
        for place, build in pieces():
            if (page := re.split(r"[.:]", place.removeprefix("docs/"))[0]) in ("claims", "mlp", "attention"):
                found[page].append(build())
        seen = {page: with_claims("".join(parts)) for page, parts in found.items()}
    seen = {page: re.sub(r"<noscript>.*?</noscript>", "", html, flags=re.DOTALL) for page, html in seen.items()}
    links = re.findall(r'href="\.\./(mlp|attention)/#(claim-[^"]+)"', seen["claims"])
    assert len(links) > 100
    assert {page for page, _ in links} == {"mlp", "attention"}, "recorded there, and not"
    for page in ("mlp", "attention"):
        ids = set(re.findall(r' id="(claim-[^"]+)"', seen[page]))
        assert {anchor for of, anchor in links if of == page} <= ids
