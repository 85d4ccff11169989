"""The project around the book: what README, Makefile, lock and workflows say is so."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import kinetoscope
from snippets.lab.tools import environment

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
LOCKS = {path.name: path.read_text(encoding="utf-8") for path in sorted(ROOT.glob("requirements*.lock"))}
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


def test_the_citation_has_the_version_and_the_license() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert citation["version"] == kinetoscope.__version__
    assert citation["license"] == project["license"]
    assert citation.keys() >= {"cff-version", "message", "title", "authors"}


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
    promised = {"help", "setup", "docs", "serve", "chapter", "test", "lint", "format", "record", "check", "wheel"}
    assert promised <= set(targets())
    assert len(targets()) <= 12


def test_every_target_that_runs_python_installs_it_first() -> None:
    """`make check` runs several targets at once: each of them may be the first to start."""
    rules = re.findall(r"^([a-z-]+):([^#\n]*).*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)
    python = re.compile(r"\$\((?:PY|BIN|TESTS|ALL_TESTS)\)")
    running = {target: before for target, before, recipe in rules if python.search(recipe)}
    assert {"docs", "test", "check", "recordings-check"} <= set(running)
    assert [target for target, before in running.items() if "$(READY)" not in before] == []


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


def locked(*files: str) -> dict[str, str]:
    """Name -> version."""
    pins = [pin.split(" ")[0] for file in files for pin in environment.pins(LOCKS[file])]
    found = dict(pin.split("==") for pin in pins)
    assert len(found) == len(pins), "one version for every Python and system"
    return found


@pytest.mark.parametrize("build", ["cpu", "cuda"])
def test_the_locks_are_within_the_ranges(build: str) -> None:
    found = locked("requirements.lock", f"requirements-{build}.lock")
    for requirement in environment.requirements("docs", "test", "lint"):
        name, bounds = environment.split(requirement)
        assert environment.within(found[name], bounds), requirement


def test_every_requirement_has_its_hashes() -> None:
    assert set(LOCKS) == set(environment.LOCKS)
    for file, text in LOCKS.items():
        pins = environment.pins(text)
        assert text == environment.LOCKS[file] + "".join(pins.values()), file  # and nothing else
        assert pins, file
        for hashes in pins.values():
            lines = hashes.splitlines()[1:]
            assert all(re.fullmatch(r"    --hash=sha256:[0-9a-f]{64}( \\)?", line) for line in lines), hashes
            assert len(lines) == len(set(lines)), hashes


def test_the_lines_of_one_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert environment.main(["--pins", "msgspec"]) == 0
    out = capsys.readouterr().out
    assert out in LOCKS["requirements.lock"]
    assert list(environment.pins(out)) == [f"msgspec=={locked('requirements.lock')['msgspec']}"]


def test_nothing_is_installed_but_wheels_of_a_known_hash() -> None:
    """Wherever pip runs: make, continuous integration, workflows."""
    scripts = [MAKEFILE, *(path.read_text() for path in sorted((ROOT / ".ci").iterdir())), *WORKFLOWS.values()]
    commands = [command for text in scripts for command in re.findall(r"-m pip install .+", text.replace("\\\n", " "))]
    assert len(commands) == 4
    for option in ("--require-hashes", "--only-binary :all:", "--no-deps"):
        assert [command for command in commands if option not in command] == []
    assert not re.search(r"pipx|uvx|npx|curl[^\n]*\|", "\n".join(scripts))


def test_both_builds_of_torch_are_locked() -> None:
    """A CPU build's hashes come from another index: they are of the same version, for every promised Python."""
    (torch,), cuda = environment.pins(LOCKS["requirements-cpu.lock"]), locked("requirements-cuda.lock")
    assert torch == f"torch=={cuda['torch']}+cpu"
    wheels = {tuple(line.split()[1:3]) for line in environment.TORCH_CPU.splitlines()}
    assert wheels == {(python, cpu) for python in ("cp311", "cp312", "cp313") for cpu in ("x86_64", "aarch64")}
    assert [name for name in locked("requirements.lock") if environment.CUDA.match(name)] == []


