"""The broken chapters, and recordings of them that are not stale."""

from __future__ import annotations

from typing import Any

from snippets.lab.experiment import find, package_folder
from snippets.lab.recording.fingerprint import fingerprint
from snippets.lab.recording.schema import Recording
from tests.lab.samples import sample

PACKAGE = "tests.lab.broken"
SOURCES = package_folder(PACKAGE)
FAULTS = find("faults", PACKAGE)
RIGHT = find("faults/right", PACKAGE)


def current(experiment_id: str, **changed: Any) -> Recording:
    """A recording of a broken chapter that is not stale."""
    (experiment,) = find(experiment_id, PACKAGE)
    return sample(experiment_id, fingerprint=fingerprint(experiment, SOURCES), **changed)
