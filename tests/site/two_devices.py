"""A second site: two devices, a page that holds every component once, and a page to go on to."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

from snippets.lab.recording.device import DEFAULT_DEVICE
from tests import second_device
from tests.lab.copies import WITH_BYTECODE
from tests.site import serving
from tests.site.serving import ROOT

PAGES = Path(__file__).with_name("trial")


def build(folder: Path, make_up: Callable[[Path], object] = second_device.make_up) -> Path:
    """Build it below an empty folder and return where. Raises `RuntimeError` with what was printed.

    `make_up` writes the second device's recordings beside those of the default device.
    """
    root, site = folder / "project", folder / "site"
    for name in ("kinetoscope", "snippets"):
        shutil.copytree(ROOT / name, root / name, ignore=WITH_BYTECODE)
    shutil.copytree(ROOT / "docs" / "assets", root / "docs" / "assets")
    shutil.copytree(PAGES, root / "docs", dirs_exist_ok=True)
    recordings = root / "docs" / "recordings"
    shutil.copytree(ROOT / "docs" / "recordings" / DEFAULT_DEVICE, recordings / DEFAULT_DEVICE)
    make_up(recordings)
    nav = "nav:\n" + "".join(f"  - {page.name}\n" for page in sorted(PAGES.glob("*.md"), reverse=True))
    config = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    (root / "mkdocs.yml").write_text(re.sub(r"^nav:\n(?:[ -].*\n)+", nav, config, flags=re.MULTILINE), encoding="utf-8")
    serving.python(root, "mkdocs", "build", "--strict", "--site-dir", str(site))
    return site
