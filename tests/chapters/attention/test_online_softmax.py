"""The softmax of rows in blocks: that of whole rows, whatever the blocks."""

from __future__ import annotations

import math
import re

import pytest
import torch

from snippets.attention.findings import live
from snippets.attention.online_softmax import online_softmax
from tests.chapters.altered import RECORDED


@pytest.mark.parametrize("shape", [(1,), (7,), (3, 65), (2, 3, 5, 129)])
@pytest.mark.parametrize("block", [1, 4, 64, 1000])
def test_softmax_of_rows_in_blocks(shape: tuple[int, ...], block: int) -> None:
    """Scores that grow from left to right bring a larger one in each block; those that fall, in the first alone."""
    growth = torch.linspace(0, 30, shape[-1], dtype=torch.float64)
    for trend in (growth, -growth, torch.zeros_like(growth)):
        scores = torch.randn(shape, dtype=torch.float64) + trend
        largest, total = online_softmax(scores, block)
        assert largest.shape == total.shape == shape[:-1]
        assert torch.equal(largest, scores.amax(dim=-1))
        softmax = (scores - largest[..., None]).exp() / total[..., None]
        torch.testing.assert_close(softmax, scores.softmax(dim=-1), rtol=1e-12, atol=0)


def test_float32_is_as_exact_as_whole_rows() -> None:
    scores = torch.randn(64, 1023) * 20
    _, total = online_softmax(scores, 64)
    exact = (scores.double() - scores.double().amax(dim=-1, keepdim=True)).exp().sum(dim=-1)
    assert ((total - exact) / exact).abs().max() < 1e-5


def test_hidden_scores_count_nothing() -> None:
    """A block that is hidden fully comes behind one that is not, as in a causal row."""
    scores = torch.tensor([1.0, 2.0, -torch.inf, -torch.inf])
    largest, total = online_softmax(scores, 2)
    assert float(largest) == 2
    assert float(total) == pytest.approx(1 + math.exp(-1))


def test_the_page_shows_each_block() -> None:
    """5 after the second block: the first one's sum shrinks by exp(3 - 5)."""
    cells = re.findall(r"<td[^>]*>(.*?)</td>", live.sums_so_far(RECORDED), re.DOTALL)
    assert cells == ["1, 3, 2, 0", "3", "1.553", "5, 2, 4, 1", "5", "1.646", "3, 5, 6, 2", "6", "2.042"]
