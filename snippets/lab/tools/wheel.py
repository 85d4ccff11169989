"""The command `wheel`: build the distribution kinetoscope from this clone, without a network."""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from kinetoscope import __version__
from kinetoscope.terminal import CommandError
from snippets.lab.recording.device import PROJECT

WHEEL = f"kinetoscope-{__version__}-py3-none-any.whl"
FOLDER = "wheel"
"""Below the root of the site."""
SOURCES = ("kinetoscope", "pyproject.toml", "LICENSE")
EPOCH = "315532800"
"""1980-01-01, the first date that a zip file can hold: the same sources give the same bytes."""
README = "kinetoscope/README.md"
_PICTURE = re.compile(r"^(!\[.*\]\()\.\./docs/(.*\)\n)\n", re.MULTILINE)
DESCRIPTION = """\
Build the distribution kinetoscope from this clone: a wheel and a source distribution. The same sources give the same
wheel, byte by byte. It needs setuptools and no network. An index shows pictures by whole addresses only: with SITE_URL,
the picture in the description is that of the site; without, there is none.

  python -m snippets.lab wheel dist
"""
_SCRIPT = """
import sys
from setuptools import build_meta
print(getattr(build_meta, f"build_{sys.argv[1]}")(sys.argv[2]))
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the argument of `wheel`."""
    parser.add_argument("folder", type=Path, nargs="?", default=Path("dist"), help="where to write (default dist)")


def command(arguments: argparse.Namespace) -> int:
    """Write both distributions, and print their paths."""
    for kind in ("wheel", "sdist"):
        print(build(kind, arguments.folder))
    return 0


def build(kind: str, folder: Path) -> Path:
    """Write the distribution of a `kind`, wheel or sdist, into a folder; return its path. Raises `CommandError`.

    The build runs in a copy of the sources: it leaves nothing in the clone, and neither the umask nor the modes of the
    clone's files matter.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        sources, built = Path(temporary, "sources"), Path(temporary, "built")
        _copy_sources(sources)
        done = subprocess.run(
            [sys.executable, "-c", _SCRIPT, kind, str(built)],
            cwd=sources,
            env={**os.environ, "SOURCE_DATE_EPOCH": EPOCH, "PYTHONPATH": ""},
            umask=0o022,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise CommandError(f"cannot build the {kind} of kinetoscope: {reason}; install what is missing: make setup")
        name = done.stdout.splitlines()[-1]
        return Path(shutil.copyfile(built / name, folder / name))


def description(text: str, site_url: str) -> str:
    """The text of README with the pictures of the site, or without pictures if its address is empty."""
    return _PICTURE.sub(rf"\g<1>{site_url.rstrip('/')}/\g<2>\n" if site_url else "", text)


def _copy_sources(folder: Path) -> None:
    folder.mkdir()
    for path in sorted(path for name in SOURCES for path in (PROJECT / name, *(PROJECT / name).rglob("*"))):
        target = folder / path.relative_to(PROJECT)
        if "__pycache__" in path.parts:
            continue
        if path.is_dir():
            target.mkdir(mode=0o755)
        else:
            shutil.copyfile(path, target)
            target.chmod(0o644)
    about, site_url = folder / README, os.environ.get("SITE_URL", "")
    about.write_text(description(about.read_text(encoding="utf-8"), site_url), encoding="utf-8")
    if site_url:
        with (folder / "pyproject.toml").open("a", encoding="utf-8") as file:
            file.write(f"\n[project.urls]\nDocumentation = {json.dumps(site_url)}\n")
