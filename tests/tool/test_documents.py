"""The JSON documents: their schema, cut lists, sizes, the same bytes, and what a program finds in them alone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kinetoscope.__main__ import main
from kinetoscope.diagnosis.rules import RULES
from kinetoscope.doctor.checks import DoctorDocument
from kinetoscope.doctor.command import doctor_document
from kinetoscope.doctor.trace_checks import check_trace, trace_verdict
from kinetoscope.report.diagnosed import read_diagnosed
from kinetoscope.report.finding_rows import finding_ids
from kinetoscope.report.ranks_document import RanksDocument
from kinetoscope.report.several import report_several
from kinetoscope.report.trace_report import TraceReport, trace_report
from kinetoscope.schema import DOCUMENTS, field_texts, schema, types_of
from kinetoscope.trace.documents import BRIEF_CHARACTERS, document_data, document_text
from kinetoscope.trace.summaries import SummaryDocument, summary_document
from tests.tool.recorded import PROJECT, RECORDINGS
from tests.tool.report.samples import SHAPES, SMALL, SYNC, diagnosed, traced
from tests.tool.trace.public import CASES, PUBLIC_TRACES, needs_cases

OWN = sorted((PROJECT / "tests" / "traces").glob("*.json.gz"))
SHARED = [path for path in sorted(CASES.glob("*.json")) if not path.name.endswith((".expected.json", "ascend.json"))]
"""Without the trace that no reader reads."""
RECORDED = sorted(RECORDINGS.glob("*/*/*.trace.json.gz"))[::5]
SMALL_PUBLIC = [path for path in PUBLIC_TRACES if not path.name.startswith(("kineto_", "astra_", "hta_nccl"))]
JOBS = CASES.parent / "ranks"
FAULTS = RECORDINGS / "nvidia-h200" / "training_step"


def check_documents(path: Path) -> None:
    """Every value has the type that the schema says, and a report fits into 4,000 tokens."""
    trace = read_diagnosed(path)
    checks = check_trace(trace.trace)
    report, summary = trace_report(trace), summary_document(trace.summary, path.name)
    doctor = doctor_document(checks, trace_verdict(checks), path.name)
    for document, of in ((report, TraceReport), (summary, SummaryDocument), (doctor, DoctorDocument)):
        text = document_text(document)
        assert msgspec.convert(json.loads(text), of, strict=True) == document
    brief = document_text(report, "brief")
    assert len(brief) <= BRIEF_CHARACTERS
    msgspec.convert(json.loads(brief), TraceReport, strict=True)


@pytest.mark.parametrize("path", OWN + SHARED, ids=lambda path: path.name)
def test_documents_of_small_traces(path: Path) -> None:
    check_documents(path)


@pytest.mark.slow
@pytest.mark.parametrize("path", RECORDED + SMALL_PUBLIC, ids=lambda path: f"{path.parent.name}/{path.name[:30]}")
def test_documents_of_all_kinds_of_traces(path: Path) -> None:
    check_documents(path)


@needs_cases
@pytest.mark.parametrize(
    "name", ["ddp_launch_bound", "mesh_late_rank3", "pipeline", pytest.param("async_tp", marks=pytest.mark.slow)]
)
def test_documents_of_jobs(name: str) -> None:
    document = report_several(sorted(JOBS.glob(f"{name}.rank*.json.gz"))).document
    assert msgspec.convert(json.loads(document_text(document)), RanksDocument, strict=True) == document
    assert len(document_text(document, "brief")) <= BRIEF_CHARACTERS


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_schema_describes_what_is_printed(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", name]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads(json.dumps(schema(name)))
    classes = [*types_of(*DOCUMENTS[name])]
    assert sorted(printed["$defs"]) == sorted({each.__name__ for each in classes})
    assert len({each.__name__ for each in classes}) == len(classes), "no two types share a name"
    for document in DOCUMENTS[name]:
        described = printed["$defs"][document.__name__]
        keys = described["properties"]
        assert [key for key, value in keys.items() if not value.get("description")] == []
        assert described["required"] == [*keys]
        assert keys["schema_version"]["enum"] == [1]


def test_descriptions_come_from_the_fields() -> None:
    assert field_texts(TraceReport)["steps"] == "Number of active steps.", "of a type that it extends"
    assert schema("report")["$defs"]["FindingRow"]["properties"]["severity"] == {
        "enum": ["high", "low", "medium"],
        "description": "`high` if `ceiling_share` is at least 0.20, `medium` if `ceiling_share` is at least 0.05, else "
        "`low`.",
    }


def test_cut_lists_are_named() -> None:
    rules = [SYNC, SMALL, SYNC, SMALL, SHAPES]
    document = trace_report(diagnosed(traced(), *rules))
    data = document_data(document, 2)
    assert [each["rule"] for each in data["findings"]] == ["sync", "sync"]
    assert data["truncated"] == [{"key": "findings", "rows": 2, "of": 4}]
    assert document_data(document)["truncated"] == []
    assert list(data)[:6] == ["kind", "schema_version", "file", "site", "headline", "findings"]


def test_a_brief_document_fits_however_long_names_are() -> None:
    report = trace_report(diagnosed(traced(), SYNC))
    kernels = tuple(msgspec.structs.replace(report.kernels[0], name=f"{i}{'x' * 3000}") for i in range(500))
    notes = tuple("n" * 4000 for _ in range(50))
    brief = document_text(msgspec.structs.replace(report, kernels=kernels, notes=notes), "brief")
    assert 2000 < len(brief) <= BRIEF_CHARACTERS
    cuts = {cut["key"]: (cut["rows"], cut["of"]) for cut in json.loads(brief)["truncated"]}
    assert cuts == {"kernels": (10, 500), "notes": (10, 50)}


def test_ids_stay_when_lines_move() -> None:
    places = [
        ("sync", "aten::item at train.py(12): step"),
        ("sync", "aten::item at train.py(40): step"),
        ("sync", "aten::item at data.py(12): load"),
        ("sync", "rank 1, GPU 1"),
        ("sync", "rank 2, GPU 2"),
        ("small", ""),
    ]
    ids = finding_ids(places)
    assert ids[1] == f"{ids[0]}-2"
    assert len(set(ids)) == 6
    assert ids[5] == "small"
    assert finding_ids(places[1:2]) == ids[:1]


@pytest.mark.parametrize(
    ("site", "page"),
    [("", "training_step_faults/#no-tensor-cores"), ("https://a.org/b/", "https://a.org/b/training_step_faults/#no-tensor-cores")],
)  # fmt: skip
def test_pages_are_absolute_if_the_site_is_known(site: str, page: str) -> None:
    found = read_diagnosed(FAULTS / "tensor_cores_before.trace.json.gz", book=site)
    document = trace_report(found)
    assert (document.site, document.findings[0].page) == (site, page)


SAME_BYTES = """
import sys
from kinetoscope.__main__ import main
path, other = sys.argv[1:]
for arguments in (["report", path, "--json", "--top", "all"], ["summary", path, "--json"], ["doctor", path, "--json"],
                  ["diff", path, other, "--json"]):
    main(arguments)
