"""Is this Python's environment one in which the book can be built? And: the locks, from what uv resolved.

    python -m snippets.lab.tools.environment docs test           complain about what is missing or out of range, by name
    python -m snippets.lab.tools.environment --lock ALL TOOLS    the locks, from two files that `make lock` had resolved
    python -m snippets.lab.tools.environment --pins msgspec      the lines of requirements.lock about these packages

Leaf: the standard library only, so that it can speak where nothing is installed.
"""

from __future__ import annotations

import re
import sys
from importlib import metadata
from pathlib import Path

OLDEST_PYTHON = (3, 11)
PYPROJECT = Path(__file__).resolve().parents[3] / "pyproject.toml"

LOCKS = {  # file -> what it is
    "requirements.lock": """\
# What `make setup` installs besides torch, wheels only, each of a hash below. Made by `make lock` from the ranges in
# pyproject.toml, for Python 3.11 and newer on every system; do not edit. A refresh that leaves torch as it is:
# make lock KEEP="torch==X.Y.Z"
""",
    "requirements-cpu.lock": """\
# torch for the CPU alone, which PyTorch publishes in an index of its own: `make setup` installs it where pip is set up
# to find it. Made by `make lock` from TORCH_CPU in snippets/lab/tools/environment.py; do not
# edit.
""",
    "requirements-cuda.lock": """\
# torch with CUDA (on macOS without) and what only that build needs: `make setup` installs these where pip does not find
# the build of requirements-cpu.lock. Made by `make lock`; do not edit.
""",
    "requirements-tools.lock": """\
# What `make lock` and .ci/sbom install for themselves: the group `release` of pyproject.toml. Made by `make lock`; do
# not edit.
""",
}
CUDA = re.compile(r"(torch|cuda-.*|nvidia-(?!ml-py$).*)$")

# torch's builds for the CPU alone, by version, Python, machine and SHA-256. After an update of torch: those of the new
# version, as PyTorch's index of CPU builds names them.
TORCH_CPU = """\
2.13.0+cpu cp311 aarch64 84453b69508ec79902f899c5ed9495acb9e2bbe9fda5f1d5d6f19e3c3842e1a7
2.13.0+cpu cp311 x86_64 6746dbcbeb526eb61330b76b41ff1b4eb848951103a892eeb080dfa2b264667b
2.13.0+cpu cp312 aarch64 6f307c2c32d764ffc6ff6893b801fad6d4752f3e67966cb8abf1843427c02604
2.13.0+cpu cp312 x86_64 4ca4a9394b0c771238a4f73590fdbbc4debad85ed0fa63d026ae1b085da7d6e2
2.13.0+cpu cp313 aarch64 0b8f7d0423027ae8b90c7977c627f3379f325363a08224dffad9b4b2d684a83d
2.13.0+cpu cp313 x86_64 3fbf9c9d1f3c10c2d59d04aca426dee9ccc6ceb32d255c61e93acc3b4f75fae6
"""


def requirements(*groups: str) -> list[str]:
    """The requirements of the tool, of the book and of further groups, as written in pyproject.toml."""
    import tomllib

    content = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))
    found = list(content["project"]["dependencies"])
    for group in ("book", *groups):
        found += content["dependency-groups"][group]
    return found


def split(requirement: str) -> tuple[str, list[tuple[str, tuple[int, ...]]]]:
    """`"mkdocs[x]>=1.6.1,<2"` -> `("mkdocs", [(">=", (1, 6, 1)), ("<", (2,))])`."""
    match = re.fullmatch(r"([A-Za-z0-9._-]+?)(?:\[[^]]*\])?((?:[<>=]=?[0-9.]+,?)*)", requirement)
    if match is None:
        raise ValueError(f"pyproject.toml: only name[extra]>=1.2,<3 is understood, not {requirement!r}")
    bounds = [(sign, release(version)) for sign, version in re.findall(r"([<>=]=?)([0-9.]+)", match[2])]
    return match[1], bounds


