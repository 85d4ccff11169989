"""A second site: two devices, a page that holds every component once, and a page to go on to."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

from snippets.lab.recording.device import DEFAULT_DEVICE
from tests.site import serving
from tests.site.serving import ROOT

OTHER = "nvidia-t100"
"""The default device's recordings under another name: where a device decides, it can be told which one did."""
OTHER_MHZ = 1234.0
PAGES = Path(__file__).with_name("trial")


def build(folder: Path) -> Path:
    """Build it below an empty folder and return where. Raises `RuntimeError` with what was printed."""
    root, site = folder / "project", folder / "site"
    shutil.copytree(ROOT / "snippets", root / "snippets", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "docs" / "assets", root / "docs" / "assets")
    shutil.copytree(PAGES, root / "docs", dirs_exist_ok=True)
    recordings = root / "docs" / "recordings"
    for device in (DEFAULT_DEVICE, OTHER):
        shutil.copytree(ROOT / "docs" / "recordings" / DEFAULT_DEVICE, recordings / device)
    for path in recordings.glob(f"{OTHER}/*/*.json"):
        recording = json.loads(path.read_text(encoding="utf-8"))
        recording["circumstances"]["device"] = "NVIDIA T100"
        recording["circumstances"]["clocks"]["sm_mhz"] = OTHER_MHZ
        path.write_text(json.dumps(recording), encoding="utf-8")
    nav = "nav:\n" + "".join(f"  - {page.name}\n" for page in sorted(PAGES.glob("*.md"), reverse=True))
    config = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    (root / "mkdocs.yml").write_text(re.sub(r"^nav:\n(?:[ -].*\n)+", nav, config, flags=re.MULTILINE), encoding="utf-8")
    serving.python(root, "mkdocs", "build", "--strict", "--site-dir", str(site))
    return site
