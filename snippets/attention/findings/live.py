"""Values computed on the CPU while the page is built, without a recording: the same for all devices."""

from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path

from kinetoscope.html import Html, code, table
from snippets.lab.cache import cached, code_key
from snippets.lab.experiment import find
from snippets.lab.finding import Device
from snippets.lab.page import show as show

CHAPTER = Path(__file__).parents[1]


def all_masked(device: Device, keys: int) -> Html:
    """The softmax of a fully masked row."""

    def softmax_of_nothing() -> Sequence[str]:
        from snippets.attention.model import nothing_to_see

        return [str(result).removeprefix("tensor(").removesuffix(")") for result in nothing_to_see(keys)]

    names = ("scores.softmax(dim=-1)", "torch._safe_softmax(scores, dim=-1)")
    results = _computed(f"attention all masked {keys}", softmax_of_nothing, CHAPTER / "model.py")
    caption = "Softmax of a row whose keys are all hidden, computed on the CPU while this page was built"
    return table(caption, ["", "result"], zip(map(code, names), results, strict=True), text_columns=2)


ROW = (1.0, 3.0, 2.0, 0.0, 5.0, 2.0, 4.0, 1.0, 3.0, 5.0, 6.0, 2.0)
"""Scores in three blocks, of which the second and the third bring a larger one."""
BLOCK = 4


def sums_so_far(device: Device) -> Html:
    """The largest score and the sum of a row after each of its blocks."""

    def states() -> Sequence[str]:
        from snippets.attention.online_softmax import after_each_block

        return [f"{largest:.4g} {total:.4g}" for largest, total in after_each_block(ROW, BLOCK)]

    lines = _computed("attention online softmax", states, CHAPTER / "online_softmax.py", Path(__file__))
    blocks = [", ".join(f"{score:g}" for score in ROW[start : start + BLOCK]) for start in range(0, len(ROW), BLOCK)]
    rows = [[scores, *line.split()] for scores, line in zip(blocks, lines, strict=True)]
    caption = "Online softmax of a row in three blocks, computed on the CPU while this page was built"
    return table(caption, ["scores of the block", "largest score so far", "sum so far"], rows)


def alignments(device: Device) -> Html:
    """Whether a single query sees all keys, with `is_causal` and with the intended mask."""

    def answers() -> Sequence[str]:
        from snippets.attention.model import aligned_lower_right, aligned_top_left, reference

        experiment = find("attention/decode_math")[0].at(batch=1, heads=1, keys=5, head_dim=8)
        assert experiment.make is not None
        q, k, v = experiment.make("cpu", **experiment.parameters).inputs()
        right, lines = reference(q, k, v), []
        for function in (aligned_top_left, aligned_lower_right):
            result = function(q, k, v)
            is_first = result.flatten().tolist() == v[..., :1, :].flatten().tolist()
            is_right = float((result.double() - right).norm() / right.norm()) < 1e-2
            lines.append(" ".join([function.__name__, *("yes" if is_so else "no" for is_so in (is_first, is_right))]))
        return lines

    head = ["one query, five keys", "returns the first key's value", "is correct"]
    lines = _computed("attention alignments", answers, CHAPTER / "model.py", CHAPTER / "experiments" / "steps.py")
    rows = [[code(name), *cells] for name, *cells in map(str.split, lines)]
    return table(
        "A single query with two masks, computed on the CPU while this page was built", head, rows, text_columns=3
    )


def _computed(name: str, make: Callable[[], Sequence[str]], *files: Path) -> list[str]:
    """Lines computed with torch, cached by its version and these files, because importing torch takes seconds."""
    return cached((name, version("torch"), code_key(*files)), lambda: "\n".join(make())).splitlines()