"""


def test_the_same_file_gives_the_same_bytes(tmp_path: Path) -> None:
    """In another folder, at another time, with another order of sets."""
    printed = []
    for seed in ("1", "2"):
        folder = tmp_path / seed
        folder.mkdir()
        paths = [shutil.copy(path, folder) for path in OWN[-3:-1]]
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        environment.pop("KINETOSCOPE_SITE", None)
        done = subprocess.run(
            [sys.executable, "-c", SAME_BYTES, *map(str, paths)],
            cwd=PROJECT, env=environment, capture_output=True, check=True,
        )  # fmt: skip
        printed.append(done.stdout)
    assert printed[0].count(b'"schema_version": 1') == 4
    assert printed[0] == printed[1]
    assert str(tmp_path).encode() not in printed[0]


def brief(path: Path) -> Mapping[str, Any]:
    """What `report --json` prints, as a program reads it."""
    text = document_text(trace_report(read_diagnosed(path)), "brief")
    assert len(text) <= BRIEF_CHARACTERS
    return json.loads(text)


PLANTED = {
    "allocator_before": ("allocator-in-step", "in train_step", 0.20),
    "attention_before": ("unfused-attention", "ToCopyBackward0", 0.50),
    "breaks_before": ("graph-breaks", "snippets/training_step/faults.py", 0.25),
    "cold_before": ("first-step", "in train_step", 20.0),
    "item_before": ("sync-in-step", "aten::is_nonzero in train_step", 0.05),
    "layout_before": ("needless-copies", "aten::contiguous in forward", 0.05),
    "loader_before": ("loader-stall", "enumerate(DataLoader)", 0.50),
    "optimizer_before": ("optimizer-loop", "Optimizer.step#AdamW", 0.25),
    "pageable_before": ("pageable-copies", "aten::to in train_step", 0.30),
    "recompile_before": ("recompiles", "dynamo in forward", 0.90),
    "tensor_cores_before": ("no-tensor-cores", "aten::linear in forward", 0.80),
    "tiny_before": ("tiny-kernels", "in loss", 0.60),
    "vocabulary_before": ("slow-products", "aten::linear in forward", 0.60),
}
"""Recording of a planted fault -> the rule, its place, and the least share of a step that the fault costs."""


@pytest.mark.parametrize("name", PLANTED)
def test_a_program_finds_each_planted_fault(name: str) -> None:
    """Rule, place, ceiling, its events and the page that mends it, from the brief JSON alone."""
    rule, place, least = PLANTED[name]
    data = brief(FAULTS / f"{name}.trace.json.gz")
    found = next(each for each in data["findings"] if each["rule"] == rule)
    assert place in found["where"]
    assert least <= found["ceiling_share"] <= 1.25 * least + 0.15 or found["is_once"]
    whole_us = data["mean_step_us"] + (found["ceiling_us_per_step"] if found["is_once"] else 0.0)
    assert found["ceiling_us_per_step"] == pytest.approx(found["ceiling_share"] * whole_us, rel=0.01)
    assert found["severity"] == ("high" if found["ceiling_share"] >= 0.2 else "medium")
    assert found["events"][0]["duration_us"] > 0
    assert {each["metric"] for each in found["evidence"]} > {"longest event"}
    assert found["false_positive"].endswith(".")
    assert found["advice"]
    assert "/#" in found["page"]


def test_a_healthy_step_has_no_severe_finding() -> None:
    data = brief(FAULTS / "healthy.trace.json.gz")
    assert [each["severity"] for each in data["findings"]] == ["low"]
    assert data["is_whole"]


@needs_cases
@pytest.mark.parametrize(
    ("name", "rule", "place", "ceiling_us"),
    [
        ("naive_pp", "gpu-bubbles", "GPU 0, GPU 1", 4980.0),
        ("offload_d2h", "exposed-copies", "", 7805.0),
        ("copy_d2h_same", "exposed-copies", "", 4500.0),
        ("loader_steps", "loader-stall", "enumerate(DataLoader)", 100_000.0),
        ("tp_merged", "stragglers", "rank 3, GPU 3", 2800.0),
    ],
)
def test_a_program_finds_the_faults_of_others(name: str, rule: str, place: str, ceiling_us: float) -> None:
    first = next(each for each in brief(CASES / f"{name}.json")["findings"] if each["rule"] == rule)
    assert place in first["where"]
    assert first["ceiling_us_per_step"] == pytest.approx(ceiling_us, rel=0.001)


@needs_cases
def test_a_program_finds_the_late_rank() -> None:
    truth = json.loads((JOBS / "truth.json").read_text("utf-8"))["mesh_late_rank3"]
    document = report_several(sorted(JOBS.glob("mesh_late_rank3.rank*.json.gz"))).document
    data = json.loads(document_text(document, "brief"))
    assert (data["kind"], data["straggler"]["rank"]) == ("ranks", truth["late_rank"])
    assert data["straggler"]["wait_us_per_step"] == pytest.approx(truth["step_us"] - truth["mended_us"], rel=0.3)


def test_one_shape_for_what_cannot_be_told() -> None:
    """In reports, comparisons and ranks alike: the question, the reason, and what to record."""
    one = PROJECT / "tests/traces/mlp_eager.json.gz"
    rows = [
        *document_data(trace_report(diagnosed(traced(), SHAPES)))["cannot_tell"],
        *document_data(report_several([one, one]).document)["cannot_tell"],
    ]
    assert rows == [{"rule": "shapes", "reason": "no shapes", "option": "record_shapes=True"}]


def test_every_rule_says_when_it_is_mistaken() -> None:
    assert [rule.name for rule in RULES if not rule.mistaken.endswith(".")] == []
    assert {rule.confidence for rule in RULES} == {"high", "medium", "low"}
