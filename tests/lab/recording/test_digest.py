"""A digest changes with the code that was measured, and with nothing else."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from snippets.lab.recording.device import PROJECT
from snippets.lab.recording.digest import HASHED_FILES, PROTOCOL, is_stale, source_digest
from tests.lab.samples import sample

SOURCE = '''\
"""A chapter."""
import torch

SCALE = 0.5  # half


def step(x, *, flag=None):
    """One step."""
    if flag:
        return x * SCALE + 1e-3
    return [x, ("a", b"b", ...), {**x}, f"{x:.2f} {x!r}", lambda y: -y]
'''


def digest_of(root: Path, **sources: str) -> str:
    chapter = root / f"sources-{len(list(root.iterdir()))}" / "c"
    chapter.mkdir(parents=True)
    for name, text in sources.items():
        (chapter / f"{name}.py").write_text(text)
    return source_digest("c", chapter.parent)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("  # half", "  # a half,\n# or so"),
        ('"""One step."""', '"""Another word."""\n    "and a bare note"'),
        ('"""A chapter."""', ""),
        ("x * SCALE + 1e-3", "(\n            x*SCALE  +  0.001\n        )"),
        ('("a", b"b", ...)', "(\n        'a', u'a'[:0] or b'b', ...,)".replace("u'a'[:0] or ", "")),
        ("\n\n\n", "\n\n"),
        ('"a"', 'u"a"'),
    ],
)
def test_a_digest_does_not_see_comments_and_formatting(tmp_path: Path, old: str, new: str) -> None:
    assert SOURCE.count(old) == 1
    assert digest_of(tmp_path, model=SOURCE.replace(old, new)) == digest_of(tmp_path, model=SOURCE)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("0.5", "0.25"),
        ("1e-3", "1e-4"),
        ("1e-3", "1"),
        ("flag=None", "flag=False"),
        ("flag=None", "flag=0"),
        ("*, flag", "flag"),
        ("if flag", "if not flag"),
        ("-y", "+y"),
        ("-y", "y"),
        ('"a"', '"A"'),
        ('"a"', 'b"a"'),
        (":.2f", ":.3f"),
        ("!r", ""),
        ("...", "None"),
        ("{**x}", "{}"),
        ("import torch\n", ""),
        ("lambda y", "lambda z"),
    ],
)
def test_a_digest_sees_a_change_of_code(tmp_path: Path, old: str, new: str) -> None:
    assert SOURCE.count(old) == 1
    assert digest_of(tmp_path, model=SOURCE.replace(old, new)) != digest_of(tmp_path, model=SOURCE)


def test_a_digest_covers_three_files_and_the_protocol(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [
        digest_of(tmp_path),
        digest_of(tmp_path, model=SOURCE),
        digest_of(tmp_path, kernels=SOURCE),
        digest_of(tmp_path, experiments=SOURCE),
        digest_of(tmp_path, model=SOURCE, experiments=SOURCE),
    ]
    assert digest_of(tmp_path, model=SOURCE, findings="x = 1") == found[1]
    monkeypatch.setattr("snippets.lab.recording.digest.PROTOCOL", PROTOCOL + 1)
    found.append(digest_of(tmp_path, model=SOURCE))
    assert len(set(found)) == len(found)
    assert all(len(one) == 16 for one in found)


def other_pythons() -> list[str]:
    """Other interpreters of 3.11 or newer on this machine, one of each version."""
    places = [Path(found) for n in range(11, 17) if (found := shutil.which(f"python3.{n}"))]
    places += sorted(Path.home().glob(".pyenv/versions/3.*/bin/python"))
    by_version: dict[str, str] = {}
    for place in places:
        asked = subprocess.run(
            [place, "-c", "import sys; print(*sys.version_info[:2], sep='.')"],
            capture_output=True,
            text=True,
            check=False,
        )
        version = asked.stdout.strip()
        if asked.returncode == 0 and (3, 11) <= tuple(map(int, version.split("."))) != sys.version_info[:2]:
            by_version[version] = str(place)
    return list(by_version.values())


def test_a_digest_is_the_same_under_every_python(tmp_path: Path) -> None:
    """Of the chapters as they are and of `SOURCE`; only the functions that make it, since packages may be missing."""
    pythons = other_pythons()
    if not pythons:
        pytest.skip("no other Python of 3.11 or newer on this machine")
    source = Path(str(source_digest.__globals__["__file__"])).read_text(encoding="utf-8")
    start = source.index("def source_digest(")
    program = (
        "import ast, hashlib, sys\nfrom functools import lru_cache\nfrom pathlib import Path\n"
        "PROJECT = Path(sys.argv[1])\nfrom collections.abc import Mapping\n"
        f"PROTOCOL, HASHED_FILES = {PROTOCOL!r}, {HASHED_FILES!r}\n"
        + source[start : source.index("def is_stale(")]
        + "for where in sys.argv[2:]:\n    print(source_digest(Path(where).name, Path(where).parent))\n"
    )
    digest_of(tmp_path, model=SOURCE)
    folders = [
        tmp_path / "sources-0" / "c",
        *(path.parent for path in sorted(PROJECT.glob("snippets/*/experiments.py"))),
    ]
    expected = [source_digest(folder.name, folder.parent) for folder in folders]
    for python in pythons:
        done = subprocess.run(
            [python, "-c", "from __future__ import annotations\n" + program, str(PROJECT), *map(str, folders)],
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.split() == expected, python


def test_stale_is_when_the_digest_differs() -> None:
    assert not is_stale(sample())
    assert is_stale(sample(digest="0" * 16))
