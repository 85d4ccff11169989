"""Verdicts on a page: a line for what differs, a folded list for the rest of a section, marks at figures."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from snippets.lab.experiment import UnknownName
from snippets.lab.finding.accepted import accept_statuses
from snippets.lab.finding.claim import Source, Status
from snippets.lab.finding.device import Device
from snippets.lab.finding.figure import Figure
from snippets.lab.page.frame import show
from snippets.lab.page.ledger import claims_table
from snippets.lab.page.sections import with_claims
from snippets.lab.page.verdict import claims_mark, section_claims, verdicts
from snippets.lab.recording.device import DEFAULT_DEVICE
from snippets.lab.recording.schema import NotRecorded
from tests.lab import samples
from tests.lab.conftest import Book
from tests.lab.samples import EVIL, Markup, assert_only_text, claim, sample, save_all

DEVICE, OTHER = "nvidia-t100", "nvidia-z100-80gb"


@pytest.fixture
def device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Device:
    """The one recorded device."""
    monkeypatch.setattr("snippets.lab.recording.device.this_device", lambda: None)
    device = save_all(tmp_path, sample(), device=DEVICE)
    samples.recordings(monkeypatch, device.root)
    return device


def missing(device: Device) -> Figure:
    raise NotRecorded("nothing there")


def inconclusive(device: Device) -> Figure:
    return Figure(5, conclusive=False)


def test_what_differs_is_a_line_at_its_place(book: Book, device: Device) -> None:
    four = claim(4, id="M2", sentence="Not four.", why="Because of fusion.", source=Source("Part 2", "5 kernels"))
    book(mlp=samples.findings(claim(), four))
    content = verdicts(device, "M2", "M1")
    assert content == (
        '<div class="verdicts" data-claims="M2 M1" data-search-exclude><details class="verdict differs" id="claim-m2">'
        '<summary><span class="mark"><span class="word differs">≠ differs</span></span> Not four. '
        '<span class="ours">T100: 4.</span></summary><p class="values"><span class="said">Part 2 said: 5 kernels</span>'
        ' · <span class="ours">T100: 4</span></p><p class="why">On the H200: Because of fusion.</p><p><a class="mark" '
        'href="../claims/#ledger-m2" title="claim M2 in the ledger">This claim in the ledger</a></p></details></div>'
    )
    with pytest.raises(UnknownName, match=r"^no claim 'M9'; did you mean"):
        verdicts(device, "M9")


@pytest.mark.usefixtures("device")
def test_what_holds_is_in_the_folded_list_of_its_section(book: Book) -> None:
    five = claim(source=Source("Part 2", "5 kernels"), why="Unneeded.")
    book(mlp=samples.findings(five, claim(4, id="M2", sentence="Not four."), claim(id="M3", measure=missing)))
    assert section_claims("why", ["M1", "M2", "M3"]) == (
        '<details class="held" data-search-exclude><summary>✓ 1 claim holds, – 1 claim is not measured</summary>'
        '<div id="tested-why"><div class="verdict holds" id="claim-m1"><p><a class="mark" href="../claims/#ledger-m1" '
        'title="claim M1 in the ledger"><span class="word holds">✓ holds</span></a> Five kernels.</p><p class="values">'
        '<span class="said">Part 2: 5 kernels</span> · <span class="ours">T100: 5</span></p></div>'
        '<div class="verdict not-measured" id="claim-m3"><p><a class="mark" href="../claims/#ledger-m3" '
        'title="claim M3 in the ledger"><span class="word not-measured">– not measured</span></a> Five kernels.</p>'
        '<p class="values"><span class="ours">nothing there</span></p></div></div></details>'
    )
    assert section_claims("why", ["M2"]) == ""


def test_the_list_of_each_device(book: Book, device: Device) -> None:
    save_all(device.root, sample(), device=OTHER)
    book(mlp=samples.findings(claim(measure=lambda device: Figure(5 if device.name == DEVICE else 4)), claim(id="M2")))
    content = section_claims("why", ["M1", "M2"])
    assert re.findall(r'<span class="device" data-device="([^"]+)"( hidden)?>([^<]*)</span>', content) == [
        (DEVICE, " hidden", "✓ 2 claims hold"),
        (OTHER, " hidden", "✓ 1 claim holds"),
    ]
    assert re.findall(r'id="(claim-[^"]+)"', content) == ["claim-m1", "claim-m2", f"claim-m2-{OTHER}"]
    assert f'id="claim-m1-{OTHER}"' in show("a", verdicts, "M1")
    assert claims_mark("why", ["M1"]) == (
        ' <a class="tested" href="#tested-why" title="1 tested claim at the end of this section" '
        "data-search-exclude>tested</a>"
    )
    assert ">✓ tested</a>" in claims_mark("why", ["M2"])


PAGE = """<p>Top.</p>
<h2 id="one">One</h2>
<div class="lab" data-fence="a"><figcaption>A</figcaption></div>
<div class="lab" data-fence="b"><div class="device" data-device="x"><figure><figcaption>B</figcaption></figure>
<table><caption>second</caption></table></div>
<details class="device" data-device="y"><noscript><caption>B</caption></noscript></details></div>
<div class="lab" data-fence="c"><div class="verdicts" data-claims="M1 M2"></div></div>
<p class="in-your-trace">Look.</p>
<h2 id="two">Two</h2>
<div class="lab" data-fence="d"><div class="verdicts" data-claims="M2"></div></div>
<h2 id="three">Three</h2>
"""


@pytest.mark.usefixtures("device")
def test_a_page_gets_a_list_a_section_and_a_mark_a_figure(book: Book) -> None:
    book(mlp=samples.findings(claim(), claim(id="M2")))
    one, two = section_claims("one", ["M1", "M2"]), section_claims("two", ["M2"])
    mark = claims_mark("one", ["M1", "M2"])
    expected = PAGE.replace("B</figcaption>", f"B{mark}</figcaption>").replace("B</caption>", f"B{mark}</caption>")
    expected = expected.replace('<h2 id="two">', f'{one}<h2 id="two">').replace(
        '<h2 id="three">', f'{two}<h2 id="three">'
    )
    assert with_claims(PAGE) == expected


@pytest.mark.usefixtures("device")
def test_a_figure_whose_claims_are_all_open_has_no_mark(book: Book) -> None:
    book(mlp=samples.findings(claim(4), claim(4, id="M2")))
    assert with_claims(PAGE) == PAGE


def test_a_claim_may_name_code(book: Book, device: Device) -> None:
    book(mlp=samples.findings(claim(4, id="M2", sentence="Not `aten::mm<1>`.", why="`x` is four.")))
    shown = verdicts(device, "M2")
    assert "Not <code>aten::mm&lt;1&gt;</code>." in shown
    assert "<code>x</code> is four." in shown
    assert "<code>aten::mm&lt;1&gt;</code>" in claims_table(device, "mlp")


@pytest.mark.parametrize(
    ("figure", "text"),
    [
        (
            Figure(5, conclusive=False),
            "? 1 claim is inconclusive? inconclusive Five kernels.T100: 5: the active steps of its trace disagree",
        ),
        (Figure(5, "", (5, 6)), "✓ 1 claim holds✓ holds Five kernels.T100: 5 (5 to 6)"),
    ],
)
@pytest.mark.usefixtures("device")
def test_what_a_verdict_shows(book: Book, figure: Figure, text: str) -> None:
    book(mlp=samples.findings(claim(measure=lambda device: figure)))
    assert Markup(section_claims("a", ["M1"])).text == text


ELSEWHERE = "On the H200, for which this page was written, the claim {}."


@pytest.mark.parametrize(
    ("accepted", "value", "text"),
    [
        ({}, 4, "≠ differs Five kernels. T100: 4."),
        ({}, 5, ""),
        ({}, None, ""),
        ({"M1": "holds"}, 5, ""),
        ({"M1": "holds"}, 4, f"≠ differs Five kernels. T100: 4. {ELSEWHERE.format('holds')}"),
        ({"M1": "holds"}, None, f"? inconclusive Five kernels. T100: 5. {ELSEWHERE.format('holds')}"),
        ({"M1": "differs"}, 5, f"✓ holds Five kernels. T100: 5. {ELSEWHERE.format('differs')}"),
        ({"M1": "differs"}, None, f"? inconclusive Five kernels. T100: 5. {ELSEWHERE.format('differs')}"),
        ({"M1": "inconclusive"}, 5, ""),
        ({"M1": "cannot be tested"}, 5, ""),
        ({"M1": "cannot be tested"}, None, ""),
    ],
)
def test_what_contradicts_the_text_stays_open_and_says_so(
    book: Book, device: Device, accepted: dict[str, Status], value: int | None, text: str
) -> None:
    """Without a value, the steps disagree."""
    default = save_all(device.root, sample(), device=DEFAULT_DEVICE)
    accept_statuses(default, accepted)
    book(mlp=samples.findings(claim(measure=inconclusive) if value is None else claim(value)))
    summaries = re.findall(r"<summary>(.*?)</summary>", verdicts(device, "M1"))
    assert [Markup(summary).text for summary in summaries] == ([text] if text else [])
    assert "On the H200" not in verdicts(default, "M1")


@pytest.mark.parametrize(
    ("changed", "is_open"),
    [
        ({"scope": "this-gpu"}, False),
        ({"scope": "timing"}, False),
        ({"scope": "every-gpu"}, True),
        ({"scope": "this-gpu", "is_advice": True}, True),
        ({"scope": "this-gpu", "source": Source("An article", "5 kernels")}, True),
        ({"scope": "this-gpu", "source": None}, True),
    ],
)
def test_a_value_of_the_series_gpu_is_in_the_list_where_it_differs(
    book: Book, device: Device, changed: dict[str, Any], is_open: bool
) -> None:
    measure = lambda device: Figure(4, "", (4, 4))  # noqa: E731
    given = {"source": Source("Part 2", "5 kernels"), "measure": measure, "why": "Another GPU."} | changed
    book(mlp=samples.findings(claim(**given), claim(id="M2")))
    assert ("≠ differs" in verdicts(device, "M1")) == is_open
    content = section_claims("a", ["M1", "M2"])
    counted = "✓ 1 claim holds" if is_open else "✓ 1 claim holds, ≠ 1 claim differs"
    assert f"<summary>{counted}</summary>" in content
    assert ("On the H200: Another GPU." in content) != is_open
    assert ">tested</a>" in claims_mark("a", ["M1", "M2"])


def test_a_value_of_the_series_gpu_is_open_where_the_text_says_that_it_holds(book: Book, device: Device) -> None:
    accept_statuses(save_all(device.root, sample(), device=DEFAULT_DEVICE), {"M1": "holds"})
    book(mlp=samples.findings(claim(4, scope="this-gpu", source=Source("Part 2", "5 kernels"))))
    assert ELSEWHERE.format("holds") in Markup(verdicts(device, "M1")).text


def test_a_verdict_leads_to_the_ledger(book: Book, device: Device) -> None:
    """Ids of the device that pages open with are short, as links from elsewhere have them."""
    book(mlp=samples.findings(claim(4)))
    link = '<a class="mark" href="../claims/#ledger-m1{}" title="claim M1 in the ledger">'
    assert link.format("") in verdicts(device, "M1")
    other = save_all(device.root, sample(), device=OTHER)
    content = verdicts(other, "M1")
    assert f'id="claim-m1-{OTHER}"' in content
    assert link.format(f"-{OTHER}") in content


@pytest.mark.parametrize("name", EVIL)
def test_untrusted_claims(book: Book, device: Device, name: str) -> None:
    evil = claim(name, sentence=name, why=name, id="M1", source=Source(name, name, name))
    book(mlp=samples.findings(evil, claim(id=name, measure=lambda device: Figure(1.0, display=name))))
    for content in (verdicts(device, "M1"), verdicts(device, name), show(name, verdicts, "M1")):
        assert_only_text(content, name)
    book(mlp=samples.findings(claim(name, band=lambda value: True, sentence=name, source=Source(name, name, name))))
    assert_only_text(section_claims(name, ["M1"]), name)
