"""Is this Python's environment one in which the book can be built? And: requirements.lock from a resolved one.

    python -m tests.environment docs test                complain about what is missing or out of range, by name
    python -m tests.environment --requirements docs      the ranges of pyproject.toml, one to a line
    python -m tests.environment --lock < report.json     requirements.lock from `pip install --dry-run --report`

Leaf: the standard library only, so that it can speak where nothing is installed.
"""

from __future__ import annotations

import json
import re
import sys
from importlib import metadata
from pathlib import Path

OLDEST_PYTHON = (3, 11)
PYPROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"

LOCK_HEAD = """\
# The exact versions that `make setup` installs. Made by `make lock` from the ranges in pyproject.toml, as Python 3.11.0
# would have them; do not edit. A refresh that leaves torch as it is: make lock KEEP="torch==X.Y.Z"
#
# Not pinned: what torch's build for this machine brings along (Triton, the CUDA libraries, setuptools). torch itself
# names the versions that it needs of these, and they differ between its CPU and its CUDA builds.
"""
NOT_LOCKED = re.compile(r"(triton|pytorch-triton|setuptools|pip|wheel|cuda-.*|nvidia-(?!ml-py$).*)$")


def requirements(*extras: str) -> list[str]:
    """The requirements of the book itself and of `extras`, as written in pyproject.toml."""
    import tomllib

    project = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]
    found = list(project["dependencies"])
    for extra in extras:
        found += project["optional-dependencies"][extra]
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


def lock(report: str) -> str:
    """The text of requirements.lock for a report of pip: sorted, without what belongs to one machine."""
    pins = {}
    for package in json.loads(report)["install"]:
        name = re.sub(r"[-_.]+", "-", package["metadata"]["name"]).lower()
        if not NOT_LOCKED.match(name):
            pins[name] = package["metadata"]["version"].partition("+")[0]
    return LOCK_HEAD + "".join(f"{name}=={pins[name]}\n" for name in sorted(pins))


def main(arguments: list[str]) -> int:
    """Answer one of the three calls in the module's docstring."""
    if sys.version_info < OLDEST_PYTHON:
        have = sys.version.split()[0]
        print(f"Python {have} ({sys.executable}) is too old: the book needs 3.11 or newer.", file=sys.stderr)
        return 1
    if arguments == ["--lock"]:
        print(lock(sys.stdin.read()), end="")
        return 0
    if arguments[:1] == ["--requirements"]:
        print(*requirements(*arguments[1:]), sep="\n")
        return 0
    found = problems(requirements(*arguments))
    if found:
        print(f"{sys.executable} lacks what this target needs:", *found, sep="\n  ", file=sys.stderr)
        print("Install these there, or leave PYTHON= out: make then sets up .venv by itself.", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
