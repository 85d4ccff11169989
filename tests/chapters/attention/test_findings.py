"""All claims and figures of the chapter, as they were recorded."""

from __future__ import annotations

import re

import pytest

from tests.chapters.altered import RECORDED
from tests.chapters.attention.bench import CLAIMS, FIGURES


def test_every_claim_of_the_series_and_of_ours_is_there_once() -> None:
    series = {f"A{number}" for number in range(1, 13)}
    ours = {f"O-A{number}" for number in range(1, 62)}
    assert set(CLAIMS) == series | ours
    assert {claim.id for claim in CLAIMS.values() if claim.source is not None} == series


def test_every_difference_is_explained_without_numbers() -> None:
    for claim in CLAIMS.values():
        assert not re.search(r"\d\s?(?:[mµn]s|us|[MGT]B|%|T?FLOP)", claim.why), claim.id


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_is_conclusive(name: str) -> None:
    figure = FIGURES[name](RECORDED)
    assert figure.conclusive
    assert figure.text
