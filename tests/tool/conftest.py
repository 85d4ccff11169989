"""These tests run beside msgspec and pytest alone; those that draw their inputs need hypothesis, too."""

from importlib.util import find_spec
from pathlib import Path

collect_ignore = [
    str(path)
    for path in Path(__file__).parent.rglob("test_*.py")
    if find_spec("hypothesis") is None and "from hypothesis" in path.read_text(encoding="utf-8")
]
