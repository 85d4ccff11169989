"""The grammar of kernel names: each of its rules, and how a name is read by rules."""

from __future__ import annotations

import re
from typing import Any

import pytest

from kinetoscope.trace.kernel_grammar import (
    MAX_WORDS,
    CompiledFamily,
    Family,
    Grammar,
    Reading,
    TokenRule,
    fill_template,
    grammar,
    operators,
)
from kinetoscope.trace.kernel_names import FIELDS

LIBRARIES = {"cublas", "cutlass", "cudnn", "aten", "inductor", "triton", "flash_attention", "nccl", "cuda", "unknown"}
LIBRARIES |= {"tensile", "composable_kernel", "miopen", "aiter", "rccl", "rocprim", "rocblas", "rocfft", "hip"}
LIBRARIES |= {"vllm", "sglang", "flashinfer", "tensorrt_llm", "deepgemm", "deepep", "flash_mla", "marlin"}
LIBRARIES |= {"bitsandbytes", "apex", "transformer_engine", "fbgemm", "mamba", "torchvision", "c10d", "cufft"}
OPERATIONS = {"gemm", "gemv", "elementwise", "reduction", "softmax", "normalization", "attention", "convolution"}
OPERATIONS |= {"communication", "copy", "memset", "other"}


def test_a_rule_matches_its_example_and_says_from_where_it_is_known() -> None:
    for rule in (rule for family in grammar().families for rule in family.rules):
        assert grammar().expression(rule.part.split("(?=", 1)[0]).match(rule.like), rule
        assert (rule.source in grammar().sources) == (rule.means != "" and rule.basis != "unknown"), rule


def test_what_a_family_refers_to_is_there() -> None:
    for family in grammar().families:
        assert_nothing_is_missing(family)


def assert_nothing_is_missing(family: Family) -> None:
    reached = {"start", *(rule.then for rule in family.rules)}
    for rule in family.rules:
        templates = [template for template in (rule.means, rule.operators, *rule.set.values()) if template]
        groups = set(grammar().expression(rule.part).groupindex)
        assert places(*templates) - {"operators"} <= groups, rule
        assert {table for one in templates for table in re.findall(r"\|([a-z]+)\}", one)} <= grammar().tables.keys(), (
            rule
        )
        assert set(rule.state.split()) <= reached, rule
        assert set(rule.set) <= {*FIELDS, *places(*family.defaults.values())}, rule


def places(*templates: str) -> set[str]:
    return {name for template in templates for name in re.findall(r"\{([a-z]+)", template)}


def tables(*templates: str) -> set[str]:
    return {name for template in templates for name in re.findall(r"\|([a-z]+)\}", template)}


def expressions(family: Family) -> list[str]:
    return [family.match, family.piece, family.gap, family.end, *(rule.part for rule in family.rules)]


ALL = [*grammar().words.values(), *(one for family in grammar().families for one in expressions(family))]
CLASS_OR_ESCAPED = re.compile(r"\[(?:\\.|[^\]\\])*\]|\\.")
SAME = {rf"\{sign}" for sign in "(){}[]<>|*+?./-^$12wWbn"}
"""What may follow a backslash: Python counts other digits and blanks than JavaScript does."""


def test_an_expression_means_the_same_in_python_and_in_javascript() -> None:
    """A dot or an anchor ends differently at a line's end; a lookbehind or a flag is written in another way."""
    for text in sorted(set(ALL)):
        rest = CLASS_OR_ESCAPED.sub("", text)
        assert not re.search(r"[.^$]", rest), text
        assert not re.search(r"\(\?(?!:|=|!|<[a-z]+>)", rest), text
        assert set(re.findall(r"\\.", text)) <= SAME, text
        assert set(re.findall(r"@([a-z]+)", text)) <= grammar().words.keys(), text


def test_nothing_in_the_grammar_is_unused_or_out_of_order() -> None:
    families = grammar().families
    assert len({family.id for family in families}) == len(families)
    names = grammar().operators.split(" ")
    assert names == sorted(set(names))
    assert max(len(name.split("_")) for name in names) <= MAX_WORDS
    assert {rule.source for family in families for rule in family.rules} - {""} == set(grammar().sources)
    templates = [str(rule.means) + str(rule.set) for family in families for rule in family.rules]
    assert tables(*templates) == set(grammar().tables)
    assert {word for text in ALL for word in re.findall(r"@([a-z]+)", text)} == set(grammar().words)


