"""Guess boxes: what a form is made of, what is measured, and which figures cannot be guessed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from snippets.lab.experiment import UnknownName
from snippets.lab.finding.claim import Claim
from snippets.lab.finding.device import Device
from snippets.lab.finding.figure import Figure
from snippets.lab.page.frame import show
from snippets.lab.page.guesses import guess_choice, guess_number, guess_order
from snippets.lab.recording.schema import NotRecorded, NotTimed
from tests.lab import samples
from tests.lab.conftest import Book
from tests.lab.samples import DEVICE, EVIL, Markup, assert_only_text, claim, sample, save_all


@pytest.fixture
def device(tmp_path: Path) -> Device:
    return save_all(tmp_path, sample())


@pytest.fixture
def measured(book: Book) -> Callable[[Figure], None]:
    """Makes this the figure `mlp.it`, and the only one."""
    return lambda figure: book(mlp=samples.findings(it=lambda device: figure))


@pytest.fixture
def claimed(book: Book) -> Callable[[Claim], None]:
    """Makes this the only claim."""
    return lambda only: book(mlp=samples.findings(only))


def data(box: str) -> dict[str, Any]:
    """The data of the form."""
    decoded: dict[str, Any] = json.loads(dict(Markup(box).attributes)["data-guess"] or "")
    return decoded


def test_the_markup_that_the_script_fills_in(device: Device, measured: Callable[[Figure], None]) -> None:
    measured(Figure(5))
    assert guess_number(device, "mlp.it", "kernels") == (
        f'<div class="guess" data-device="{DEVICE}" data-guess="{{&quot;kind&quot;: &quot;number&quot;, '
        "&quot;answer&quot;: 5, &quot;exact&quot;: true, &quot;scale&quot;: 1.0, &quot;label&quot;: "
        '&quot;kernels&quot;, &quot;suffix&quot;: &quot;&quot;}"><p><span class="guess-said"></span>'
        'Measured: <strong>5</strong> on the SAMPLE.<span class="guess-off"></span></p></div>'
    )


def test_a_guess_names_the_fences_that_it_veils(device: Device, measured: Callable[[Figure], None]) -> None:
    measured(Figure("mm, mul"))
    asked = (
        guess_order(device, "mlp.it", veils=("mlp-a", "mlp-b")),
        guess_choice(device, "mlp.it", "mm, mul", "mul, mm", veils=["mlp-a", "mlp-b"]),
    )
    assert [dict(Markup(box).attributes)["data-veils"] for box in asked] == ["mlp-a mlp-b"] * 2
    measured(Figure(5))
    assert dict(Markup(guess_number(device, "mlp.it", veils=("mlp-a",))).attributes)["data-veils"] == "mlp-a"
    assert "data-veils" not in guess_number(device, "mlp.it")
    with pytest.raises(ValueError, match=r"^veils is the string 'mlp-a'; write a tuple: veils=\('mlp-a',\)$"):
        guess_number(device, "mlp.it", veils="mlp-a")


@pytest.mark.parametrize(
    ("figure", "exact", "scale", "label", "suffix", "text"),
    [
        (Figure(5), True, 1.0, "", "", "5"),
        (Figure(5, conclusive=False), True, 1.0, "", "", "5, but the steps of the trace disagree"),
        (Figure(0.00234), False, 1.0, "", "", "2.3e-03"),
        (Figure(21.5, "us", (21.0, 22.0)), False, 1.0, "µs", " µs", "21.5 µs (21.0 to 22.0 µs)"),
        (Figure(1455.2, "us"), False, 1e3, "ms", " ms", "1.46 ms"),
        (Figure(999.7, "us"), False, 1e3, "ms", " ms", "1.00 ms"),
        (Figure(0.5, "us"), False, 1e-3, "ns", " ns", "500 ns"),
        (Figure(2.5e6, "us"), False, 1e6, "s", " s", "2.50 s"),
        (Figure(4, "bytes"), False, 1.0, "bytes", " bytes", "4 bytes"),
        (Figure(50_331_648, "bytes"), False, 1e6, "MB", " MB", "50.3 MB"),
        (Figure(4.29e12, "bytes/s"), False, 1e12, "TB/s", " TB/s", "4.29 TB/s"),
        (Figure(1.23, "%"), False, 1.0, "%", " %", "1.23 %"),
        (Figure(1.56, "x"), False, 1.0, "times", "x", "1.56x"),
        (Figure(0.0, "us"), False, 1.0, "µs", " µs", "0 µs"),
    ],
)
def test_a_number_is_asked_for_in_its_own_unit(
    device: Device,
    measured: Callable[[Figure], None],
    figure: Figure,
    exact: bool,
    scale: float,
    label: str,
    suffix: str,
    text: str,
) -> None:
    measured(figure)
    box = guess_number(device, "mlp.it")
    asked: dict[str, Any] = {"exact": exact, "scale": scale, "label": label, "suffix": suffix}
    asked |= {"mark": {"unit": figure.unit, "times": 1.0}} if figure.unit not in ("", "%", "x") else {}
    assert data(box) == {"kind": "number", "answer": figure.value} | asked
    assert Markup(box).text == f"Measured: {text} on the SAMPLE."


def test_a_share_or_a_multiple_is_marked_on_the_axis_of_its_whole(book: Book, device: Device) -> None:
    figures = {"whole": Figure(200.0, "us"), "share": Figure(57.6, "%"), "times": Figure(1.5, "x"), "count": Figure(5)}
    book(mlp=samples.findings(**{name: lambda device, each=each: each for name, each in figures.items()}))

    def mark(name: str, **of: str) -> dict[str, Any] | None:
        return data(guess_number(device, f"mlp.{name}", **of)).get("mark")

    assert mark("share") is mark("times") is mark("count") is None
    assert mark("share", of="mlp.whole") == {"unit": "us", "times": 2.0}
    assert mark("times", of="mlp.whole") == {"unit": "us", "times": 200.0}
    assert mark("share", of="mlp.whole", at="GELU") == {"unit": "us", "times": 2.0, "at": "GELU"}
    with pytest.raises(ValueError, match=r"^a guess of mlp\.share is no time to draw at GELU; give `of`$"):
        mark("share", at="GELU")
    with pytest.raises(ValueError, match=r"^a guess in counts is no share or multiple of mlp\.whole$"):
        mark("count", of="mlp.whole")


@pytest.mark.parametrize("value", ["mm", True, -3, Figure(5.0, "x", display="every call compiled"), float("nan")])
def test_what_is_not_a_number_to_guess(device: Device, measured: Callable[[Figure], None], value: Any) -> None:
    measured(value if isinstance(value, Figure) else Figure(value))
    with pytest.raises(ValueError, match=r"not a number to guess|a number in it is nan"):
        guess_number(device, "mlp.it")


@pytest.mark.parametrize(
    ("figure", "options", "answer", "pairs", "text"),
    [
        (Figure("mm"), ("mul", "mm"), "mm", [["mul", "mul"], ["mm", "mm"]], "mm"),
        (Figure("mm"), ("mm=a GEMM", "mul"), "mm", [["mm", "a GEMM"], ["mul", "mul"]], "a GEMM: mm"),
        (Figure(2), ("1=once", "2=twice"), "2", [["1", "once"], ["2", "twice"]], "twice: 2"),
        (Figure(1.56, "x"), ("1.56x", "15x"), "1.56x", [["1.56x", "1.56x"], ["15x", "15x"]], "1.56x"),
        (Figure(True), ("yes", "no"), "yes", [["yes", "yes"], ["no", "no"]], "yes"),
        (Figure(False), ("yes=They are", "no=They differ"), "no", None, "They differ"),
        (Figure(3, display="three"), ("three", "four"), "three", None, "three"),
        (Figure(3, display="three"), ("3", "4"), "3", None, "three"),
        (Figure("mm", conclusive=False), ("mul", "mm"), "mm", None, "mm, but the steps of the trace disagree"),
    ],
)
def test_a_choice(
    device: Device,
    measured: Callable[[Figure], None],
    figure: Figure,
    options: tuple[str, ...],
    answer: str,
    pairs: list[list[str]] | None,
    text: str,
) -> None:
    measured(figure)
    box = guess_choice(device, "mlp.it", *options)
    assert (data(box)["kind"], data(box)["answer"]) == ("choice", answer)
    assert pairs is None or data(box)["options"] == pairs
    assert Markup(box).text == f"Measured: {text} on the SAMPLE."


def test_a_choice_without_what_was_measured(device: Device, measured: Callable[[Figure], None]) -> None:
    measured(Figure("mm"))
    with pytest.raises(ValueError, match=r"^mlp\.it is 'mm' on nvidia-sample, which is none of 'mul', 'add'$"):
        guess_choice(device, "mlp.it", "mul=a multiplication", "add")
    for options in ((), ("mm",), ("mm", "mm=the same")):
        with pytest.raises(ValueError, match=r"^a choice of mlp\.it has [01] options; give at least two$"):
            guess_choice(device, "mlp.it", *options)


@pytest.mark.parametrize(
    ("figure", "answer", "text"),
    [
        (Figure(5), "holds", "It is so: 5"),
        (Figure(4), "differs", "It is not: 4"),
        (Figure(True), "differs", "It is not"),
    ],
)
def test_a_claim_is_guessed_by_its_verdict(
    device: Device, claimed: Callable[[Claim], None], figure: Figure, answer: str, text: str
) -> None:
    claimed(claim(measure=lambda device: figure))
    box = guess_choice(device, "claim:M1")
    options = [["holds", "It is so"], ["differs", "It is not"]]
    assert data(box) == {"kind": "choice", "answer": answer, "options": options}
    assert Markup(box).text == f"Measured: {text} on the SAMPLE."


def test_a_claim_can_be_asked_in_other_words(device: Device, claimed: Callable[[Claim], None]) -> None:
    claimed(claim(4))
    box = guess_choice(device, "claim:M1", "holds=Yes, five", "differs=No, fewer")
    assert Markup(box).text == "Measured: No, fewer: 4 on the SAMPLE."


def test_claims_that_cannot_be_guessed(
    device: Device, claimed: Callable[[Claim], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(device: Device) -> Figure:
        raise NotRecorded("nothing there")

    claimed(claim(measure=missing))
    with pytest.raises(UnknownName, match=r"^no claim 'M2'; did you mean M1\?$"):
        guess_choice(device, "claim:M2")
    with pytest.raises(NotRecorded, match=r"^nothing there$"):
        guess_choice(device, "claim:M1")
    samples.recordings(monkeypatch, device.root)
    assert "Not recorded yet" in show("a", guess_choice, "claim:M1")
    claimed(claim(measure=lambda device: Figure(5, conclusive=False)))
    with pytest.raises(NotTimed, match=r"^claim:M1 is inconclusive on nvidia-sample$"):
        guess_choice(device, "claim:M1")


def test_an_order_with_repeats(device: Device, measured: Callable[[Figure], None]) -> None:
    measured(Figure("mm, mm, gelu, mul, mm"))
    box = guess_order(device, "mlp.it")
    asked = data(box)
    assert (asked["kind"], asked["answer"]) == ("order", ["mm", "mm", "gelu", "mul", "mm"])
    assert sorted(asked["options"]) == ["gelu", "mm", "mul"]
    assert Markup(box).text == "Measured: mm, mm, gelu, mul, mm on the SAMPLE."


def test_the_items_of_an_order_are_shuffled_alike_at_every_build(
    device: Device, measured: Callable[[Figure], None]
) -> None:
    items = [f"item{i}" for i in range(10)]
    measured(Figure(", ".join(items)))
    offered = data(guess_order(device, "mlp.it"))["options"]
    assert offered == data(guess_order(device, "mlp.it"))["options"]
    assert offered[:3] == ["item8", "item2", "item3"], "kept over versions of Python, so that a diff of sites is calm"
    assert sorted(offered) == items


def test_an_order_needs_two_items(device: Device, measured: Callable[[Figure], None]) -> None:
    for value in ("mm, mm", "", 5):
        measured(Figure(value))
        with pytest.raises(ValueError, match="which has no order to guess"):
            guess_order(device, "mlp.it")


@pytest.mark.parametrize("name", EVIL)
def test_untrusted_names(device: Device, measured: Callable[[Figure], None], name: str) -> None:
    measured(Figure(f"{name}, b"))
    option = name.replace("=", ":")
    box = guess_order(device, "mlp.it")
    assert_only_text(box, name)
    assert name in data(box)["options"]
    measured(Figure(option))
    box = guess_choice(device, "mlp.it", option, f"b={name}")
    assert_only_text(box, option)
    assert data(box)["options"] == [[option, option], ["b", name]]
    measured(Figure(5))
    assert_only_text(guess_number(device, "mlp.it", name))


def test_a_guess_has_no_character_that_reorders_text(device: Device, measured: Callable[[Figure], None]) -> None:
    """Nor an escape that JSON would turn into one."""
    measured(Figure("mm\u202e"))
    assert data(guess_choice(device, "mlp.it", "mm\\u202e", "mul"))["answer"] == "mm\\u202e"
