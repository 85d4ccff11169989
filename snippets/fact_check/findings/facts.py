"""The articles' statements as tables, with the verdicts of every recorded device, and how many of them hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import NamedTuple

from kinetoscope.html import Cell, Html, code, table, with_code
from kinetoscope.trace.text import shortened
from snippets.fact_check.findings.sources import DOCUMENTS, Document
from snippets.fact_check.findings.statements import STATEMENTS, Statement
from snippets.fact_check.findings.values import LABELS, POST_CLAIMS
from snippets.lab.finding import Device, Figure, Measure
from snippets.lab.finding.book import Verdict, find_claim, judge
from snippets.lab.finding.claim import STATUSES, Source
from snippets.lab.finding.device import all_devices
from snippets.lab.finding.other_device import H100, recorded, tester
from snippets.lab.page import show as show
from snippets.lab.page.nav import claim_page
from snippets.lab.page.verdict import COUNTED, SIGNS, claim_anchor, opened_device, status_badge

CHAPTER = "fact_check"
HEAD = ("the article says", "verdict", "measured", "what we tested", "why it differs")
FOLDED = HEAD[3:]
LONGEST = 60
"""Characters of a measured value in a table; the ledger has the rest."""
ANCHORS = {"1minai": "deep-dive", "Summary of Part 2": "digest", "TokenFeed": "news", "n1n.ai": "n1n"}
"""Short name of an article -> its section of the page."""
NO_VERDICT = '<span class="word not-measured">– no verdict</span>'
"""One example neither confirms nor refutes what may happen, or happens often."""
READ = '<span class="word not-measured">– read, not measured</span>'


def _claims_of_others() -> tuple[str, ...]:
    """The claims of the tables whose value is a source's."""
    named = [
        claim_id
        for statements in STATEMENTS.values()
        for key, statement in statements.items()
        for claim_id in (*_claim_ids(key, statement),)
    ]
    return tuple(claim_id for claim_id in dict.fromkeys([*named, *POST_CLAIMS]) if find_claim(claim_id)[1].source)


def _claim_ids(key: str, statement: Statement) -> tuple[str, ...]:
    """The claims that test a statement; none if its key is a word."""
    return () if key.islower() else (key, *statement.also)


# -- the tables


def article(device: Device, name: str, *keys: str) -> Html:
    """The statements of an article, each with what was measured on every recorded device.

    Raises `ValueError` unless `keys` are those of the article's statements: a page names the claims that it shows.
    """
    statements = next(of for document, of in STATEMENTS.items() if document.short == name)
    if {*keys} != {*statements}:
        raise ValueError(f"name these statements of {name} on the page: {sorted({*statements} ^ {*keys})}")
    rows = [_row(device, key, statements[key]) for key in keys]
    return table(
        f"{name}: what the article says, and what we measured", HEAD, rows, text_columns=len(HEAD), folded=FOLDED
    )


def posts(device: Device, *claim_ids: str) -> Html:
    """Claims of the posts: the sentence and the post's value, and what was measured on every recorded device.

    Raises `ValueError` for a claim of ours.
    """
    head = ("the series says", "verdict", "measured")
    rows = []
    for claim_id in claim_ids:
        _, claim = find_claim(claim_id)
        if claim.source is None:
            raise ValueError(f"{claim_id} is ours: no post says it")
        value = f"{claim.source.who}: {shortened(claim.source.value, LONGEST)}"
        said = Html(f"{_linked(with_code(claim.sentence), _place(device, claim_id))}<small>{escape(value)}</small>")
        verdicts = _verdicts(device, claim_id)
        differs = any(verdict.status == "differs" for verdict in verdicts)
        plain = _first_sentence(claim.why) if differs else ""
        rows.append([said, Html(f"{_badges(verdicts)}<br>{with_code(plain)}"), _measured([verdicts])])
    return table("What the series says, and what we measured", head, rows, text_columns=len(head))


def _row(device: Device, key: str, statement: Statement) -> list[Cell]:
    """The quote, the verdict in a sentence, the values; in the fold the claims' sentences and reasons."""
    claim_ids = _claim_ids(key, statement)
    claims = [find_claim(claim_id)[1] for claim_id in claim_ids]
    quote = statement.quote or (claims[0].source.value if claims and claims[0].source else "")
    anchors = "".join(
        f'<span id="{escape(claim_anchor("claim", claim_id, opened_device(device)))}"></span>'
        for claim_id in claim_ids
        if find_claim(claim_id)[0] == CHAPTER
    )
    said = Html(f"{anchors}{_linked(f'“{escape(quote)}”', statement.link)}")
    verdicts = [_verdicts(device, claim_id) for claim_id in claim_ids]
    tested = "".join(f"<p>{with_code(claim.sentence)}</p>" for claim in claims)
    differing = [of[0].claim.why for of in verdicts if any(each.status == "differs" for each in of)]
    why = "".join(f"<p>{with_code(reason)}</p>" for reason in filter(None, differing))
    folds = (Html(each) if each else None for each in (tested, why))
    plain = Html(f"{_badges([each for of in verdicts for each in of])}<br>{with_code(statement.plain)}")
    return [said, plain, _measured(verdicts), *folds]


def _linked(text: str, link: str) -> str:
    return f'<a href="{escape(link)}">{text}</a>'


def _place(device: Device, claim_id: str) -> str:
    """The address of a claim's verdict on its chapter's page."""
    chapter, _ = find_claim(claim_id)
    return f"../{claim_page(chapter, claim_id)}/#{claim_anchor('claim', claim_id, opened_device(device))}"


