"""The broken chapters, and recordings of them that are not stale."""

from __future__ import annotations

from typing import Any

from snippets.lab.experiment import find, package_folder
from snippets.lab.recording.digest import source_digest
from snippets.lab.recording.schema import Recording
from tests.lab.samples import sample

PACKAGE = "tests.lab.broken"
SOURCES = package_folder(PACKAGE)
FAULTS = find("faults", PACKAGE)
RIGHT = find("faults/right", PACKAGE)


def current(experiment_id: str, **changed: Any) -> Recording:
    """A recording of a broken chapter with the digest of its sources."""
    return sample(experiment_id, digest=source_digest(experiment_id.partition("/")[0], SOURCES), **changed)
