"""Python without torch and Triton, to show which modules need neither."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BLOCKER = """\
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "triton"):
            raise ImportError(f"{name} is blocked here")
sys.meta_path.insert(0, Blocker())
"""


def without_torch(code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process where importing torch or Triton is an error."""
    command = [sys.executable, "-W", "error", "-c", BLOCKER + code]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