def _first_sentence(text: str) -> str:
    return text.partition(". ")[0].removesuffix(".") + "." if text else ""


def _verdicts(device: Device, claim_id: str) -> list[Verdict]:
    """The verdicts of all recorded devices; of a value for one GPU, those of that GPU's recordings if there are any."""
    chapter, claim = find_claim(claim_id)
    found = [judge(claim, chapter, each) for each in all_devices(device.root)]
    return [verdict for verdict in found if verdict.status != "cannot be tested"] or found


def _badges(verdicts: Sequence[Verdict]) -> Html:
    """Each status once; without a source no verdict."""
    found = {verdict.status: verdict for verdict in verdicts if verdict.claim.source is not None}
    if not verdicts:
        return Html(READ)
    return Html(" ".join(status_badge(found[status]) for status in STATUSES if status in found) or NO_VERDICT)


def _measured(verdicts: Sequence[Sequence[Verdict]]) -> Html:
    """The values of a statement's claims on every device, with a sign at each where the verdicts differ."""
    statuses = {verdict.status for of in verdicts for verdict in of if verdict.claim.source is not None}
    return Html("".join(f"<p>{_values(of, has_signs=len(statuses) > 1)}</p>" for of in verdicts))


def _values(verdicts: Sequence[Verdict], *, has_signs: bool) -> str:
    """What the value is; `H200: 5 to 4`, a line for each device, or for those that agree."""
    lines: dict[tuple[str, str], list[str]] = {}
    for verdict in verdicts:
        if verdict.measured is not None:
            sign = f"{SIGNS[verdict.status]} " if has_signs else ""
            names = lines.setdefault((sign, _value(verdict.measured.text)), [])
            names.append(verdict.device.short_name.partition(" ")[0])
    label = f"<small>{escape(LABELS[of])}</small>" if (of := verdicts[0].claim.id) in LABELS else ""
    return label + "<br>".join(f"{sign}{escape(', '.join(names))}: {value}" for (sign, value), names in lines.items())


def _value(text: str) -> Html:
    return code(text, LONGEST) if "_" in text else Html(escape(shortened(text, LONGEST)))


# -- how many hold


def source_verdict(verdict: Verdict) -> Verdict:
    """The verdict of the recorded device that the source's value is for; without one, the verdict unchanged."""
    source = verdict.claim.source
    if source is None or verdict.status != "cannot be tested":
        return verdict
    there = tester(verdict.device, source)
    return judge(verdict.claim, verdict.chapter, there) if there else verdict


class Judged(NamedTuple):
    """A claim of a source with its verdict on a device."""

    source: Source
    verdict: Verdict


def judged(device: Device, claim_ids: Iterable[str] = ()) -> list[Judged]:
    """The claims of others on a device: these, or all of the tables. Raises `ValueError` for one of ours."""
    found = []
    for claim_id in claim_ids or _claims_of_others():
        chapter, claim = find_claim(claim_id)
        if claim.source is None:
            raise ValueError(f"{claim_id} is ours: it has no source to check")
        found.append(Judged(claim.source, judge(claim, chapter, device.whole)))
    return found


def counted(device: Device) -> list[Judged]:
    """Other authors' claims on a device; claims that it cannot test are judged on the recorded device of their
    value."""
    return [Judged(each.source, source_verdict(each.verdict)) for each in judged(device)]


def tally(device: Device) -> Html:
    """How many claims of each source hold, differ or are undecided on a device.

    A value for another recorded GPU counts as that GPU judges it.
    """
    found = counted(device)
    rows: list[Sequence[Cell]] = [
        [_document(document), *_numbers([each for each in found if each.source.who == document.who])]
        for document in DOCUMENTS
    ]
    rows.append([Html("<strong>all</strong>"), *_numbers(found)])
    others = dict.fromkeys(each.verdict.device for each in found if each.verdict.device.name != device.name)
    caption = f"How many claims of each source hold on the {device.short_name}"
    caption += "".join(f" (values for an {_model(each)} are judged on the {each.short_name})" for each in others)
    return table(caption, ("source", "hold", "differ", "undecided"), rows)


def _numbers(found: Sequence[Judged]) -> tuple[Cell, ...]:
    """The numbers of claims that hold, differ and are undecided; None for zero."""
    counts = Counter(each.verdict.status for each in found)
    undecided = counts.total() - counts["holds"] - counts["differs"]
    return tuple(str(number) if number else None for number in (counts["holds"], counts["differs"], undecided))


def _statuses(found: Sequence[Judged]) -> str:
    """`3 hold, 6 differ`."""
    counts = Counter(each.verdict.status for each in found)
    return ", ".join(
        f"{counts[status]} {COUNTED[status][counts[status] != 1]}" for status in STATUSES if counts[status]
    )


def _document(document: Document) -> Cell:
    """A source's short name as a link to its section."""
    return Html(_linked(escape(document.short), f"#{ANCHORS.get(document.short, 'posts')}"))


def _model(device: Device) -> str:
    """`A100` or `H100`: the GPU that judges a value."""
    return "H100" if "H100" in device.short_name else "A100"


def h100_verdicts(device: Device) -> Figure:
    """How the recorded H100 judges the claims that only an H100 can test: `4 hold, 1 differs`."""
    there = recorded(device, H100)
    for_it = [each for each in judged(there) if each.source.only_there and each.source.device == H100]
    return Figure(len(for_it), origin=f"{there.short_name}, {len(for_it)} claims", display=_statuses(for_it))


FIGURES: Mapping[str, Measure] = {
    "wall_time_verdict": lambda device: Figure(judge(find_claim("FC25")[1], CHAPTER, device.whole).status),
}