def release(version: str) -> tuple[int, ...]:
    """`"2.11.0+cu130"` -> `(2, 11, 0)`."""
    match = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def within(version: str, bounds: list[tuple[str, tuple[int, ...]]]) -> bool:
    """Whether `version` satisfies all `bounds`; `2` and `2.0` are equal."""

    def compare(bound: tuple[int, ...]) -> int:
        have = release(version)
        width = max(len(have), len(bound))
        left, right = have + (0,) * (width - len(have)), bound + (0,) * (width - len(bound))
        return (left > right) - (left < right)

    tests = {">=": lambda c: c >= 0, "<=": lambda c: c <= 0, ">": lambda c: c > 0, "<": lambda c: c < 0}
    return all(tests.get(sign, lambda c: c == 0)(compare(bound)) for sign, bound in bounds)


def problems(wanted: list[str]) -> list[str]:
    """One line for each requirement that this environment does not meet."""
    found = []
    for requirement in wanted:
        name, bounds = split(requirement)
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            found.append(f"{requirement}: not installed")
            continue
        if not within(version, bounds):
            found.append(f"{requirement}: {version} is installed")
    return found


def pins(lock: str) -> dict[str, str]:
    """Requirement, `name==version` with its marker if it has one -> its lines in `lock`, hashes included."""
    found = re.findall(r"^([\w.-]+==[^\\\n]+?) \\\n((?:    --hash=.+\n)+)", lock, re.MULTILINE)
    return {requirement: f"{requirement} \\\n{hashes}" for requirement, hashes in found}


def torch_for_cpu(version: str) -> str:
    """The lines of its build for the CPU alone, an exit for a version whose wheels TORCH_CPU does not list."""
    wheels = [line.split() for line in TORCH_CPU.splitlines()]
    found = [digest for build, _, _, digest in wheels if build == f"{version}+cpu"]
    if not found:
        raise SystemExit(
            f"no hashes of torch {version} for the CPU: add them to TORCH_CPU in snippets/lab/tools/environment.py"
        )
    return " \\\n    ".join([f"torch=={version}+cpu", *(f"--hash=sha256:{digest}" for digest in sorted(found))]) + "\n"


def locks(resolved: str, tools: str) -> dict[str, str]:
    """The text of each lock, from what uv resolved for the book and for the tools."""
    parts = dict(LOCKS)
    for requirement, lines in pins(resolved).items():
        name, version = requirement.split(" ")[0].split("==")
        if name == "torch":
            parts["requirements-cpu.lock"] += torch_for_cpu(version)
        parts["requirements-cuda.lock" if CUDA.match(name) else "requirements.lock"] += lines
    parts["requirements-tools.lock"] += "".join(pins(tools).values())
    return parts


def main(arguments: list[str]) -> int:
    """Answer one of the calls in the module's docstring."""
    if sys.version_info < OLDEST_PYTHON:
        have = sys.version.split()[0]
        print(f"Python {have} ({sys.executable}) is too old: the book needs 3.11 or newer.", file=sys.stderr)
        return 1
    if arguments[:1] == ["--lock"]:
        resolved, tools = (Path(file).read_text(encoding="utf-8") for file in arguments[1:])
        for file, text in locks(resolved, tools).items():
            (PYPROJECT.parent / file).write_text(text, encoding="utf-8")
        return 0
    if arguments[:1] == ["--pins"]:
        pinned = pins((PYPROJECT.parent / "requirements.lock").read_text(encoding="utf-8"))
        print("".join(lines for pin, lines in pinned.items() if pin.split("==")[0] in arguments), end="")
        return 0
    found = problems(requirements(*arguments))
    if found:
        print(f"{sys.executable} lacks what this target needs:", *found, sep="\n  ", file=sys.stderr)
        print("Install these there, or leave PYTHON= out: make then sets up .venv by itself.", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
