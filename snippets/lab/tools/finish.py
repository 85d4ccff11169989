"""The command `finish`: `make docs` runs it after MkDocs, on the site that was built."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path

from snippets.lab.finding.device import all_devices
from snippets.lab.page.nav import chapters_in_nav
from snippets.lab.recording.device import PROJECT, recordings_root
from snippets.lab.tools.check_site import check_site
from snippets.lab.tools.claims import claims_json
from snippets.lab.tools.llms import write_llms
from snippets.lab.tools.search import improve_index, require_sections, section_words
from snippets.lab.tools.set_aside import set_aside_all
from snippets.lab.tools.trace_reader import add_reader
from snippets.lab.tools.trim_styles import trim_styles
from snippets.lab.tools.wheel import FOLDER, build

DESCRIPTION = """\
Finish a site that MkDocs built: improve its search index, add the files that chapters publish, claims.json, llms.txt
and the wheel of kinetoscope, move what pages hold back into files, leave out styles that nothing uses, and check the
whole.

  python -m snippets.lab finish site
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the argument of `finish`."""
    parser.add_argument("site", type=Path, help="the folder that MkDocs wrote")


def command(arguments: argparse.Namespace) -> int:
    """Finish a site; 1 if it is not sound."""
    finish(arguments.site)
    return 1 if check_site(arguments.site, PROJECT / "docs") else 0


def finish(site: Path) -> None:
    """Everything but the check, with a line on each step."""
    root = recordings_root()
    docs = PROJECT / "docs"
    config = (PROJECT / "mkdocs.yml").read_text(encoding="utf-8")
    words = section_words(docs)
    sections = improve_index(site, chapters_in_nav(config), words)
    require_sections(site, words)
    print(f"search: {sections} sections")
    print(f"published: {len(publish_all(site, root))} files")
    parts, pages = set_aside_all(site)
    print(f"set aside: {parts} parts of {pages} pages")
    letters, pages = trim_styles(site)
    print(f"styles: {letters:,} letters less in {pages} pages")
    (site / "claims.json").write_text(claims_json(root, all_devices(root)) + "\n", encoding="utf-8")
    print(f"llms.txt: {write_llms(site)} pages")
    print(f"wheel: {build('wheel', site / FOLDER).name}")
    print(f"traces in the browser: {add_reader(site)}", flush=True)


def publish_all(site: Path, root: Path) -> list[Path]:
    """Write the files that chapters publish next to their pages: each `publish.py` has a function of that name."""
    modules = [path.relative_to(PROJECT).with_suffix("") for path in sorted(PROJECT.glob("snippets/*/publish.py"))]
    published = [importlib.import_module(".".join(module.parts)).publish(site, root) for module in modules]
    return [path for paths in published for path in paths]
