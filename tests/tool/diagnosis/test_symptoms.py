"""The tree What do you see?: over all rules, each in one leaf."""

from __future__ import annotations

from collections import Counter

from kinetoscope.diagnosis.rules import RULES
from kinetoscope.diagnosis.symptoms import TREE, symptom_of, symptoms


def test_every_rule_is_in_one_leaf() -> None:
    named = Counter(rule for _, symptom in symptoms() for rule in symptom.rules)
    assert named == Counter(rule.name for rule in RULES)


def test_only_a_healthy_step_has_no_rule() -> None:
    assert [symptom.name for _, symptom in symptoms() if not symptom.rules] == ["products-at-the-ceiling"]


def test_names_are_unique_and_rules_in_order() -> None:
    leaves = [symptom for _, symptom in symptoms()]
    assert len({leaf.name for leaf in leaves}) == len(leaves)
    assert all(list(leaf.rules) == sorted(leaf.rules) for leaf in leaves)


def test_the_leaf_of_a_rule_with_its_branch() -> None:
    found = symptom_of("sync-in-step")
    assert found is not None
    assert (found[0], found[1].title) == (TREE[0], "The CPU waits for the GPU")
    assert symptom_of("no-such-rule") is None