def test_a_new_torch_needs_the_hashes_of_its_cpu_build() -> None:
    with pytest.raises(SystemExit, match=r"no hashes of torch 2\.99\.0 for the CPU: add them to TORCH_CPU"):
        environment.torch_for_cpu("2.99.0")


def test_what_builds_the_package_is_locked() -> None:
    requires = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    assert requires == [f"setuptools=={locked('requirements.lock')['setuptools']}"]


def test_mkdocs_stays_below_2() -> None:
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    assert "mkdocs>=1.6.1,<2" in groups["docs"]


def triggers(workflow: dict[Any, Any]) -> set[str]:
    return set(workflow[True])  # YAML 1.1 reads the key `on` as true


@pytest.mark.parametrize("name", WORKFLOWS)
def test_workflows_have_few_rights(name: str) -> None:
    """What zizmor leaves open: it refuses dangerous triggers, inputs within a script and actions without a commit."""
    workflow = yaml.safe_load(WORKFLOWS[name])
    assert workflow["permissions"] == {}, "rights are given to the job that needs them"
    for job in workflow["jobs"].values():
        assert job["timeout-minutes"] <= 60
        for step in job["steps"]:
            if step.get("uses", "").startswith("actions/checkout@"):
                assert step["with"]["persist-credentials"] is False


@pytest.mark.parametrize("name", WORKFLOWS)
def test_actions_are_pinned_by_commit_with_their_version(name: str) -> None:
    used = re.findall(r"\buses: *(.+)", WORKFLOWS[name])
    pinned = re.compile(r"(actions|pypa)/[a-z-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")
    assert used
    assert [action for action in used if not pinned.fullmatch(action)] == []


def test_artifacts_are_unpacked_outside_of_the_checkout() -> None:
    """An artifact holds what another machine put into it: over a checkout, that could be code, or a hook of git."""
    seen = 0
    for job in (job for text in WORKFLOWS.values() for job in yaml.safe_load(text)["jobs"].values()):
        uses = [step.get("uses", "").partition("@")[0] for step in job["steps"]]
        for step in (step for step in job["steps"] if "download-artifact@" in step.get("uses", "")):
            seen += 1
            assert step["with"]["name"]
            assert "actions/checkout" not in uses or step["with"]["path"].startswith("${{ runner.temp }}/")
    assert seen == 3


