"""The command `run`: profile one experiment in this process, GPU or CPU."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from os.path import relpath
from pathlib import Path
from typing import TYPE_CHECKING

from kinetoscope.terminal import CommandError, Parser
from kinetoscope.trace.text import printable
from snippets.lab.experiment import Experiment, UnknownName, Value, chapters, find
from snippets.lab.notebooks.files import PREFIX, find_notebook
from snippets.lab.recording.device import recordings_root

if TYPE_CHECKING:
    from snippets.lab.capture.ranks import RankError

DESCRIPTION = """\
Profile one experiment on this machine, GPU or CPU, and print the profiler's table; with --trace-dir, write its Chrome
trace. The experiment's parameters are options: run mlp/eager --help lists them.

  python -m snippets.lab run mlp/compiled --batch 16 --trace-dir traces
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `run`; `build_options` parses those after the experiment's name."""
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
            parser.error(f"--{name} {value}: must be at least 1")
    if given.trace_dir is not None and given.trace_dir.exists() and not given.trace_dir.is_dir():
        parser.error(f"--trace-dir {given.trace_dir}: is a file; give a folder, which may be new")
    if given.trace_dir is not None and not str(given.trace_dir).isprintable():
        parser.error(f"--trace-dir {given.trace_dir}: has control characters; choose another name")

    import torch

    from snippets.lab.capture.profile_here import profile_here
    from snippets.lab.capture.ranks import RankError

    if given.device == "cuda" and not torch.cuda.is_available():
        parser.error("no CUDA GPU on this machine; omit --device to run on the CPU")
    if parameters != dict(experiment.parameters):
        experiment = replace(experiment.at(**parameters), sweep=())
    try:
        profile_here(experiment, given.device or ("cuda" if torch.cuda.is_available() else "cpu"), given.trace_dir)
    except RankError as error:
        raise _told(error) from error
    return 0


def _told(error: RankError) -> CommandError:
    """Print the traceback of a rank on standard error; return the error for its last line, or for all of it."""
    rank, colon, told = str(error).partition(": ")
    if not told.startswith("Traceback"):
        return CommandError(str(error))
    print("\n".join(map(printable, told.splitlines())), file=sys.stderr)
    return CommandError(f"{rank}{colon}failed; its traceback is above")


def select_experiment(name: str) -> Experiment:
    """Find one experiment by its name. Raises `UnknownName`."""
    if name.startswith(PREFIX):
        notebook = find_notebook(recordings_root(), name)
        raise UnknownName(f"{name} is a notebook: open {relpath(notebook.path)}")
    chosen = find(name) if "/" in name else ()
    if len(chosen) != 1:
        known = [experiment.id for experiment in find(name)] if name in chapters() else chapters()
        raise UnknownName(f"run takes one experiment, CHAPTER/EXPERIMENT: {' '.join(known)}")
    return chosen[0]


def build_options(experiment: Experiment) -> Parser:
    """The parser for the options after an experiment's name: its parameters, the device and the folder for traces."""
    parser = Parser(
        prog=f"python -m snippets.lab run {experiment.id}",
        description="Profile this experiment here and print the profiler's table; with --trace-dir, write its trace.",
    )
    parser.add_argument("--device", choices=("cuda", "cpu"), help="default: the GPU if there is one, else the CPU")
    parser.add_argument("--trace-dir", type=Path, metavar="DIR", help="folder for the Chrome trace")
    for parameter, default in experiment.parameters.items():
        parser.add_argument(f"--{parameter}", type=type(default), default=default, help=f"default {default}")
    return parser
