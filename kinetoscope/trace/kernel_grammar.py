"""The grammar of kernel names, `kernel_grammar.json`, and a parser for one name.

A *family* has an expression that matches its names, and rules. The parser tries the rules in order at each position of
a name: the first that matches explains a token, sets fields, and may change the state that later rules depend on.
A token without a matching rule has basis `unknown`; a field that no rule sets stays None.

docs/assets/js/kernel_names.js parses names in the reader's browser with the same file: change both together.
Expressions use only syntax that Python and JavaScript share, and none that backtracks for long on any name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Literal

import msgspec

Basis = Literal["documented", "inferred", "unknown"]
Values = Mapping[str, str | None]
GRAMMAR_FILE = Path(__file__).with_name("kernel_grammar.json")
MAX_WORDS = 12
"""The most words in an operator's name, split at underscores."""
NOT_KNOWN = "not known"


@dataclass(frozen=True)
class Token:
    """A piece of a name and what it means."""

    token: str
    meaning: str
    basis: Basis
    """`documented`: in public documentation or source. `inferred`: fits the names we recorded. `unknown`: neither."""


class TokenRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One kind of token: its expression (`part`), an example (`like`), its meaning and the fields it sets."""

    part: str
    like: str
    means: str = ""
    """A template; empty if the match is not a token of its own."""
    basis: Basis = "documented"
    source: str = ""
    """A key of `Grammar.sources`: the documentation, or the names it was inferred from."""
    joined: bool = False
    """Whether the next token may follow without a separator: the `s` of `s16816gemm`."""
    state: str = ""
    """The states, separated by spaces, in which the rule applies; empty: all. The first state is `start`."""
    then: str = ""
    """The state after a match; empty: unchanged."""
    set: dict[str, str | None] = {}
    """Field -> template. The first rule that sets a field wins, but None clears it permanently."""
    fuse: tuple[str, ...] = ()
    """Operators that are part of the kernel."""
    operators: str = ""
    """A template of more such operators, joined by underscores."""


class Family(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Names with one syntax, such as those of one library."""

    id: str
    title: str
    about: str
    match: str
    """An expression for the start of a name; the first family that matches parses the name."""
    defaults: dict[str, str]
    """Field -> template over the fields, for fields that no rule sets; includes `short`, the form for people."""
    rules: tuple[TokenRule, ...]
    piece: str = ""
    """An expression for a token that no rule matches."""
    gap: str = "[^A-Za-z0-9]+"
    """An expression for separators, which the parser skips."""
    end: str = "(?![A-Za-z0-9])"
    """An expression that must follow a token, unless its rule is `joined`."""
    once: bool = False
    """Whether the parser skips repeated tokens: C++ repeats a type wherever it needs it."""


