"""Python for browsers in a built site: pinned files, a policy for one page, and a word where it cannot be had."""

from __future__ import annotations

import json
import tarfile
from html import unescape
from io import BytesIO
from pathlib import Path

import pytest

from kinetoscope.report.document import report_script
from kinetoscope.terminal import CommandError
from snippets.lab.tools import trace_reader
from snippets.lab.tools.policy import POLICY, WASM, hash_source, policy_problems, rules_of, with_sources
from snippets.lab.tools.trace_reader import BELOW, MSGSPEC_WHEEL, PYODIDE, add_reader, fetch, integrity_of
from snippets.lab.tools.wheel import WHEEL

CONTENT = {"pyodide.mjs": b"export {}", "pyodide.asm.wasm": b"\0asm", MSGSPEC_WHEEL: b"PK"}
STRICT = "default-src 'none'; script-src 'self' 'sha256-x'; worker-src 'self'; connect-src 'self'"
META = f'<meta http-equiv="{POLICY}" content="{STRICT}">'
BOX = f'{META}<div id="trace-reader" class="trace-reader"></div>'


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A page with the box, a page without, a wheel and a worker."""
    site = tmp_path / "site"
    for name, content in {
        "your_trace/index.html": BOX,
        "index.html": META,
        f"wheel/{WHEEL}": "PK",
        "assets/js/trace_worker.js": "export {}",
    }.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(content, encoding="utf-8")
    return site


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with small files, which are pinned in place of the true ones."""
    cache = tmp_path / "cache"
    cache.mkdir()
    for name, content in CONTENT.items():
        (cache / name).write_bytes(content)
    monkeypatch.setattr(trace_reader, "PINNED", {name: integrity_of(cache / name) for name in CONTENT})
    return cache


def npm_in(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The only command on the path is this npm."""
    folder.mkdir()
    npm = folder / "npm"
    npm.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    npm.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/bin:/usr/bin")


def packed(content: dict[str, bytes]) -> bytes:
    """What `npm pack` writes."""
    archive = BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as file:
        for name, data in content.items():
            entry = tarfile.TarInfo(f"package/{name}")
            entry.size = len(data)
            file.addfile(entry, BytesIO(data))
    return archive.getvalue()


def test_the_page_names_its_files_and_their_hashes_and_has_a_policy_of_its_own(site: Path, cache: Path) -> None:
    assert add_reader(site, cache).startswith(f"Pyodide {PYODIDE}")
    html = (site / "your_trace/index.html").read_text(encoding="utf-8")
    files = json.loads(unescape(html.partition('data-files="')[2].partition('"')[0]))
    assert files == {
        **{f"../{BELOW}/{name}": hashed for name, hashed in trace_reader.PINNED.items()},
        f"../wheel/{WHEEL}": integrity_of(site / "wheel" / WHEEL),
        "../assets/js/trace_worker.js": integrity_of(site / "assets/js/trace_worker.js"),
    }
    assert {name: (site / BELOW / name).read_bytes() for name in CONTENT} == CONTENT
    assert "Mozilla Public License" in (site / BELOW / "NOTICE.txt").read_text(encoding="utf-8")
    more = f"'wasm-unsafe-eval' {hash_source(report_script())}"
    policy = STRICT.replace("'sha256-x'", f"'sha256-x' {more}").replace("worker-src 'self'", "worker-src 'self' blob:")
    assert f'content="{policy}"' in html
    assert (site / "index.html").read_text(encoding="utf-8") == META


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (None, "Pyodide comes from npm, which is not installed; on Debian or Ubuntu: sudo apt install npm"),
        ("echo no network >&2; exit 1", f"npm cannot fetch Pyodide {PYODIDE} (no network); run make docs again"),
    ],
)
def test_without_pyodide_the_page_stays_as_it_is(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str | None, why: str
) -> None:
    if script is None:
        monkeypatch.setenv("PATH", str(tmp_path))
    else:
        npm_in(tmp_path / "bin", script, monkeypatch)
    assert add_reader(site, tmp_path / "empty").startswith(f"left out, and the page says so: {why}")
    assert (site / "your_trace/index.html").read_text(encoding="utf-8") == BOX
    assert not (site / BELOW).exists()


def test_what_is_fetched_is_kept_if_it_has_the_pinned_hash(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_pip(folder: Path) -> None:
        (folder / MSGSPEC_WHEEL).write_bytes(CONTENT[MSGSPEC_WHEEL])

    archive = tmp_path / "archive"
    monkeypatch.setattr(trace_reader, "_fetch_msgspec", no_pip)
    npm_in(tmp_path / "bin", f"cp {archive} pyodide-{PYODIDE}.tgz", monkeypatch)
    archive.write_bytes(packed({**CONTENT, "pyodide.mjs": b"export { other }"}))
    new = tmp_path / "new"
    with pytest.raises(CommandError, match=r"trace_reader\.py names: .*pyodide\.mjs.*sha256-"):
        fetch(new)
    assert list(new.iterdir()) == []
    archive.write_bytes(packed(CONTENT))
    fetch(new)
    assert {path.name: path.read_bytes() for path in new.iterdir()} == CONTENT
    archive.unlink()  # nothing is fetched twice
    fetch(new)


def test_no_page_reads_traces(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text(META, encoding="utf-8")
    assert add_reader(tmp_path) == "no page reads traces"


def test_webassembly_is_trusted_where_traces_are_read() -> None:
    policy = with_sources("default-src 'none'; script-src 'self'", {"script-src": [WASM]})
    assert rules_of(policy) == {"default-src": ["'none'"], "script-src": ["'self'", WASM]}
    assert list(policy_problems([policy], [], reads_traces=True)) == []
    assert list(policy_problems([policy], [])) == [f"its {POLICY} lets {WASM} run"]
