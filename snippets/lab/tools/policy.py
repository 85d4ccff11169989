"""The Content-Security-Policy of a built page: a browser runs its own scripts, by their hashes, and nothing else.

tests/site/test_policy.py shows a browser markup that would run, behind the policy.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator
from hashlib import sha256

SCRIPT_TYPES = {"", "module", "text/javascript", "application/javascript", "text/ecmascript", "application/ecmascript"}
TRUSTED = re.compile(r"'self'|'none'|'sha256-[\w+/]{43}='")
WASM = "'wasm-unsafe-eval'"
"""WebAssembly, which only the page that reads traces may run; JavaScript's `eval` it may not."""
POLICY = "Content-Security-Policy"

Attributes = list[tuple[str, str | None]]


def is_script(attributes: Attributes) -> bool:
    """Whether a browser runs the content of a <script> with these attributes."""
    return (dict(attributes).get("type") or "").strip().lower() in SCRIPT_TYPES


def hash_source(script: str) -> str:
    """A script as a policy names it."""
    return f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'"


def rules_of(policy: str) -> dict[str, list[str]]:
    """The sources of each rule of a policy."""
    return {name.lower(): sources for name, *sources in map(str.split, filter(str.strip, policy.split(";")))}


def script_sources(policy: str) -> list[str]:
    """What a policy lets run, `script-src` or in its place `default-src`."""
    rules = rules_of(policy)
    return rules.get("script-src", rules.get("default-src", ["*"]))


def with_sources(policy: str, more: dict[str, list[str]]) -> str:
    """A policy with further sources of some rules."""
    rules = rules_of(policy)
    for name, sources in more.items():
        rules[name] = [*rules.get(name, []), *sources]
    return "; ".join(" ".join([name, *sources]) for name, sources in rules.items())


def policy_problems(policies: list[str], scripts: list[str], *, reads_traces: bool = False) -> Iterator[str]:
    """What is wrong with the policy of a page that has these inline scripts."""
    if len(policies) != 1:
        yield f"{len(policies)} times a {POLICY}, not once, and before all scripts"
        return
    if rules_of(policies[0]).get("default-src") != ["'none'"]:
        yield f"its {POLICY} lacks default-src 'none'"
    sources = script_sources(policies[0])

    def is_trusted(source: str) -> bool:
        return TRUSTED.fullmatch(source) is not None or (reads_traces and source == WASM)

    yield from (f"its {POLICY} lets {source} run" for source in sources if not is_trusted(source))
    for script in scripts:
        if hash_source(script) not in sources:
            begin = " ".join(script.split())[:60]
            yield f"its {POLICY} does not name the inline script {hash_source(script)}: {begin!r}"
