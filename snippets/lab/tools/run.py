"""The command `run`: one experiment profiled in this process, GPU or CPU."""

from __future__ import annotations

import argparse
from dataclasses import replace
from os.path import relpath
from pathlib import Path

from snippets.lab.experiment import Experiment, UnknownName, Value, chapters, find
from snippets.lab.notebooks.files import PREFIX, find_notebook
from snippets.lab.recording.device import recordings_root

HELP = "profile one experiment on this machine, print the profiler's table, write its trace"
DESCRIPTION = """\
Profile one experiment on this machine, GPU or CPU, print the profiler's table, and write its Chrome trace if asked to.
The experiment's own parameters are options: run mlp/eager --help lists them.

  python -m snippets.lab run mlp/compiled --batch 16 --trace-dir traces
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `run`; those after the experiment's name are its own and are parsed with it."""
    parser.usage = "%(prog)s CHAPTER/EXPERIMENT [--its-own-parameters] [--device {cuda,cpu}] [--trace-dir DIR]"
    parser.add_argument("experiment", nargs="?", default="", metavar="CHAPTER/EXPERIMENT", help="such as mlp/eager")
    parser.add_argument("options", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def command(arguments: argparse.Namespace) -> int:
    """Profile one experiment in this process with parameters from the command line."""
    experiment = select_experiment(arguments.experiment)
    parser = build_options(experiment)
    given = parser.parse_args(arguments.options)
    parameters: dict[str, Value] = {name: getattr(given, name) for name in experiment.parameters}
    for name, value in parameters.items():
        if isinstance(value, int) and value < 1:
            parser.error(f"--{name} {value}: at least 1 is needed")
    if given.trace_dir is not None and given.trace_dir.exists() and not given.trace_dir.is_dir():
        parser.error(f"--trace-dir {given.trace_dir}: is a file; give a folder, which is made if need be")

    import torch

    from snippets.lab.capture.profile_here import profile_here

    if given.device == "cuda" and not torch.cuda.is_available():
        parser.error("there is no CUDA GPU here; leave --device out to run on the CPU")
    if parameters != dict(experiment.parameters):
        experiment = replace(experiment.at(**parameters), sweep=())
    profile_here(experiment, given.device or ("cuda" if torch.cuda.is_available() else "cpu"), given.trace_dir)
    return 0


def select_experiment(name: str) -> Experiment:
    """The one experiment that a name means. Raises `UnknownName`."""
    if name.startswith(PREFIX):
        notebook = find_notebook(recordings_root(), name)
        raise UnknownName(f"{name} is a notebook: open {relpath(notebook.path)}")
    chosen = find(name) if "/" in name else ()
    if len(chosen) != 1:
        known = [one.id for one in find(name)] if name in chapters() else chapters()
        raise UnknownName(f"run takes one experiment, CHAPTER/EXPERIMENT: {' '.join(known)}")
    return chosen[0]


def build_options(experiment: Experiment) -> argparse.ArgumentParser:
    """The command line after an experiment's name: its parameters, and where to run."""
    parser = argparse.ArgumentParser(
        prog=f"python -m snippets.lab run {experiment.id}",
        description="Profile this experiment here, print the profiler's table, and write its Chrome trace if asked to.",
    )
    parser.add_argument("--device", choices=("cuda", "cpu"), help="default: the GPU if there is one, else the CPU")
    parser.add_argument("--trace-dir", type=Path, metavar="DIR", help="where to write the Chrome trace")
    for parameter, default in experiment.parameters.items():
        parser.add_argument(f"--{parameter}", type=type(default), default=default, help=f"default {default}")
    return parser
