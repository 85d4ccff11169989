"""A band means what its sentence says: `about twice` is 1.8 to 2.2, `at least a fifth longer` begins at 1.2."""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import inf

import pytest

from snippets.lab.finding.band import Interval
from snippets.lab.finding.book import all_claims, judge
from tests.lab.samples import BOOK

CLAIMS = {
    claim_id: (chapter, claim)
    for claim_id, (chapter, claim) in all_claims().items()
    if isinstance(claim.band, Interval)
}
OTHERWISE: dict[str, str] = {"F69": "the band is that of the inverse: eight, within 2 %"}
"""Claim -> why its band is wider than its words."""
NUMBERS = dict(one=1, two=2, three=3, four=4, five=5, six=6, seven=7, eight=8, nine=9, ten=10, eleven=11)
PARTS = dict(half=2, third=3, quarter=4, fifth=5, sixth=6, seventh=7, eighth=8, ninth=9, tenth=10)
PARTS |= {"twelfth": 12, "twentieth": 20, "hundredth": 100}
NUMBER = rf"(?:\d+(?:\.\d+)?|{'|'.join(NUMBERS)})"
TIMES = rf"twice|{NUMBER}(?: and a half)? times|half as long again"
PART = rf"(?:an?|{'|'.join(NUMBERS)}) (?:{'|'.join(PARTS)})s?|half(?! a )|\d+(?:\.\d+)? %|\d\.\d+(?! times)"
RELATION = (
    "differ by at most|by at most|at least|no less than|at most|no more than|about|by less than|less than|more than"
    "|within|under"
)
QUANTITY = re.compile(
    rf"\b(?P<relation>{RELATION}) (?:(?P<times>{TIMES})|(?P<part>{PART}))(?!\w)(?! of it)"
    r"(?:,? (?P<more>longer|more|larger|slower|above|faster)|,? (?P<less>less|lower|shorter))?"
)
WORDS = {
    r"about as long": (0.9, 1.1),
    r"about the same time": (-inf, 1.2),
    r"a few percent": (1.0, 1.1),
    r"nearly": (0.9, inf),
    r"(?<!at )\bmost of": (0.5, inf),
    r"full speed": (0.95, inf),
    r"(?:not slower|no longer) than": (-inf, 1.02),
    r"hundreds of times": (200, inf),
}
"""Words -> the widest band that they allow: a ratio, or 100 times as much in percent."""
Widest = tuple[float, float]


def number(words: str) -> float:
    """`one and a half times` -> 1.5, `three quarters` -> 0.75, `3 %` -> 0.03."""
    fixed = {"twice": 2.0, "half": 0.5, "half as long again": 1.5}
    if words in fixed:
        return fixed[words]
    first, *rest = words.split()
    value = float(NUMBERS.get(first, 1 if first in ("a", "an") else first))
    if not rest or rest == ["%"]:
        return value / 100 if rest else value
    return value + ("half" in rest) / 2 if "times" in rest else value / PARTS[rest[0].removesuffix("s")]


def allowed(sentence: str) -> Iterator[tuple[str, tuple[Widest, ...]]]:
    """Each phrase of a sentence that limits a figure, and the widest bands that it allows."""
    yield from ((match[0], (widest,)) for words, widest in WORDS.items() if (match := re.search(words, sentence)))
    for match in QUANTITY.finditer(sentence):
        value, relation = number(match["times"] or match["part"]), match["relation"]
        if relation == "more than" and re.search(
            r"\b(?:no|none|nothing|never)\b", sentence[: match.start()], re.IGNORECASE
        ):
            relation = "no more than"
        ratio = 1 + value if match["more"] and match["part"] else value
        if relation == "about":
            margin = 0.2 if match["part"] else 0.1
            bands: tuple[Widest, ...] = ((ratio * (1 - margin), ratio * (1 + margin)),)
        elif (match["less"] or "lowers" in sentence[: match.start()]) and relation == "at least":
            bands = ((-inf, 1 - value), (1 / (1 - value), inf), (value, 1))
        elif match["less"]:
            bands = ((1 - value, inf),)
        elif relation in ("at least", "no less than", "more than"):
            bands = ((ratio, inf),)
        elif relation in ("at most", "no more than", "under") or match["more"]:
            bands = ((-inf, ratio),)
        else:
            is_change = relation in ("within", "by at most", "differ by at most")
            bands = ((1 - value, 1 + value), *([] if is_change else [(-inf, value)]))
        yield match[0], bands


def wider(sentence: str, band: Interval, in_percent: bool) -> list[str]:
    """The phrases of a sentence that do not allow so wide a band. Words round: a half percent is forgiven."""
    unit = 100 if in_percent else 1

    def is_in(low: float, high: float) -> bool:
        return unit * low <= 1.005 * band.low and 0.995 * band.high <= unit * high

    return [words for words, bands in allowed(sentence) if not any(is_in(*widest) for widest in bands)]


@pytest.mark.parametrize("claim_id", CLAIMS)
def test_a_band_is_as_narrow_as_its_words(claim_id: str) -> None:
    chapter, claim = CLAIMS[claim_id]
    assert isinstance(claim.band, Interval)
    measured = judge(claim, chapter, BOOK).measured
    if measured is None:
        pytest.skip("its unit is known once it is recorded")
    loose = wider(claim.sentence, claim.band, measured.unit == "%")
    if claim_id in OTHERWISE:
        assert loose, "its band is what it says: remove it from OTHERWISE"
    else:
        assert not loose, f"{claim.sentence} does not allow {claim.band.low:g} to {claim.band.high:g}"


def test_most_sentences_are_understood() -> None:
    about_times = [claim.sentence for _, claim in CLAIMS.values() if claim.scope == "timing"]
    assert len([sentence for sentence in about_times if any(allowed(sentence))]) > 0.7 * len(about_times)


@pytest.mark.parametrize(
    ("sentence", "good", "bad"),
    [
        ("It takes about twice as long.", (1.8, 2.2), (1.5, 2.2)),
        ("It takes about a tenth less time.", (8, 12), (4, 12)),
        ("None takes more than a third of the time.", (-inf, 33.4), (-inf, 40)),
        ("It takes at least a fifth longer.", (1.2, inf), (1.1, inf)),
        ("It takes at least half as long again.", (1.5, inf), (1.4, inf)),
        ("It takes at least one and a half times as long.", (1.5, inf), (1.4, inf)),
        ("It takes at most 4 % longer.", (-inf, 1.04), (-inf, 1.06)),
        ("It takes at least three quarters of the time.", (75, inf), (70, inf)),
        ("It takes at least a tenth less.", (-inf, 0.9), (-inf, 0.95)),
        ("It changes by less than 5 %.", (0.95, 1.05), (0.95, 1.1)),
        ("It takes as long, within 3 %.", (0.97, 1.03), (0.95, 1.03)),
        ("It takes less than a tenth.", (-inf, 10), (-inf, 12)),
        ("The totals nearly meet.", (90, 110), (60, 110)),
        ("It works for most of the wait.", (50, 100), (40, 100)),
    ],
)
def test_limits_of_words(sentence: str, good: Widest, bad: Widest) -> None:
    in_percent = max(abs(limit) for limit in good if abs(limit) != inf) > 4
    assert wider(sentence, Interval(*good), in_percent) == []
    assert len(wider(sentence, Interval(*bad), in_percent)) == 1
