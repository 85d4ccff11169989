"""The command `prepare`: `make docs` runs it before it builds the pages."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from kinetoscope.trace.text import printable
from snippets.lab.experiment import chapters
from snippets.lab.finding.device import Device
from snippets.lab.notebooks.files import move_unshowable, notebooks
from snippets.lab.page.kept import keep, kept, look
from snippets.lab.recording.device import (
    DEFAULT_DEVICE,
    default_device,
    recordings_root,
    require_only_recordings,
    this_device,
    why_no_device,
)
from snippets.lab.tools.listing import experiment_states
from snippets.lab.tools.record import Machine, record, this_machine

DESCRIPTION = """\
On a machine with a GPU, record stale or missing experiments for it. Then print the state of every experiment on the
pages: live (recorded on this machine), replayed, stale or missing.

  python -m snippets.lab prepare --fresh
"""
CURE = "name one by its UUID, CUDA_VISIBLE_DEVICES=GPU-..."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `prepare`."""
    parser.add_argument("--fresh", action="store_true", help="record everything again")


def command(arguments: argparse.Namespace) -> int:
    """Record on a machine with a GPU, then print the state of every experiment on the pages."""
    return prepare(recordings_root(), arguments.fresh, this_device(), machine=this_machine)


def prepare(root: Path, fresh: bool, here: str | None, *, machine: Callable[[], Machine]) -> int:
    """Record for the GPU `here`, unless it is None or `DEVICE` is another; then print the state of every experiment.

    Raises `RecordingError` for files that a site must not publish: then `make docs` ends.
    """
    require_only_recordings(root)
    code = 0
    if here is not None and os.environ.get("DEVICE", here) == here:
        built = machine()
        if (first := built.require_gpu()) != here:
            order = f"CUDA records {first}, but pages open with {here}, the first GPU of nvidia-smi"
            print(f"warning: {order}: {CURE}", file=sys.stderr)
        code = record(root, [], fresh, retry=fresh, machine=built)
    elif not os.environ.get("DEVICE") and here is None and (reason := why_no_device()):
        print(f"warning: nothing is recorded here: {reason}", file=sys.stderr)
    device = Device(root, default_device(root))
    look(root)
    for chapter in chapters():
        states = json.loads(kept(("states", device.name, chapter), partial(_states, device, chapter)))
        for experiment_id, state in states.items():
            mode = {"recorded": "live" if device.name == here else "replayed"}.get(state, state)
            print(f"{experiment_id:40} {mode:10} {device.name}")
    keep()
    for notebook in notebooks(root):
        if problem := move_unshowable(notebook, Path(".cache/labs")):
            print(f"warning: {printable(problem)}", file=sys.stderr)
    look(root)  # again: a notebook may have been moved
    for notebook_id, state in json.loads(kept(("labs",), partial(_lab_states, root))).items():
        print(f"{notebook_id:40} {'replayed' if state == 'recorded' else state:10} {DEFAULT_DEVICE}")
    keep()
    return code


def _states(device: Device, chapter: str) -> str:
    return json.dumps(experiment_states(device, chapter))


def _lab_states(root: Path) -> str:
    return json.dumps({notebook.id: notebook.state for notebook in notebooks(root)})
