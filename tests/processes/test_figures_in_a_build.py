"""A figure that nothing computes fails the build of the page that names it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from snippets.lab.recording.device import PROJECT

CONFIG = """\
site_name: x
docs_dir: docs
site_dir: site
theme: {name: null, custom_dir: theme}
plugins: []
markdown_extensions:
  - pymdownx.inlinehilite:
      custom_inline:
        - name: fig
          class: fig
          format: !!python/name:snippets.lab.page.inline.fig_formatter
"""


@pytest.mark.parametrize(
    ("name", "works"), [("linear.sweep_liger.interleaved_us", False), ("linear.eager.bytes", True)]
)
def test_an_unknown_figure_fails_the_build(tmp_path: Path, name: str, works: bool) -> None:
    for folder in ("docs", "theme"):
        (tmp_path / folder).mkdir()
    (tmp_path / "mkdocs.yml").write_text(CONFIG)
    (tmp_path / "theme" / "main.html").write_text("{{ page.content }}")
    (tmp_path / "docs" / "index.md").write_text(f"It is `#!fig {name}` of it.\n")
    command = [sys.executable, "-m", "mkdocs", "build", "--config-file", str(tmp_path / "mkdocs.yml")]
    environment = {name: value for name, value in os.environ.items() if name not in ("DEVICE", "RECORDINGS")}
    done = subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True, check=False)
    page = tmp_path / "site" / "index.html"
    if works:
        assert done.returncode == 0, done.stderr
        assert f'data-figure="{name}"' in page.read_text()
    else:
        assert done.returncode != 0
        assert f"#!fig {name}: UnknownName: no experiment 'linear/sweep_liger'; did you mean" in done.stderr
        assert not page.exists()
