"""`make serve`: preview the site while you write.

`mkdocs serve` rebuilds every page after any change and keeps running the code that it imported first. This preview
builds a page when its text, its chapter's code or its recordings are saved; after other changes that a page may show,
it builds that page when a browser requests it. It imports changed code again and checks the rules of pages with each
build. The search and what chapters publish are those of `make docs`, which builds without this module; reports of
traces, claims.json and the wheel of kinetoscope are left out.

With a sample, the recordings are in a temporary folder: links to the real ones, and sample recordings that the
chapter's tests generate. A change of the chapter or its tests writes the sample recordings again.
"""

from __future__ import annotations

import importlib
import logging
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING

from jinja2 import BytecodeCache, Environment
from jinja2.bccache import Bucket
from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.exceptions import Abort
from mkdocs.livereload import LiveReloadServer

from kinetoscope.terminal import CommandError
from kinetoscope.trace.text import printable
from snippets.lab.page.nav import chapters_in_nav
from snippets.lab.recording.device import PROJECT, SAMPLE_DEVICE, recordings_root
from snippets.lab.tools.finish import publish_all
from snippets.lab.tools.page_text import pages
from snippets.lab.tools.preview_errors import FenceErrors, describe_error, shorten
from snippets.lab.tools.search import INDEX, improve_index, section_words

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment


HOST = "127.0.0.1"
POLL_S = 0.25
WATCHER_STARTS_S = 2
CONFIG = PROJECT / "mkdocs.yml"
CODE = ("snippets", "kinetoscope")
WATCHED = (PROJECT / "docs", *(PROJECT / name for name in CODE), CONFIG)


