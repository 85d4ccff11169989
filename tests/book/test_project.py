"""The project around the book: what README, Makefile, lock and workflows say is so."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import environment

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8")
WORKFLOWS = {path.name: path.read_text(encoding="utf-8") for path in sorted(ROOT.glob(".github/workflows/*.yml"))}
NOT_IN_THE_MAP = {".gitignore"}


def committed() -> list[str]:
    """The project's files: what git knows or would add; without git, all but what is hidden or built."""
    try:
        command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        paths = done.stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        paths = []
    if not paths:
        ignored = [line.strip("/\n") for line in (ROOT / ".gitignore").read_text().splitlines()]
        found = (path.relative_to(ROOT) for path in sorted(ROOT.rglob("*")) if path.is_file())
        paths = [path.as_posix() for path in found if not {*path.parts} & {*ignored, ".git"}]
    return [path for path in paths if (ROOT / path).is_file()]


def tree() -> dict[str, str]:
    """README's map: path -> what it is."""
    block = README.split("```text\n")[1].split("```")[0]
    found, parents = {}, list[tuple[int, str]]()
    for line in block.splitlines():
        match = re.fullmatch(r"( *)(\S+)\s{2,}(.+)", line)
        assert match is not None, line
        depth = len(match[1])
        parents = [(width, name) for width, name in parents if width < depth]
        found["".join(name for _, name in parents) + match[2]] = match[3]
        if match[2].endswith("/"):
            parents.append((depth, match[2]))
    return found


def test_the_map_is_the_territory_at_the_top() -> None:
    real = {path.split("/")[0] + ("/" if "/" in path else "") for path in committed()} - NOT_IN_THE_MAP
    assert {path for path in tree() if path.count("/") - path.endswith("/") == 0} == real


def test_the_map_is_the_territory_in_the_lab() -> None:
    """Rooms and modules beside them; each room's `__init__` maps its own files (tests/lab/test_rooms.py)."""
    inside = [path.removeprefix("snippets/lab/") for path in committed() if path.startswith("snippets/lab/")]
    real = {path.split("/")[0] + "/" * ("/" in path) for path in inside} - {"__init__.py"}
    assert {path.removeprefix("snippets/lab/") for path in tree() if path.startswith("snippets/lab/")} - {""} == real


def test_no_drawer_for_odds_and_ends() -> None:
    assert [path for path in committed() if Path(path).stem in {"utils", "util", "common", "helpers", "misc"}] == []


def test_links_of_the_readme_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)", README):
        assert target.startswith("https://") or (ROOT / target).exists(), target


def test_no_path_of_a_machine_in_what_is_committed() -> None:
    path_of_a_machine = re.compile(r"(?<![\w./:])/(?:home|root|Users|work|farm)/[\w.-]+")
    told = []
    for path in committed():
        if path.endswith((".py", ".md", ".yml", ".toml", ".lock", ".css", ".js", ".svg", "Makefile", "run")):
            text = (ROOT / path).read_text(encoding="utf-8")
            told += [f"{path}: {match[0]}" for match in path_of_a_machine.finditer(text)]
    assert [line for line in told if not line.startswith("tests/")] == []


def targets() -> dict[str, str]:
    return dict(re.findall(r"^([a-z]+):.*?## (.+)$", MAKEFILE, re.MULTILINE))


def test_few_targets_each_explained() -> None:
    declared = re.search(r"^\.PHONY: (.+)$", MAKEFILE, re.MULTILINE)
    assert declared is not None
    assert set(declared[1].split()) == set(targets())
    assert {"help", "setup", "docs", "serve", "chapter", "test", "lint", "format", "record", "check"} <= set(targets())
    assert len(targets()) <= 11


def test_commands_of_the_readme_exist() -> None:
    named = set(re.findall(r"\bmake ([a-z]+)", README))
    assert {"docs", "test", "check"} <= named
    assert named <= set(targets())


def test_ci_runs_what_the_readme_says() -> None:
    text = (ROOT / ".ci/run").read_text()
    assert os.access(ROOT / ".ci/run", os.X_OK)
    assert re.findall(r"\bmake ([a-z]+)", text) == ["check"]


def test_mkdocs_is_never_told_to_be_quiet() -> None:
    calls = re.findall(r"-m mkdocs (.*)", MAKEFILE)
    assert any(call.startswith("build --strict") for call in calls)
    assert not any(re.search(r"(^| )-(q|v)\b|--quiet|--verbose", call) for call in calls)


def test_the_lock_is_within_the_ranges() -> None:
    pins = dict(line.split("==") for line in LOCK.splitlines() if not line.startswith("#"))
    assert list(pins) == sorted(pins)
    for requirement in environment.requirements("docs", "test", "lint"):
        name, bounds = environment.split(requirement)
        assert environment.within(pins[name], bounds), requirement


def test_the_lock_is_for_every_machine() -> None:
    pins = [line for line in LOCK.splitlines() if not line.startswith("#")]
    assert LOCK.startswith(environment.LOCK_HEAD)
    assert [pin for pin in pins if "+" in pin or "@" in pin or "/" in pin] == []
    assert [pin for pin in pins if environment.NOT_LOCKED.match(pin.split("==")[0])] == []


def test_mkdocs_stays_below_2() -> None:
    optional = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert "mkdocs>=1.6.1,<2" in optional["docs"]


def triggers(workflow: dict[Any, Any]) -> set[str]:
    return set(workflow[True])  # YAML 1.1 reads the key `on` as true


@pytest.mark.parametrize("name", WORKFLOWS)
def test_workflows_cannot_be_used_against_us(name: str) -> None:
    workflow = yaml.safe_load(WORKFLOWS[name])
    assert not triggers(workflow) & {
        "pull_request_target",
        "workflow_run",
        "issue_comment",
        "issues",
        "pull_request_review",
    }
    assert workflow["permissions"] in ({}, {"contents": "read"}), "rights are given to the job that needs them"
    for job in workflow["jobs"].values():
        assert job["timeout-minutes"] <= 60
        for step in job["steps"]:
            assert "${{" not in step.get("run", ""), "inputs reach a script through env"
            if step.get("uses", "").startswith("actions/checkout@"):
                assert step["with"]["persist-credentials"] is False


def test_nothing_from_outside_runs_on_a_machine_of_ours() -> None:
    for name, text in WORKFLOWS.items():
        workflow = yaml.safe_load(text)
        for job in workflow["jobs"].values():
            if "self-hosted" not in job["runs-on"]:
                continue
            assert name == "record.yml"
            assert triggers(workflow) == {"schedule", "workflow_dispatch"}
            assert job["permissions"] == {"contents": "read"}
            assert "github.ref == 'refs/heads/main'" in job["if"]
            assert "!github.event.repository.fork" in job["if"]


def test_check_tries_the_oldest_python_we_promise() -> None:
    matrix = yaml.safe_load(WORKFLOWS["check.yml"])["jobs"]["check"]["strategy"]["matrix"]["python"]
    oldest = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    assert len(matrix) >= 2
    assert f">={matrix[0]}" == oldest


def test_pull_requests_name_the_hardware() -> None:
    assert "*Hardware*" in (ROOT / ".github/pull_request_template.md").read_text()
