"""The page that reads a trace in the browser: puts Python for browsers and the packages into a built site.

Pyodide (13 MB) comes from npm, which checks nothing that this module does not check again: each file has its hash here,
and the browser compares it once more. A copy in the repository would be in every clone forever, and a wheel that brings
Node.js, 60 MB more in every environment, for a part of one page. So the site gets it where npm is installed; elsewhere
the page says so and shows the command. The files of an earlier build are kept in .cache/pyodide.

A new version: change PYODIDE or MSGSPEC, and the next build names the hash of each file that differs.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from base64 import b64encode
from hashlib import sha256
from html import escape
from pathlib import Path

from kinetoscope.report.document import report_script
from kinetoscope.terminal import CommandError
from snippets.lab.recording.device import PROJECT
from snippets.lab.tools.policy import POLICY, WASM, hash_source, with_sources
from snippets.lab.tools.wheel import FOLDER, WHEEL

PYODIDE = "314.0.7"
MSGSPEC = "0.22.0"
MSGSPEC_WHEEL = f"msgspec-{MSGSPEC}-cp314-cp314-pyemscripten_2026_0_wasm32.whl"
PINNED = {
    "pyodide.mjs": "sha256-bx1g979Sm+swDw9HmDySHTmCNjZAuiCvDjjv3dvGYQk=",
    "pyodide.asm.mjs": "sha256-983I7OgGeM63EvjmXr5tOoMgOhgMOZhl9JYSoFFpNjU=",
    "pyodide.asm.wasm": "sha256-zDbjyrBP38mmP/E+tS6uK5Eb9GwCXMeygfOUvT3h1eY=",
    "pyodide-lock.json": "sha256-XcL8EZEIvBSMdFfchudnW1yH4cr9QgucNMHq73s2wBA=",
    "python_stdlib.zip": "sha256-+hlX5XdwaPxPdDf5bYYK4vvpwZcyugbITgBOwW3X3Xo=",
    MSGSPEC_WHEEL: "sha256-pmsXZjEeQjceUJyZbDkzsWHHrg6r3zYa9TFt7Bl+ECI=",
}
"""What the browser loads, and its hash in the form of the web's `integrity`."""
NOTICE = f"""\
Pyodide {PYODIDE}: Mozilla Public License 2.0; its source: https://github.com/pyodide/pyodide/tree/{PYODIDE}
It contains CPython: Python Software Foundation License 2; its source: https://github.com/python/cpython
msgspec {MSGSPEC}: BSD 3-Clause License; its source: https://github.com/jcrist/msgspec/tree/{MSGSPEC}
"""
CACHE = PROJECT / ".cache" / "pyodide"
BELOW = f"assets/pyodide-{PYODIDE}"
"""Below the root of the site. A new version has a new address, so a browser's copy never mixes two."""
WORKER = "assets/js/trace_worker.js"
MARK = '<div id="trace-reader"'
TIMEOUT_S = 300
PLATFORM = ["--platform", "pyemscripten_2026_0_wasm32", "--python-version", "3.14", "--implementation", "cp"]
_POLICY = re.compile(rf'(<meta http-equiv="{POLICY}" content=")([^"]*)(">)')


def add_reader(site: Path, cache: Path = CACHE) -> str:
    """Let the pages of a built site that have the box read traces; return what was done or why not, in a line."""
    pages = [path for path in sorted(site.rglob("*.html")) if MARK in path.read_text(encoding="utf-8")]
    if not pages:
        return "no page reads traces"
    try:
        fetch(cache)
    except CommandError as error:
        return f"left out, and the page says so: {error}"
    folder = site / BELOW
    folder.mkdir(parents=True, exist_ok=True)
    for name in PINNED:
        shutil.copyfile(cache / name, folder / name)
    (folder / "NOTICE.txt").write_text(NOTICE, encoding="utf-8")
    for page in pages:
        _let_read(page, site)
    size = sum((folder / name).stat().st_size for name in PINNED)
    return f"Pyodide {PYODIDE} and msgspec {MSGSPEC}, {size / 1e6:.0f} MB, for {len(pages)} page"


def _let_read(page: Path, site: Path) -> None:
    """Name the files and their hashes on a page, and widen the policy of this page alone."""
    paths = [site / BELOW / name for name in PINNED] + [site / FOLDER / WHEEL, site / WORKER]
    files = {os.path.relpath(path, page.parent).replace(os.sep, "/"): integrity_of(path) for path in paths}
    more = {
        "script-src": [WASM, hash_source(report_script())],
        "worker-src": ["blob:"],
    }
    html = page.read_text(encoding="utf-8").replace(MARK, f'{MARK} data-files="{escape(json.dumps(files))}"')
    html = _POLICY.sub(lambda match: f"{match[1]}{with_sources(match[2], more)}{match[3]}", html)
    page.write_text(html, encoding="utf-8")


def fetch(cache: Path) -> None:
    """Bring the pinned files into a folder, unless they are there. Raises `CommandError` with the cure."""
    if all((cache / name).is_file() and integrity_of(cache / name) == PINNED[name] for name in PINNED):
        return
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as temporary:
        new = Path(temporary)
        _fetch_pyodide(new)
        _fetch_msgspec(new)
        wrong = {name: found for name in PINNED if (found := integrity_of(new / name)) != PINNED[name]}
        if wrong:
            raise CommandError(f"not the files that snippets/lab/tools/trace_reader.py names: {wrong}")
        for name in PINNED:
            os.replace(new / name, cache / name)


def _fetch_pyodide(folder: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise CommandError("Pyodide comes from npm, which is not installed; on Debian or Ubuntu: sudo apt install npm")
    quick = ["--fetch-retries=1", "--fetch-retry-mintimeout=1000", "--silent"]
    _run([npm, "pack", f"pyodide@{PYODIDE}", *quick], folder, f"npm cannot fetch Pyodide {PYODIDE}")
    with tarfile.open(folder / f"pyodide-{PYODIDE}.tgz") as archive:
        for name in PINNED:
            content = archive.extractfile(f"package/{name}") if name != MSGSPEC_WHEEL else None
            if content is not None:
                (folder / name).write_bytes(content.read())


def _fetch_msgspec(folder: Path) -> None:
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--retries", "1"]
    wheel = ["--no-deps", "--only-binary", ":all:", *PLATFORM, f"msgspec=={MSGSPEC}"]
    _run([*pip, *wheel], folder, f"pip cannot fetch msgspec {MSGSPEC} for browsers")


def _run(command: list[str], folder: Path, failure: str) -> None:
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise CommandError(f"{failure} within {TIMEOUT_S} s; run make docs again where the network is") from error
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise CommandError(f"{failure} ({reason}); run make docs again where the network is")


def integrity_of(path: Path) -> str:
    """The hash of a file in the form of the web's `integrity`; of a missing file, no hash."""
    if not path.is_file():
        return "missing"
    return f"sha256-{b64encode(sha256(path.read_bytes()).digest()).decode()}"