class Preview:
    """Builds the site into a temporary folder, page by page, and serves it from there."""

    def __init__(self, site: Path, port: int, sample: Sample | None = None) -> None:
        self.site = site
        self.port = port
        self.sample = sample
        self.url = f"http://{HOST}:{port}/"
        self.server = LiveReloadServer(self.follow, HOST, port, str(site), polling_interval=POLL_S)
        self.server.set_app(self.respond)
        self.watched = (*WATCHED, *((sample.tests,) if sample else ()))
        self.fence_errors = FenceErrors()
        self.templates = Templates()
        self._stamps = stamps(self.watched)
        self._outdated: set[Path] = set()
        """Built pages that may show older content than what is saved."""
        self._failed = False
        self._building = threading.Lock()

    def run(self) -> None:
        """Build all pages, then serve them and follow changes until Ctrl-C. Raises `OSError` for a port in use."""
        socket.create_server((HOST, self.port)).close()  # fails before the build, not after it
        print("building all pages: half a minute the first time", flush=True)
        self.build()
        for path in self.watched:
            self.server.watch(str(path))
        threading.Thread(target=self._announce, daemon=True).start()
        try:
            self.server.serve()  # type: ignore[no-untyped-call]
        except KeyboardInterrupt:
            print()
        finally:
            self.server.shutdown()

    def _announce(self) -> None:
        """Print the address once the server answers, and catch what was saved before its watcher had started."""
        while not self._answers():
            time.sleep(POLL_S)
        print(f"{self.url} follows what you save in docs/ and snippets/; Ctrl-C ends it", flush=True)
        time.sleep(WATCHER_STARTS_S)
        self.follow()

    def _answers(self) -> bool:
        with suppress(OSError):
            urllib.request.urlopen(self.url, timeout=60).close()
            return True
        return False

    def follow(self) -> None:
        """Build the pages of changed files, even if no browser shows them."""
        with self._building:
            self._refresh()

    def respond(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer a request; build an outdated page first."""
        if environ["PATH_INFO"].endswith("/"):
            with self._building:
                self._refresh(self.site / environ["PATH_INFO"].strip("/") / "index.html")
        return self.server.serve_request(environ, start_response)

    def _refresh(self, *requested: Path) -> None:
        """Build outdated pages: the requested ones and those of changed files."""
        before, self._stamps = self._stamps, stamps(self.watched)
        changed = {path for path, _ in before.items() ^ self._stamps.items()}
        if changed:
            print(f"{time.strftime('%H:%M:%S')} changed: {printable(', '.join(sorted(map(str, changed))))}", flush=True)
        dependencies = {path for path in changed if not (path.parts[0] == "docs" and path.suffix in (".md", ".ipynb"))}
        if dependencies:
            self._outdated = set(self.site.rglob("index.html"))
        if code := [path for path in changed if path.parts[0] in CODE]:
            forget(any(path.parts[0] != "snippets" or path.parts[1] == "lab" for path in code))
        if self.sample and any(path.parts[0] in ("snippets", "tests") for path in changed):
            self.sample.write()
        own = {self.site / part / "index.html" for path in dependencies for part in path.parts}
        due = self._outdated & {*requested, *own}
        if changed or (due and not self._failed):
            self.build(*due)

    def build(self, *due: Path) -> None:
        """Build the built pages in `due` and every page with newer text, then print all problems.

        It prints an error once: the next build follows the next change.
        """
        from snippets.lab.page.kept import look  # here: imported again after a change
        from snippets.lab.tools.page_rules import finding_problems, text_problems

        look(recordings_root())
        self.fence_errors.errors.clear()
        start = time.perf_counter()
        built = {page: page.stat().st_mtime_ns for page in self.site.rglob("index.html")}
        for page in due:
            os.utime(page, (0, 0))
        problems = text_problems(PROJECT)
        error = attempt(self._build_site)
        self._failed = bool(error)
        if self._failed:
            kept = "keeping the old pages" if built else "no pages yet"
            print(f"{kept}; fix the error and save", file=sys.stderr)
        else:
            self._print_built(built, start)
            error = self.fence_errors.report(pages(PROJECT / "docs"))
        if not error:
            error = attempt(lambda: problems.extend(finding_problems(PROJECT)))
        if not error and self.sample:
            error = self.sample.error
        print("".join(f"{line}\n" for line in [*problems, error] if line), end="", file=sys.stderr, flush=True)

    def _build_site(self) -> None:
        config = load_config(str(CONFIG), site_dir=str(self.site), site_url=self.url)
        config.plugins.events["env"].append(self.templates.used_by)
        config.plugins.on_startup(command="serve", dirty=True)
        build(config, serve_url=self.url, dirty=True)
        if (self.site / INDEX).exists():
            chapters = chapters_in_nav(CONFIG.read_text(encoding="utf-8"))
            improve_index(self.site, chapters, section_words(PROJECT / "docs"))
        publish_all(self.site, recordings_root())

    def _print_built(self, built: dict[Path, int], start: float) -> None:
        """Print the new pages and the time that they took."""
        fresh = {page for page in self.site.rglob("index.html") if page.stat().st_mtime_ns != built.get(page)}
        self._outdated -= fresh
        names = ", ".join(sorted(f"{page.parent.relative_to(self.site)}/" for page in fresh)) if built else "all"
        print(f"{time.strftime('%H:%M:%S')} built in {time.perf_counter() - start:.1f} s: {names}", flush=True)


def attempt(action: Callable[[], None]) -> str:
    """Run a part of a build; return its error, or an empty text after success."""
    try:
        action()
    except Abort:
        return "MkDocs stopped; its message is above"
    except (Exception, SystemExit) as error:
        return describe_error(error, pages(PROJECT / "docs"))
    return ""


class Templates(BytecodeCache):
    """The theme's compiled templates, which each build would compile again: for a third of its time."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], CodeType | None] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        """Fill the bucket, if a template of this name and text was compiled."""
        bucket.code = self._kept.get((bucket.key, bucket.checksum))

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Keep a template that was compiled."""
        self._kept[bucket.key, bucket.checksum] = bucket.code

    def used_by(self, env: Environment, **_: object) -> Environment:
        """The environment of a build, which takes templates from here."""
        env.bytecode_cache = self
        return env


class Sample:
    """The recordings of a preview: links to the real ones, and sample recordings that a chapter's tests generate."""

    def __init__(self, chapter: str, root: Path) -> None:
        self.chapter = chapter
        self.root = root
        self.tests = PROJECT / "tests" / "chapters" / chapter
        self.error = ""
        """Why the last write of the recordings failed; empty after success."""

    def link(self, real: Path) -> None:
        """Put links to the real recordings into the root."""
        self.root.mkdir()
        for folder in sorted(path for path in real.glob("*/") if path.name != SAMPLE_DEVICE):
            (self.root / folder.name).symlink_to(folder.resolve(), target_is_directory=True)

    def write(self) -> int:
        """Write the sample's recordings; after an `error` keep the old ones. Return the exit code of the command."""
        fresh, folder = self.root.with_name("fresh"), self.root / SAMPLE_DEVICE
        command = [sys.executable, "-m", "tests.lab.sample_recordings", self.chapter, str(fresh)]
        done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            shutil.rmtree(folder, ignore_errors=True)
            (fresh / SAMPLE_DEVICE).rename(folder)
        self.error = shorten(done.stderr.strip()) if done.returncode else ""
        shutil.rmtree(fresh, ignore_errors=True)
        return done.returncode


def stamps(watched: Iterable[Path]) -> dict[Path, int]:
    """The last change of each watched file, in ns, by its path below the root of the project."""
    times_ns = {}
    for top in watched:
        for folder, folders, names in os.walk(top) if top.is_dir() else [(str(top.parent), [], [top.name])]:
            folders[:] = [name for name in folders if name != "__pycache__"]
            place = Path(folder).relative_to(PROJECT)
            for name in names:
                if not name.startswith("."):
                    with suppress(OSError):  # an editor may have deleted its temporary file
                        times_ns[place / name] = os.stat(os.path.join(folder, name)).st_mtime_ns
    return times_ns


def forget(lab: bool) -> None:
    """Drop the chapters' imported code, and the lab's and the trace tool's if `lab`: its next use imports it again."""
    for name in [name for name in sys.modules if name.startswith(("snippets.", "kinetoscope."))]:
        if lab or (name.startswith("snippets.") and name.split(".")[1] != "lab"):
            del sys.modules[name]
    importlib.invalidate_caches()
    if book := sys.modules.get("snippets.lab.finding.book"):
        book.findings.cache_clear()
        book.all_claims.cache_clear()
    if kept := sys.modules.get("snippets.lab.page.kept"):
        kept.imported_again()


def serve_preview(port: int, sample: str = "") -> None:
    """Serve until Ctrl-C. Raises `CommandError` if the port is in use or the chapter has no sample recordings."""
    sys.dont_write_bytecode = True  # its time stamps have whole seconds: a second save within one would be missed
    handler = logging.StreamHandler()
    logging.getLogger("mkdocs").addHandler(handler)
    logging.getLogger("mkdocs.commands.build").addFilter(lambda record: "'dirty' build" not in record.getMessage())
    with tempfile.TemporaryDirectory(prefix="preview_") as name:
        folder = Path(name).resolve()
        samples = Sample(sample, folder / "recordings") if sample else None
        if samples is not None:
            samples.link(recordings_root())
            if samples.write() == 2:
                raise CommandError(samples.error.removeprefix("error: "), exit_code=2)
            os.environ.update(RECORDINGS=str(samples.root), SAMPLE=sample)
        try:
            preview = Preview(folder / "site", port, samples)
            handler.addFilter(preview.fence_errors)
            preview.run()
        except (OSError, OverflowError) as error:
            raise CommandError(f"port {port} of {HOST}: {error}. Another one: make serve PORT=8001", 2) from error