@pytest.mark.parametrize(("tag", "code"), [(f"v{kinetoscope.__version__}", 0), ("v9.9.9", 1), ("v", 1)])
@pytest.mark.parametrize("is_merged", [True, False])
def test_a_release_is_the_version_and_on_main(tmp_path: Path, tag: str, code: int, is_merged: bool) -> None:
    job = yaml.safe_load(WORKFLOWS["release.yml"])["jobs"]["build"]
    (script,) = (step["run"] for step in job["steps"] if step.get("name", "").startswith("the tag"))
    for name, status in {"git": not is_merged, "python": None}.items():
        program = f"exit {int(status)}" if status is not None else f'exec {sys.executable} "$@"'
        (tmp_path / name).write_text(f"#!/bin/sh\n{program}\n")
        (tmp_path / name).chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "GITHUB_REF_NAME": tag}
    done = subprocess.run(["bash", "-e", "-c", script], cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == (code or int(not is_merged)), done
    message = (
        f"tag v{kinetoscope.__version__}" if code else "" if is_merged else f"{tag} is not on main: merge it first"
    )
    assert done.stderr.strip().endswith(message)


def test_a_release_is_published_without_a_token_and_with_attestations() -> None:
    job = yaml.safe_load(WORKFLOWS["release.yml"])["jobs"]["publish"]
    assert (job["needs"], job["environment"], job["permissions"]) == ("build", "pypi", {"id-token": "write"})
    assert job["steps"][-1]["with"] == {"packages-dir": "dist", "attestations": True}


def test_who_may_write_runs_nothing_of_ours() -> None:
    """Its token is worth stealing: a job that may write runs git and gh, no Python, no make, no script."""
    for text in WORKFLOWS.values():
        for job in yaml.safe_load(text)["jobs"].values():
            if "write" in job["permissions"].values():
                runs = "\n".join(step.get("run", "") for step in job["steps"])
                assert not re.search(r"python|make|\.ci/|pip|npm", runs)


def test_no_secret_where_code_of_a_fork_runs() -> None:
    for text in WORKFLOWS.values():
        assert "secrets." not in text
        workflow = yaml.safe_load(text)
        if "pull_request" in triggers(workflow):
            assert [job["permissions"] for job in workflow["jobs"].values()] == [{"contents": "read"}] * 3
            assert "github.token" not in text


RECORDED = "docs/recordings/nvidia-a100/mlp/eager"


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (f"mkdir -p docs/recordings/nvidia-a100/mlp && echo {{}} > {RECORDED}.json && echo x > Makefile", 0),
        (f"mkdir -p docs/recordings/nvidia-a100/mlp && echo x > {RECORDED}.trace.json.gz", 0),
        ("echo x > docs/recordings/old.json", 0),
        ("ln -s /etc/passwd docs/recordings/link.json", 1),
        ("chmod +x docs/recordings/old.json", 1),
        ("rm docs/recordings/old.json", 1),
        ("git mv SECURITY.md docs/recordings/security.json", 1),
        ("git mv .github/workflows/check.yml docs/recordings/check.json", 1),
        ("git mv docs/recordings/old.json docs/recordings/new.json", 1),
        ("echo '* filter=x' > docs/recordings/.gitattributes", 1),
        ("echo '```python exec' > docs/recordings/evil.md", 1),
        ("echo x > docs/recordings/evil.py", 1),
        ("echo x > 'docs/recordings/a b.json'", 1),
        ("echo x > docs/recordings/A.json", 1),
        ("mkdir -p docs/labs && echo x > docs/labs/evil.md && echo y > docs/labs/lab.ipynb && echo x > Makefile", 0),
    ],
)
def test_a_patch_of_recordings_writes_recordings_only(tmp_path: Path, command: str, code: int) -> None:
    """The last job of record.yml, with a patch that a hostile second job could have made."""
    step = yaml.safe_load(WORKFLOWS["record.yml"])["jobs"]["propose"]["steps"][-1]["run"]
    script = step.split("branch=")[0]
    checkout = tmp_path / "checkout"
    own = {"Makefile": "ours", "SECURITY.md": "ours " * 20, ".github/workflows/check.yml": "ours " * 30}
    for name, text in {**own, "docs/recordings/old.json": "{}"}.items():
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).write_text(f"{text}\n")

    def run(*command: str, **options: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, cwd=checkout, capture_output=True, text=True, **options)

    run("git", "init", "--quiet", check=True)
    run("git", "add", ".", check=True)
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
    run("git", *identity, "commit", "--quiet", "--message", "start", check=True)
    run("bash", "-ec", f"{command}; git add --all", check=True)
    (tmp_path / "imported").mkdir()
    (tmp_path / "imported/recordings.patch").write_text(run("git", "diff", "--cached", "--binary", "-M").stdout)
    run("git", "reset", "--quiet", "--hard", check=True)
    done = run("bash", "-e", "-o", "pipefail", "-c", script, env={**os.environ, "RUNNER_TEMP": str(tmp_path)})
    assert done.returncode == code, done
    staged = run("git", "diff", "--cached", "--name-only", "--no-renames", check=True).stdout.split()
    assert code or all(name.startswith("docs/recordings/") for name in staged)
    assert code or bool(staged) == ("docs/recordings" in command)


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