def test_libraries_and_operations_are_those_that_are_told_apart() -> None:
    said: dict[str, set[str]] = {"library": LIBRARIES, "operation": OPERATIONS, "base": OPERATIONS}
    for family in grammar().families:
        for fields in (family.defaults, *(rule.set for rule in family.rules)):
            given = {(field, value) for field, value in fields.items() if field in said and value and "{" not in value}
            assert {(field, value) for field, value in given if value not in said[field]} == set(), family.id
    assert set(grammar().tables["operations"].values()) <= OPERATIONS


def tiny(*rules: TokenRule, **changed: Any) -> Family:
    given: dict[str, Any] = {
        "id": "t",
        "title": "T",
        "about": "",
        "match": "t_",
        "defaults": {"short": "T[ {dtype}]"},
        "rules": rules,
    }
    return Family(**given | changed)


def read(monkeypatch: pytest.MonkeyPatch, name: str, family: Family) -> Reading:
    small = Grammar(50, {}, {"type": "f16|f32"}, {"types": {"f16": "half"}}, "add mul", (family,))
    monkeypatch.setattr("kinetoscope.trace.kernel_grammar.grammar", lambda: small)
    return Reading(name)


def test_the_first_rule_to_set_a_field_wins_unless_one_takes_it_back(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = (
        TokenRule("t", "t"),
        TokenRule("(?<a>@type)", "f16", set={"dtype": "{a}"}),
        TokenRule("mixed", "mixed", "types differ", set={"dtype": None}),
    )
    assert read(monkeypatch, "t_f16_f32", tiny(*rules)).fields == {"dtype": "f16", "short": "T f16"}
    assert read(monkeypatch, "t_f16_mixed_f32", tiny(*rules)).fields == {"dtype": None, "short": "T"}


def test_states_joined_tokens_and_lookups(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = (
        TokenRule("t", "t", state="start", then="in"),
        TokenRule("s(?=[0-9])", "s", "sums", joined=True, state="in", then="number"),
        TokenRule("(?<n>[0-9]+)", "16", "number {n}", state="number", then="in"),
        TokenRule("(?<a>@type)", "f16", "{a|types}", "inferred", state="in"),
    )
    one = read(monkeypatch, "t_s16_16_f16_f32 x", tiny(*rules, piece="[a-z0-9]+"))
    assert [(token.token, token.meaning, token.basis) for token in one.tokens] == [
        ("s", "sums", "documented"),
        ("16", "number 16", "documented"),
        ("16", "not known", "unknown"),
        ("f16", "half", "inferred"),
        ("f32", "not known", "unknown"),
        ("x", "not known", "unknown"),
    ]


def test_a_token_that_comes_again_counts_once_where_the_family_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = (TokenRule("t", "t"), TokenRule("add", "add", "adds", fuse=("add",)))
    assert read(monkeypatch, "t_add_add", tiny(*rules)).fused == ["add", "add"]
    once = read(monkeypatch, "t_add_add", tiny(*rules, once=True))
    assert (once.fused, len(once.tokens), once.fields["fused"]) == (["add"], 1, "add")


def test_no_more_of_a_name_is_read_than_the_grammar_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = (TokenRule("t", "t"), TokenRule("x", "x", "x"))
    assert len(read(monkeypatch, "t_" + "x_" * 100, tiny(*rules)).tokens) == 24


def test_a_family_without_a_piece_passes_over_what_it_does_not_know() -> None:
    family = CompiledFamily(grammar(), tiny(TokenRule("t", "t")))
    assert family.piece is None
    assert list(family.in_state) == ["start"]


@pytest.mark.parametrize(
    ("template", "expect"),
    [
        ("plain", "plain"),
        ("{a}", "f16"),
        ("{b}", None),
        ("[{b} ]and", "and"),
        ("[{a} ]and[ {b}]", "f16 and"),
        ("{a|types}!", "f16!"),
        ("{c|types}", None),
        ("[{c|types}]", ""),
    ],
)
def test_templates(template: str, expect: str | None) -> None:
    assert fill_template(template, {"a": "f16", "b": None, "c": "what"}, grammar()) == expect


@pytest.mark.parametrize(
    ("text", "expect"),
    [
        ("_unsafe_view_gelu_mul", ["_unsafe_view", "gelu", "mul"]),
        ("add_mul", ["add", "mul"]),
        ("native_layer_norm", ["native_layer_norm"]),
        ("_softmax", ["_softmax"]),
        ("add_whatever_mul", []),
        ("mul_add", []),
        ("add_add", []),
        ("", []),
        ("_", []),
    ],
)
def test_operators_of_a_list(text: str, expect: list[str]) -> None:
    assert operators(text, grammar()) == expect
