"""What the page kernel_names shows: the grammar as tables, names of two GPUs side by side, all recorded names, the box.

All of it is computed from the decoder's own grammar and from recordings; the grammar travels in the page, so that the
box works offline and never knows more or less than Python does.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape

from snippets.lab.html import Cell, Html, details, table
from snippets.lab.page.kernel_name import kernel_name_html
from snippets.lab.recording.device import DEFAULT_DEVICE, short_name, shown_device
from snippets.lab.recording.loading import load_recording, load_recordings, load_trace
from snippets.lab.recording.schema import NotRecorded
from snippets.lab.trace.kernel_grammar import GRAMMAR_FILE, Basis, Family, Rule, fill_template, grammar
from snippets.lab.trace.kernel_names import decode_kernel_name
from snippets.lab.trace.queries import middle_step

FOLDED_FROM = 20
"""Rows; a longer table of the grammar is folded."""
BOX_EXPERIMENT = "mlp/eager"
"""The name in the box to begin with is that of its first kernel, on the builder's device: a page has one box."""
MARKS: dict[Basis, str] = {"documented": "●", "inferred": "◐", "unknown": "○"}
SIDE_BY_SIDE: Sequence[tuple[str, str, str, str, int]] = (
    (
        "a product of two 4096 x 4096 matrices",
        "Part 1",
        "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_nn",
        "matmul_add/eager_4096",
        0,
    ),
    (
        "a Linear, its bias included",
        "Part 2",
        "cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_32x1_tn_align8",
        "linear/eager",
        0,
    ),
    ("GeGLU: gate", "Part 2", "ampere_bf16_s16816gemm_bf16_128x128_…_stages_32x5_tn", "mlp/eager", 0),
    ("GeGLU: down", "Part 2", "ampere_bf16_s16816gemm_bf16_128x256_…_stages_64x3_tn", "mlp/eager", -1),
    ("GELU and the product, compiled", "Part 2", "triton_poi_fused__unsafe_view_gelu_mul_0", "mlp/compiled", 2),
    ("GELU and the product, Liger's", "Part 2", "_geglu_tanh_forward_kernel", "mlp/liger", 2),
)
"""What runs; the A100's name after its source, with `…` where that cuts it; experiment and kernel of the other name."""


def basis(known: Basis) -> Html:
    """How well a token is known, as a sign and a word."""
    return Html(f'<span class="basis {known}">{MARKS[known]} {known}</span>')


def families(*ids: str) -> Html:
    """Tables of the grammar: what the tokens of these families mean, how well that is known, and from where."""
    of = {family.id: family for family in grammar().families}
    return Html("".join(_family(of[name]) for name in ids))


def _family(family: Family) -> Html:
    seen: set[tuple[str, str]] = set()
    rows: list[Sequence[Cell]] = []
    for rule in family.rules:
        meaning = in_general(rule)
        if rule.means and (rule.like, meaning) not in seen:
            seen.add((rule.like, meaning))
            source = f"<small>{escape(rule.source)}</small>" if rule.source else ""
            rows.append([_token(rule.like), meaning, Html(f"{basis(rule.basis)}{source}")])
    rules = _of_tokens(family.title, rows)
    folded = details(f"{family.title}: {len(rows)} kinds of token", rules) if len(rows) > FOLDED_FROM else rules
    return Html(f"<p>{escape(family.about)}</p>{folded}")


def _token(text: str) -> Html:
    return Html(f"<code>{escape(text)}</code>")


def _of_tokens(caption: str, rows: Sequence[Sequence[Cell]]) -> str:
    """A table of tokens; its frame lets long tokens break, so that a phone shows all three columns."""
    inner = table(caption, ["token", "what it says", "known how"], rows, text_columns=3)
    return f'<div class="kernel-tokens">{inner}</div>'


def sources() -> Html:
    """What stands behind the short names of sources in the tables of the grammar."""
    rows = list(grammar().sources.items())
    inner = table("From where it is known", ["source", "what it is"], rows, text_columns=2)
    return Html(f'<div class="kernel-tokens">{inner}</div>')


def in_general(rule: Rule) -> str:
    """What a rule's token means, said of its example; `…` for what only a whole name tells."""
    found = grammar().expression(rule.part.split("(?=", 1)[0]).match(rule.like)
    values = {key: value for key, value in (found.groupdict() if found else {}).items() if value is not None}
    meaning = fill_template(rule.means, values, grammar())
    return grammar().expression(r"\{[a-z]+(?:\|[a-z]+)?\}").sub("…", rule.means) if meaning is None else meaning


def read_aloud(experiment: str, index: int) -> Html:
    """The tokens of a recorded kernel's name, one by one."""
    kernel = decode_kernel_name(_recorded(experiment, index, shown_device()))
    rows = [[_token(one.token), one.meaning, basis(one.basis)] for one in kernel.tokens]
    return Html(_of_tokens(f"{kernel.short}, token by token", rows))


def side_by_side() -> Html:
    """The same operation on the A100 of the series and on the shown device, with the two names."""
    device = shown_device()
    rows: list[Sequence[Cell]] = [
        [
            what,
            Html(f"{kernel_name_html(name)}<small>{escape(source)}</small>"),
            kernel_name_html(_recorded(experiment, index, device)),
        ]
        for what, source, name, experiment, index in SIDE_BY_SIDE
    ]
    here = load_recording(SIDE_BY_SIDE[0][3], device).circumstances.device
    return table("The same work, two names", ["", "A100, in the series", here], rows, text_columns=3, is_searched=True)


def _recorded(experiment: str, index: int, device: str) -> str:
    """The name of a kernel of the middle step, by its place in GPU order."""
    return middle_step(load_trace(experiment, device)).kernels[index].name


def recorded_names() -> Html:
    """Every name in the recordings of the shown device, decoded, with where it was recorded first and how often."""
    device = shown_device()
    where: dict[str, list[str]] = {}
    for one in load_recordings(device):
        if one.has_trace:
            for name in sorted({activity.name for activity in load_trace(one.id, device).activities}):
                where.setdefault(name, []).append(one.id)
    if not where:
        raise NotRecorded(f"no recorded trace for {device}; there run make record")
    names = sorted(where, key=lambda name: (decode_kernel_name(name).library, decode_kernel_name(name).operation, name))
    rows = [
        [
            kernel_name_html(name),
            decode_kernel_name(name).library,
            decode_kernel_name(name).operation,
            _first_of(where[name]),
        ]
        for name in names
    ]
    head = ["kernel, copy or fill", "library", "operation", "recorded in"]
    return table(f"Every name recorded on {short_name(device)}", head, rows, text_columns=4, is_searched=True)


def _first_of(experiments: Sequence[str]) -> str:
    more = len(experiments) - 1
    return f"{experiments[0]}, and {more} more" if more else experiments[0]


def decoder() -> Html:
    """The box in which a reader pastes a name, and the grammar that it reads it by."""
    content = json.dumps(json.loads(GRAMMAR_FILE.read_bytes()), separators=(",", ":")).replace("<", "\\u003c")
    begin = escape(_recorded(BOX_EXPERIMENT, 0, DEFAULT_DEVICE))
    return Html(
        '<div id="kernel-decoder" class="kernel-decoder" hidden>'
        '<label for="kernel-decoder-name">A kernel\'s name</label>'
        f'<textarea id="kernel-decoder-name" rows="3" spellcheck="false" autocapitalize="off">{begin}</textarea>'
        '<p class="short" aria-live="polite"></p><div class="decoded kernel-tokens"></div></div>'
        f'<script type="application/json" id="kernel-grammar">{content}</script>'
    )
