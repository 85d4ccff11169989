"""The tool as others get it: its wheel beside msgspec alone, called from another folder."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
from functools import partial
from pathlib import Path
from zipfile import ZipFile

import msgspec
import pytest

import kinetoscope
from kinetoscope.__main__ import COMMANDS
from snippets.lab.recording.device import PROJECT
from snippets.lab.tools.wheel import README, WHEEL, build, description

TRACES = PROJECT / "tests/traces"
LIMIT_BYTES = 1_500_000
NAME = f"kinetoscope-{kinetoscope.__version__}"
CALLS = {
    "report": ["report", "a.json.gz"],
    "summary": ["summary", "a.json.gz"],
    "diff": ["diff", "a.json.gz", "b.json.gz"],
    "merge": ["merge", "rank0.json.gz", "rank1.json.gz", "-o", "job.json.gz"],
    "doctor": ["doctor", "a.json.gz"],
    "open": ["open", "a.json.gz", "--no-browser", "--timeout", "0.2"],
    "decode": ["decode", "nvjet_sm90_tst_128x64"],
    "schema": ["schema", "report"],
    "skill": ["skill"],
}


def built(folder: Path, kind: str) -> Path:
    """The wheel or sdist of the sources that a clone would have, built without a network."""
    sources = folder / "sources"
    sources.mkdir()
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(PROJECT / "kinetoscope", sources / "kinetoscope", symlinks=True, ignore=ignored)
    for name in ("snippets", "tests", "docs"):  # of which nothing may get in
        (sources / name).mkdir()
        (sources / name / "__init__.py").touch()
    for name in ("pyproject.toml", "LICENSE"):
        shutil.copy(PROJECT / name, sources)
    script = f"from setuptools import build_meta; print(build_meta.build_{kind}({str(folder)!r}))"
    done = subprocess.run([sys.executable, "-c", script], cwd=sources, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("wheel"), "wheel")


def sources_of_the_package() -> set[str]:
    paths = (path.relative_to(PROJECT) for path in (PROJECT / "kinetoscope").rglob("*") if path.is_file())
    return {path.as_posix() for path in paths if "__pycache__" not in path.parts}


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    assert wheel.name == f"{NAME}-py3-none-any.whl"
    assert wheel.stat().st_size < LIMIT_BYTES
    with ZipFile(wheel) as archive:
        names = set(archive.namelist())
        about = {name for name in names if name.startswith(f"{NAME}.dist-info/")}
        assert names - about == sources_of_the_package() - {README}
        assert {name.partition("/")[2] for name in about} == {
            "METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE", "top_level.txt",
        }  # fmt: skip
        for name in names - about:
            assert archive.read(name) == (PROJECT / name).read_bytes(), name
        metadata = archive.read(f"{NAME}.dist-info/METADATA").decode()
    needs = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    assert re.findall(r"^Requires-Dist: (.*)$", metadata, re.MULTILINE) == needs
    assert [re.split(r"\W", need)[0] for need in needs] == ["msgspec"]
    assert "\nLicense-Expression: Apache-2.0\n" in metadata
    assert re.findall(r"^Classifier: Programming Language :: Python :: 3\.(\d+)$", metadata, re.MULTILINE) == [
        "11", "12", "13", "14",
    ]  # fmt: skip


def test_the_same_sources_give_the_same_wheel(
    wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """At any time, by any user, from any folder; `pip install .` installs the same files. What the index shows has the
    address of the site."""
    monkeypatch.setenv("SITE_URL", "https://example.org/book")
    first = build("wheel", tmp_path / "first")
    assert first.name == wheel.name == WHEEL
    request.addfinalizer(partial(os.umask, os.umask(0o077)))
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    assert build("wheel", tmp_path / "second").read_bytes() == first.read_bytes()
    with ZipFile(first) as archive, ZipFile(wheel) as other:
        own, others = ({each.filename: each.CRC for each in opened.infolist()} for opened in (archive, other))
        metadata = archive.read(f"{NAME}.dist-info/METADATA").decode()
    changed = {name for name, _ in own.items() ^ others.items()}
    assert changed == {f"{NAME}.dist-info/{name}" for name in ("METADATA", "RECORD")}
    assert "\nProject-URL: Documentation, https://example.org/book\n" in metadata
    assert re.findall(r"^!\[.*\]\((.*)\)$", metadata, re.MULTILINE) == ["https://example.org/book/assets/report.png"]


def test_without_the_address_of_the_site_the_description_has_no_picture() -> None:
    text = (PROJECT / README).read_text(encoding="utf-8")
    (picture,) = re.findall(r"^!\[.*\]\(\.\./(.*)\)$", text, re.MULTILINE)
    assert (PROJECT / picture).is_file()
    assert len(description(text, "").splitlines()) == len(text.splitlines()) - 2
    assert "![" not in description(text, "")


def test_the_sdist_holds_files_and_no_links(tmp_path: Path) -> None:
    with tarfile.open(built(tmp_path, "sdist")) as archive:
        members = {member.name.removeprefix(f"{NAME}/"): member for member in archive}
        assert [name for name, member in members.items() if not (member.isfile() or member.isdir())] == []
        assert {name for name in members if name.startswith("kinetoscope/") and members[name].isfile()} == (
            sources_of_the_package()
        )
        assert not {name.split("/")[0] for name in members} & {"snippets", "tests", "docs"}
        script = archive.extractfile(members["kinetoscope/report/timeline.js"])
        assert script is not None
        assert script.read() == (PROJECT / "docs/assets/js/timeline.js").read_bytes()


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a new environment's programs: in it are the wheel and msgspec, and not even pip."""
    root = tmp_path_factory.mktemp("installed")
    venv.create(root / "venv")
    (packages,) = (root / "venv").glob("lib/python3*/site-packages")
    assert list(packages.iterdir()) == []
    own = Path(msgspec.__file__).parent
    shutil.copytree(own, packages / "msgspec")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-compile"]
    python = root / "venv/bin/python"
    done = run([*command[:3], "--python", python, *command[3:], wheel], root)  # not in a clone, which may have metadata
    assert done.returncode == 0, done.stderr
    assert {path.name for path in packages.iterdir()} == {"kinetoscope", "msgspec", f"{NAME}.dist-info"}
    return python.parent


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Somewhere else, beside a `snippets` and a `torch` of another project."""
    shutil.copy(TRACES / "mlp_eager.json.gz", tmp_path / "a.json.gz")
    shutil.copy(TRACES / "mlp_compile.json.gz", tmp_path / "b.json.gz")
    for rank in (0, 1):
        shutil.copy(TRACES / "mlp_eager.json.gz", tmp_path / f"rank{rank}.json.gz")
    for name in ("snippets", "torch"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise RuntimeError('of another project')\n")
    return tmp_path


def run(command: list[str | Path], folder: Path) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("program", [["kinetoscope"], ["python", "-m", "kinetoscope"]], ids=" ".join)
def test_every_command_beside_msgspec_alone(program: list[str], installed: Path, folder: Path) -> None:
    called = " ".join(program)
    command = [installed / program[0], *program[1:]]
    assert CALLS.keys() == COMMANDS.keys()
    version = run([*command, "--version"], folder)
    assert (version.returncode, version.stdout) == (0, f"{NAME.replace('-', ' ')}\n")
    for arguments in ([], ["--help"], *([name, "--help"] for name in COMMANDS)):
        done = run([*command, *arguments], folder)
        assert done.returncode == (0 if arguments else 2), done
        assert (done.stdout or done.stderr).startswith(f"usage: {called} "), done
    for name, arguments in CALLS.items():
        done = run([*command, *arguments], folder)
        assert done.returncode == (1 if name == "open" else 0), done  # no browser fetches the trace
        assert done.stdout
    html = (folder / "a.report.html").read_text(encoding="utf-8")
    assert f"<code>{called} open a.json.gz</code>" in html
    assert (PROJECT / "docs/assets/js/timeline.js").read_text(encoding="utf-8") in html


def test_a_machine_without_torch_is_checked(installed: Path, tmp_path: Path) -> None:
    done = run([installed / "kinetoscope", "doctor", "--json"], tmp_path)
    assert done.returncode == 1
    (check,) = (each for each in json.loads(done.stdout)["checks"] if each["name"] == "torch")
    assert check["status"] == "failed"
    assert "pip install torch" in json.dumps(check)


def test_without_msgspec_the_cure_is_named(installed: Path, folder: Path) -> None:
    """Help and the version need no package."""
    command = [installed / "python", "-c", "import sys; sys.modules['msgspec'] = None; "]
    code = "from kinetoscope.__main__ import main; sys.exit(main(sys.argv[1:]))"
    command[-1] = f"{command[-1]}{code}"
    assert run([*command, "--help"], folder).returncode == 0
    done = run([*command, "report", "a.json.gz"], folder)
    assert done.returncode == 1
    assert re.fullmatch(r"error: .*msgspec.*; install what is missing: pip install msgspec\n", done.stderr)
