"""A GPU whose traces are shaped otherwise: its owner gets the book, with what cannot be computed left out and named."""

from __future__ import annotations

import pytest
from pymdownx.inlinehilite import InlineHiliteException

from snippets.lab.finding.book import judge
from snippets.lab.finding.claim import Claim
from snippets.lab.finding.figure import Figure
from snippets.lab.finding.quantities import UnknownFigure
from snippets.lab.page.frame import show
from snippets.lab.page.inline import fig_formatter
from snippets.lab.recording.device import DEFAULT_DEVICE
from snippets.lab.trace.events import TraceError

# KEEP figures
# KEEP recording

MISFIT = TraceError("ProfilerStep#2 has 6 products instead of three")
ERRORS = (ZeroDivisionError("float division by zero"), IndexError("list index out of range"), MISFIT)


def raising(error: Exception) -> object:
    def compute(*_: object) -> Figure:
        raise error

    return compute


@pytest.fixture(params=["nvidia-other", DEFAULT_DEVICE])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(recording, "devices", lambda *_: (request.param,))
    return str(request.param)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_a_figure_is_left_out_elsewhere_and_ends_the_builders_build(error, device, monkeypatch):
    monkeypatch.setattr(figures, "figure", raising(error))
    if device == DEFAULT_DEVICE:
        with pytest.raises(InlineHiliteException, match=str(error)):
            fig_formatter("mlp.gate_us", "", "", None)
    else:
        shown = fig_formatter("mlp.gate_us", "", "", None)
        assert shown.endswith(">not measured here</data>")
        assert f'title="{error}"' in shown


def test_an_unknown_figure_ends_every_build(device, monkeypatch):
    monkeypatch.setattr(figures, "figure", raising(UnknownFigure("no figure 'mlp.gate'")))
    with pytest.raises(InlineHiliteException):
        fig_formatter("mlp.gate", "", "", None)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_a_fence_says_why_it_is_empty(error, device):
    if device == DEFAULT_DEVICE:
        with pytest.raises(type(error)):
            show("mlp-gemms", raising(error))
    else:
        shown = show("mlp-gemms", raising(error))
        assert shown.startswith('<div class="lab" data-fence="mlp-gemms">')
        assert str(error) in shown


@pytest.mark.parametrize("error", ERRORS[:2], ids=lambda error: type(error).__name__)
def test_a_claim_is_not_measured(error, device):
    claim = Claim("X1", "It divides.", "timing", raising(error), lambda measured: True)
    if device == DEFAULT_DEVICE:
        with pytest.raises(type(error)):
            judge(claim, "mlp", device)
    else:
        verdict = judge(claim, "mlp", device)
        assert (verdict.word, verdict.is_expected) == ("not measured", True)
        assert verdict.reason == f"this trace is not shaped as expected: {error}"


def test_other_errors_are_never_swallowed(device):
    with pytest.raises(AttributeError):
        show("mlp-gemms", raising(AttributeError("typo")))
