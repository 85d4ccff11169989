"""What the commands print with --json is what their schemas say, as a validator that is not ours reads them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from kinetoscope.__main__ import main
from kinetoscope.schema import DOCUMENTS, schema
from snippets.your_trace.findings import type_text
from snippets.your_trace.publish import publish_contract

TRACES = Path(__file__).resolve().parents[1] / "traces"
EAGER, COMPILED = str(TRACES / "mlp_eager.json.gz"), str(TRACES / "mlp_compile.json.gz")


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_schemas_are_schemas(name: str) -> None:
    Draft202012Validator.check_schema(schema(name))


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("report", [EAGER]),
        ("report", [EAGER, "--top", "all"]),
        ("report", [EAGER, COMPILED]),
        ("summary", [EAGER]),
        ("diff", [EAGER, COMPILED, "--gate", "3"]),
        ("doctor", [EAGER]),
    ],
)
def test_documents_are_valid(command: str, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    main([command, *arguments, "--json"])
    document = json.loads(capsys.readouterr().out)
    validator = Draft202012Validator(schema(command))
    assert [error.message for error in validator.iter_errors(document)] == []
    del document["schema_version"]
    assert not validator.is_valid(document), "every key is there"


def test_the_site_has_them(tmp_path: Path) -> None:
    written = publish_contract(tmp_path)
    assert sorted(path.relative_to(tmp_path).as_posix() for path in written) == [
        "SKILL.md", "schema/diff.json", "schema/doctor.json", "schema/report.json", "schema/summary.json",
    ]  # fmt: skip
    assert json.loads((tmp_path / "schema/diff.json").read_text()) == json.loads(json.dumps(schema("diff")))


@pytest.mark.parametrize(
    ("document", "key", "text"),
    [
        ("TraceReport", "findings", "list of FindingRow"),
        ("TraceReport", "memory", "Memory or null"),
        ("TraceReport", "cpu_us_per_step", "map to number"),
        ("KernelSummary", "grid", "3 times integer or null"),
        ("FindingRow", "severity", "high or low or medium"),
        ("ComparisonDocument", "totals_us_per_step", "map to 2 times number"),
    ],
)
def test_types_in_words(document: str, key: str, text: str) -> None:
    assert type_text(schema("report")["$defs"][document]["properties"][key]) == text