class Grammar(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """The content of kernel_grammar.json, shared by the Python and the JavaScript parser."""

    longest: int
    """The parser reads at most this many characters of a name."""
    sources: dict[str, str]
    words: dict[str, str]
    """Word -> the expression that replaces `@word` in other expressions."""
    tables: dict[str, dict[str, str]]
    operators: str
    """Names of PyTorch's operators, to split a list of them joined by underscores."""
    families: tuple[Family, ...]

    @cached_property
    def known_operators(self) -> frozenset[str]:
        """The operators as a set."""
        return frozenset(self.operators.split())

    @cached_property
    def compiled(self) -> tuple[CompiledFamily, ...]:
        """The families with compiled expressions."""
        return tuple(CompiledFamily(self, family) for family in self.families)

    def expression(self, text: str) -> re.Pattern[str]:
        """Compile an expression: Python's syntax for named groups; letters and digits are ASCII only."""
        text = re.sub(r"@([a-z]+)", lambda match: f"(?:{self.words[match[1]]})", text)
        return re.compile(text.replace("(?<", "(?P<"), re.ASCII)


class CompiledFamily:
    """A family with its expressions compiled and its rules sorted by state."""

    def __init__(self, grammar: Grammar, family: Family) -> None:
        self.family = family
        self.match = grammar.expression(family.match)
        self.piece = grammar.expression(family.piece) if family.piece else None
        self.gap = grammar.expression(family.gap)
        ends = ("" if rule.joined else family.end for rule in family.rules)
        rules = [(r, grammar.expression(f"(?:{r.part}){end}")) for r, end in zip(family.rules, ends, strict=True)]
        states = {"start", *(rule.then for rule in family.rules if rule.then)}
        self.in_state = {
            state: [pair for pair in rules if not pair[0].state or state in pair[0].state.split()] for state in states
        }


@lru_cache(maxsize=1)
def grammar() -> Grammar:
    """The grammar, read once."""
    return msgspec.json.decode(GRAMMAR_FILE.read_bytes(), type=Grammar)


class Reading:
    """Parses a name by the first family that matches, if any, into `fields`, `fused` and `tokens`."""

    def __init__(self, name: str) -> None:
        self.grammar = grammar()
        self.text = name[: self.grammar.longest]
        self.fields: dict[str, str | None] = {}
        self.fused: list[str] = []
        self.tokens: list[Token] = []
        self.by = next((family for family in self.grammar.compiled if family.match.match(self.text)), None)
        if self.by:
            self._read(self.by)

    def _read(self, by: CompiledFamily) -> None:
        state, position = "start", 0
        seen: set[tuple[str, str]] = set()
        while position < len(self.text):
            rule, match = self._next(by, state, position)
            if rule and match and not (by.family.once and (rule.part, match[0]) in seen):
                seen.add((rule.part, match[0]))
                state = rule.then or state
                self._apply(rule, match)
            elif match and not rule:
                self.tokens.append(Token(match[0], NOT_KNOWN, "unknown"))
            elif not match:
                match = by.gap.match(self.text, position)
            position = match.end() if match else position + 1
        if self.fused:
            self.fields["fused"] = " + ".join(self.fused)
        for field, template in by.family.defaults.items():
            if field not in self.fields:
                self.fields[field] = fill_template(template, self.fields, self.grammar) or None

    def _next(self, by: CompiledFamily, state: str, position: int) -> tuple[TokenRule | None, re.Match[str] | None]:
        for rule, expression in by.in_state[state]:
            match = expression.match(self.text, position)
            if match and match.end() > position:
                return rule, match
        return None, by.piece.match(self.text, position) if by.piece else None

    def _apply(self, rule: TokenRule, match: re.Match[str]) -> None:
        values: dict[str, str | None] = match.groupdict()
        self.fused += rule.fuse
        if rule.operators:
            names = operators(fill_template(rule.operators, values, self.grammar) or "", self.grammar)
            self.fused += names
            values["operators"] = ", ".join(names) or None
        for field, template in rule.set.items():
            value = None if template is None else fill_template(template, values, self.grammar)
            if template is None or (value is not None and field not in self.fields):
                self.fields[field] = value
        if rule.means:
            meaning = fill_template(rule.means, values, self.grammar)
            self.tokens.append(Token(match[0], meaning or NOT_KNOWN, rule.basis if meaning else "unknown"))


_OPTIONAL = re.compile(r"\[([^\[\]]*)\]")
_PLACE = re.compile(r"\{([a-z]+)(?:\|([a-z]+))?\}")


def fill_template(template: str, values: Values, grammar: Grammar) -> str | None:
    """Fill in values: `{tile}`; `{letter|types}`, looked up in a table; `[...]`, dropped if a value in it is missing.

    None if a value outside brackets is missing.
    """
    return _placed(_OPTIONAL.sub(lambda part: _placed(part[1], values, grammar) or "", template), values, grammar)


def _placed(template: str, values: Values, grammar: Grammar) -> str | None:
    parts: list[str] = []
    end = 0
    for slot in _PLACE.finditer(template):
        value = values.get(slot[1])
        if value is not None and slot[2]:
            value = grammar.tables[slot[2]].get(value)
        if value is None:
            return None
        parts += [template[end : slot.start()], value]
        end = slot.end()
    return "".join([*parts, template[end:]])


def operators(text: str, grammar: Grammar) -> list[str]:
    """`_unsafe_view_gelu_mul` -> [`_unsafe_view`, `gelu`, `mul`]; empty if part of the text is not an operator.

    Inductor sorts the operators, so each must come after the previous one; the longest matching name wins.
    """
    known, words = grammar.known_operators, text.split("_")
    rest: list[list[str] | None] = [*[None] * len(words), []]
    for start in range(len(words) - 1, -1, -1):
        for end in range(min(len(words), start + MAX_WORDS), start, -1):
            name, tail = "_".join(words[start:end]), rest[end]
            if tail is not None and name in known and (not tail or name < tail[0]):
                rest[start] = [name, *tail]
                break
    return rest[0] or []
