"""The command `list`: every experiment and the state of its recordings."""

from __future__ import annotations

import argparse
import functools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from kinetoscope.trace.events import TraceError
from kinetoscope.trace.text import printable
from snippets.lab.experiment import Experiment, UnknownName, chapters, experiments
from snippets.lab.finding.accepted import NAME, accepted_statuses
from snippets.lab.finding.device import Device, all_devices
from snippets.lab.notebooks.files import notebooks
from snippets.lab.recording.device import DEFAULT_DEVICE, recordings_root
from snippets.lab.recording.fingerprint import MeasuredCode, measured_code
from snippets.lab.recording.loading import load_recording, load_trace
from snippets.lab.recording.schema import NotRecorded, RecordingError

DESCRIPTION = """\
Print the state of every experiment on every recorded device, one line each: recorded, stale (its code has changed
since), missing, needs 2 GPUs (missing, too) or unreadable. A recording without an experiment or chapter is an orphan.

  python -m snippets.lab list --device nvidia-h200
"""


NEEDS = "needs "
"""How the state of an experiment on several GPUs begins while it is not recorded."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `list`."""
    parser.add_argument("--device", help="only this device, for example nvidia-h200")
    parser.add_argument(
        "--check", action="store_true", help=f"exit with 1 if a recording for {DEFAULT_DEVICE} is stale or unreadable"
    )


def command(arguments: argparse.Namespace) -> int:
    """Print the state of every experiment by device."""
    root = recordings_root()
    devices = (known_device(root, arguments.device),) if arguments.device else all_devices(root)
    is_red = False
    for device in devices:
        name = printable(device.name)
        print(name)
        found = list(states(device))
        for experiment, state in found:
            print(f"  {printable(experiment):40} {printable(state)}")
        several = Counter(state for _, state in found if state.startswith(NEEDS))
        pending = sum(state == "missing" for _, state in found)
        faults = len(found) - several.total() - sum(state in ("missing", "recorded") for _, state in found)
        cure = f"for {name}: on a machine with that GPU run make record"
        if pending:
            print(f"{pending} not recorded yet {cure}")
        for needs, count in sorted(several.items()):
            gpus = needs.removeprefix(NEEDS)
            print(f"{count} not recorded yet for {name}: on a machine with {gpus} of that kind run make record")
        if faults:
            print(f"{faults} not current {cure}")
        is_red = is_red or (device.is_default and faults > 0)
    return 1 if is_red and arguments.check else 0


def known_device(root: Path, name: str) -> Device:
    """A recorded device by name. Raises `UnknownName`."""
    known = [device.name for device in all_devices(root)]
    if name not in known:
        raise UnknownName(f"no recordings for {name!r}; known: {' '.join(known)}")
    return Device(root, name)


def states(device: Device) -> Iterator[tuple[str, str]]:
    """Every experiment and orphan with its state; on the default device every notebook, too."""
    for chapter in chapters():
        known = experiment_states(device, chapter)
        yield from known.items()
        for name in sorted(set(device.recorded_names(chapter)) - {each.partition("/")[2] for each in known}):
            yield f"{chapter}/{name}", "orphan: its experiment is gone; delete its recording"
    for path in sorted((device.root / device.name).glob("*/")):
        if path.name not in chapters() and not path.is_symlink():
            yield f"{printable(path.name)}/", "orphan: its chapter is gone; delete the folder"
    try:
        accepted_statuses(device)
    except RecordingError as error:
        yield NAME, f"unreadable: {error}"
    if device.is_default:
        yield from ((notebook.id, notebook.state) for notebook in notebooks(device.root))


def experiment_states(device: Device, chapter: str) -> dict[str, str]:
    """`recorded`, `stale`, `missing`, `needs 2 GPUs`, `missing trace` or `unreadable: ...` for each experiment of a
    chapter, by id."""
    code = functools.cache(lambda gpu: measured_code(gpu=gpu))
    return {experiment.id: _state(device, experiment, code) for experiment in experiments(chapter)}


def stale_beside(device: Device, chosen: Iterable[Experiment]) -> str:
    """A line about other chapters with stale recordings, or empty: changed code may belong to several chapters."""
    ids = {experiment.id for experiment in chosen}
    others = (one for chapter in chapters() for one in experiments(chapter) if one.id not in ids)
    code = functools.cache(lambda gpu: measured_code(gpu=gpu))
    stale = Counter(one.chapter for one in others if _state(device, one, code) == "stale")
    if not stale:
        return ""
    counts = ", ".join(f"{chapter} ({count})" for chapter, count in stale.items())
    return (
        f"{device.name}: stale, too, but not chosen: {counts}; make record CHAPTER='{' '.join(stale)}' records them\n"
    )


def _state(device: Device, experiment: Experiment, code: Callable[[str], MeasuredCode]) -> str:
    recording = None
    try:
        recording = load_recording(device.root, device.name, experiment.id)
        if experiment.is_traced:
            load_trace(device.root, device.name, experiment.id)
    except NotRecorded:
        if recording:
            return "missing trace"
        return "missing" if experiment.gpus == 1 else f"{NEEDS}{experiment.gpus} GPUs"
    except (RecordingError, TraceError) as error:
        return f"unreadable: {error}"
    is_current = recording.fingerprint == code(recording.environment.device).fingerprint(experiment)
    return "recorded" if is_current else "stale"
