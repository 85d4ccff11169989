"""python -m snippets.lab: list, record, import, run, summary, open, decode, claims."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from snippets.lab.capture.profile_here import profile_here
from snippets.lab.capture.recorder import record_experiments
from snippets.lab.capture.selection import NoGpu, require_gpu, select_pending
from snippets.lab.experiment import Experiment, NeedsGpu, UnknownExperiment, chapters, experiments, find
from snippets.lab.notebooks.files import Notebook, find_notebooks, is_notebook, notebooks, record_notebook
from snippets.lab.page.ledger import print_claims
from snippets.lab.recording.device import (
    DEFAULT_DEVICE,
    RECORDINGS,
    recorded_devices,
    recorded_names,
    shown_device,
    this_device,
)
from snippets.lab.recording.digest import is_stale
from snippets.lab.recording.loading import load_recording, load_trace
from snippets.lab.recording.schema import NotRecorded, RecordingError
from snippets.lab.tools.archive import ArchiveError, pack_archive, unpack_archive
from snippets.lab.tools.preview import serve_preview
from snippets.lab.tools.scaffold import ScaffoldError, scaffold_chapter
from snippets.lab.tools.viewer import open_in_perfetto
from snippets.lab.trace.events import TraceError
from snippets.lab.trace.kernel_names import print_kernel_name
from snippets.lab.trace.summary import print_summary

DESCRIPTION = """\
The instrument behind the book: experiments are recorded on a GPU, and everything a page says is computed from the
recordings under docs/recordings.

  python -m snippets.lab list                                what there is, and what is stale or missing
  python -m snippets.lab run mlp/compiled --batch 16         profile one experiment here, GPU or CPU
  python -m snippets.lab record                              record what is stale or missing (needs a GPU)
  python -m snippets.lab summary trace.json.gz               any PyTorch trace in one table
  python -m snippets.lab open trace.json.gz                  the same trace in Perfetto, served from this machine
  python -m snippets.lab decode nvjet_sm90_tst_128x64        what a kernel's name says
  python -m snippets.lab claims                              every claim with its verdict
"""
RUN_HELP = """\
usage: python -m snippets.lab run CHAPTER/EXPERIMENT [--its-own-parameters] [--device {cuda,cpu}] [--trace-dir DIR]

Profile one experiment on this machine, GPU or CPU, print the profiler's table, and write its Chrome trace if asked to.
The experiment's own parameters are options: run mlp/eager --help lists them."""


def parser() -> argparse.ArgumentParser:
    """The command line, without the parameters that `run` takes from its experiment."""
    top = argparse.ArgumentParser(
        prog="python -m snippets.lab", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    listing = commands.add_parser("list", help="experiments by device: recorded, stale, missing")
    listing.add_argument("--device", help="only this device, for example nvidia-h200")
    listing.add_argument(
        "--check", action="store_true", help="exit with 1 when one of the builder's is stale or damaged"
    )

    record = commands.add_parser("record", help="record experiments on this machine's GPU")
    record.add_argument(
        "experiments",
        nargs="*",
        metavar="CHAPTER[/EXPERIMENT]",
        help="all chapters and labs when left out; a lab alone is labs/CHAPTER",
    )
    record.add_argument("--fresh", action="store_true", help="record again what is current, too")
    record.add_argument("--archive", type=Path, metavar="FILE", help="then pack this device's recordings, .tar.gz")

    imported = commands.add_parser("import", help="unpack an archive of recordings after checking it")
    imported.add_argument("archive", type=Path, metavar="FILE")

    text = "profile one experiment on this machine, print the profiler's table, write its trace"
    run = commands.add_parser("run", help=text, add_help=False)
    run.add_argument("experiment", nargs="?", default="", metavar="CHAPTER/EXPERIMENT")

    summarize = commands.add_parser("summary", help="kernels, launches and busy time of a Kineto trace, plain or gzip")
    summarize.add_argument("trace", type=Path, metavar="TRACE")
    summarize.add_argument("--json", action="store_true", help="for machines")

    opened = commands.add_parser("open", help="show a trace in Perfetto; it does not leave this machine")
    opened.add_argument("trace", type=Path, metavar="TRACE")
    opened.add_argument("--no-browser", action="store_true", help="only print the address")
    opened.add_argument(
        "--timeout", type=_seconds, default=300.0, metavar="S", help="seconds to wait to be fetched (300)"
    )

    decode = commands.add_parser("decode", help="what a kernel's name says, token by token")
    decode.add_argument("name", metavar="NAME", help="in quotes, as the profiler prints it")
    decode.add_argument("--json", action="store_true", help="for machines")

    claims = commands.add_parser("claims", help="the ledger: every claim with its verdict")
    claims.add_argument("--device", help="only this device")
    claims.add_argument("--json", action="store_true", help="for machines")
    claims.add_argument("--check", action="store_true", help="exit with 1 when a verdict is not the expected one")

    chapter = commands.add_parser("chapter", help="lay out a new chapter with a working example: make chapter")
    chapter.add_argument("name", nargs="?", default="", metavar="NAME", help="lower case, as a Python module")

    serve = commands.add_parser("serve", help="show the site while you write, following what you save: make serve")
    serve.add_argument("--port", type=int, default=8000, help="of 127.0.0.1 (8000)")

    prepare = commands.add_parser("prepare", help="what make docs does first: record if there is a GPU")
    prepare.add_argument("--fresh", action="store_true", help="record everything again")
    return top


def _seconds(text: str) -> float:
    seconds = float(text)
    if not seconds > 0:  # nan, too
        raise ValueError(text)
    return seconds


def command(argv: Sequence[str] | None) -> int:
    """Parse and run one command; whoever calls it tells what it raises."""
    arguments, rest = parser().parse_known_args(argv)
    if arguments.command == "run":
        return run(arguments.experiment, rest)
    if rest:
        parser().error(f"unrecognized arguments: {' '.join(rest)}")
    return COMMANDS[arguments.command](arguments)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; 0 when it did what was asked, 1 when something failed, 2 for what cannot be asked."""
    try:
        try:
            return command(argv)
        finally:
            sys.stdout.flush()  # here, where a reader that has gone can still be told from an error
    except (NeedsGpu, UnknownExperiment, RecordingError, TraceError, ArchiveError, ScaffoldError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("\nstopped; what was recorded stays as it was", file=sys.stderr)
        return 130


def state(experiment: Experiment, device: str) -> str:
    """`recorded`, `stale`, `missing`, or `unreadable: ...` for one experiment on one device."""
    try:
        found = load_recording(experiment.id, device)
        if experiment.is_traced:
            load_trace(experiment.id, device)
    except NotRecorded:
        return "missing"
    except (RecordingError, TraceError) as error:
        return f"unreadable: {error}"
    return "stale" if is_stale(found) else "recorded"


def list_experiments(arguments: argparse.Namespace) -> int:
    """Print the state of every experiment by device, recordings without experiment included."""
    wanted = [arguments.device] if arguments.device else list(recorded_devices()) or [DEFAULT_DEVICE]
    bad = pending = 0
    for device in wanted:
        print(device)
        for chapter in chapters():
            known = experiments(chapter)
            for experiment in known:
                word = state(experiment, device)
                if word == "missing" and experiment.name not in recorded_names(device, chapter):
                    pending += device == DEFAULT_DEVICE
                else:
                    bad += device == DEFAULT_DEVICE and word != "recorded"
                print(f"  {experiment.id:40} {word}")
            for name in sorted(set(recorded_names(device, chapter)) - {experiment.name for experiment in known}):
                bad += device == DEFAULT_DEVICE
                print(f"  {chapter + '/' + name:40} orphan: its experiment is gone; delete its recording")
        for folder in sorted(path.name for path in (RECORDINGS / device).glob("*/")):
            if folder not in chapters():
                bad += device == DEFAULT_DEVICE
                print(f"  {folder + '/':40} orphan: its chapter is gone; delete the folder")
        for lab in notebooks() if device == DEFAULT_DEVICE else ():
            pending += lab.state == "missing"
            bad += lab.state not in ("missing", "recorded")
            print(f"  {lab.id:40} {lab.state}")
    if pending:
        print(f"{pending} not recorded yet for {DEFAULT_DEVICE}: on a machine with that GPU run make record")
    if bad:
        print(f"{bad} not current for {DEFAULT_DEVICE}: on a machine with that GPU run make record")
    return 1 if bad and arguments.check else 0


def record(arguments: argparse.Namespace) -> int:
    """Record on this machine's GPU, then say what failed and pack an archive if asked to."""

    names = arguments.experiments
    chosen = [one for name in names or chapters() if not is_notebook(name) for one in find(name)]
    chosen_labs = find_notebooks(names)
    try:
        device = require_gpu()
    except NoGpu as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as Ctrl-C: the worker is ended, its folder removed
    to_do = select_pending(chosen, device, arguments.fresh)
    print(f"{device}: {len(to_do)} to record, {len(chosen)} chosen", flush=True)
    outcomes = list(record_experiments(to_do, device))
    failed = [outcome for outcome in outcomes if outcome.failed]
    causes = {outcome.experiment.id: outcome.failed for outcome in failed}
    causes |= record_labs(chosen_labs, device, arguments.fresh)
    print(f"{device}: {len(outcomes) - len(failed)} recorded, {len(failed)} failed")
    for name, cause in causes.items():
        print(f"  {name}: {cause}")
    if arguments.archive:
        count = pack_archive(arguments.archive, device)
        home = f"python -m snippets.lab import {arguments.archive.name}"
        print(f"{arguments.archive}: {count} files; where you can commit: {home}")
    return 1 if causes else 0


def record_labs(chosen: Sequence[Notebook], device: str, fresh: bool) -> dict[str, str]:
    """Run the labs whose outputs are not current, and return why those that failed did.

    Other devices than the builder leave them alone: a lab has one set of outputs, and its reader runs it anyway.
    """
    if device != DEFAULT_DEVICE:
        return {}
    causes: dict[str, str] = {}
    for lab in chosen:
        if fresh or lab.state != "recorded":
            cause = record_notebook(lab, device)
            print(f"{lab.id}: {cause.partition(chr(10))[0] or 'recorded'}", flush=True)
            if cause:
                causes[lab.id] = cause
    return causes


def import_archive(arguments: argparse.Namespace) -> int:
    """Unpack recordings made elsewhere."""

    written, kept = unpack_archive(arguments.archive)
    print("".join(f"{name}\n" for name in written), end="")
    if kept:
        print(f"{len(kept)} kept, because what is here is newer: {', '.join(kept)}")
    return 0


def run(name: str, options: Sequence[str]) -> int:
    """Profile one experiment in this process with parameters from the command line."""
    if not name and {"-h", "--help"} & set(options):
        print(RUN_HELP)
        return 0
    found = find(name) if "/" in name else ()
    if len(found) != 1:
        known = [one.id for one in found or (find(name) if name in chapters() else ())] or chapters()
        raise UnknownExperiment(f"run takes one experiment, CHAPTER/EXPERIMENT: {' '.join(known)}")
    experiment = found[0]
    options_parser = argparse.ArgumentParser(
        prog=f"python -m snippets.lab run {experiment.id}",
        description="Profile this experiment here, print the profiler's table, and write its Chrome trace if asked to.",
    )
    options_parser.add_argument("--device", choices=("cuda", "cpu"), help="the GPU where there is one, else the CPU")
    options_parser.add_argument("--trace-dir", type=Path, metavar="DIR", help="where to write the Chrome trace")
    for parameter, default in experiment.parameters.items():
        kind = type(default)
        options_parser.add_argument(f"--{parameter}", type=kind, default=default, help=f"{default} unless given")
    given = vars(options_parser.parse_args(options))
    device, trace_dir = given.pop("device"), given.pop("trace_dir")
    for parameter, value in given.items():
        if isinstance(value, int) and value < 1:
            options_parser.error(f"--{parameter} {value}: at least 1 is needed")
    if trace_dir is not None and trace_dir.exists() and not trace_dir.is_dir():
        options_parser.error(f"--trace-dir {trace_dir}: is a file; give a folder, which is made if need be")

    import torch

    if device == "cuda" and not torch.cuda.is_available():
        options_parser.error("there is no CUDA GPU here; leave --device out to run on the CPU")
    if given != dict(experiment.parameters):
        experiment = replace(experiment.at(**given), sweep=())
    profile_here(experiment, device or ("cuda" if torch.cuda.is_available() else "cpu"), trace_dir)
    return 0


def show_summary(arguments: argparse.Namespace) -> int:
    """Any trace in one table."""

    return print_summary(arguments.trace, arguments.json)


def open_trace(arguments: argparse.Namespace) -> int:
    """A trace in Perfetto."""

    return open_in_perfetto(arguments.trace, browser=not arguments.no_browser, timeout_s=arguments.timeout)


def decode_name(arguments: argparse.Namespace) -> int:
    """What a kernel's name says."""

    return print_kernel_name(arguments.name, arguments.json)


def show_claims(arguments: argparse.Namespace) -> int:
    """The ledger, for people or for machines."""

    return print_claims(arguments.device, arguments.json, arguments.check)


def new_chapter(arguments: argparse.Namespace) -> int:
    """The four places of a chapter, laid out."""

    return scaffold_chapter(arguments.name)


def serve(arguments: argparse.Namespace) -> int:
    """The site in a browser, built anew where something is saved."""

    return serve_preview(arguments.port)


def prepare(arguments: argparse.Namespace) -> int:
    """Before the pages are built: record on a machine with a GPU, and say of every experiment what a page will show."""
    here = this_device()
    code = 0
    if here is not None and os.environ.get("DEVICE", here) == here:
        asked = argparse.Namespace(experiments=[], fresh=arguments.fresh, archive=None)
        code = record(asked)
    shown = shown_device()
    for chapter in chapters():
        for experiment in experiments(chapter):
            word = state(experiment, shown)
            mode = {"recorded": "live" if shown == here else "replayed"}.get(word, word)
            print(f"{experiment.id:40} {mode:10} {shown}")
    for lab in notebooks():
        print(f"{lab.id:40} {'replayed' if lab.state == 'recorded' else lab.state:10} {DEFAULT_DEVICE}")
    return code


COMMANDS = {
    "list": list_experiments,
    "record": record,
    "import": import_archive,
    "summary": show_summary,
    "open": open_trace,
    "decode": decode_name,
    "claims": show_claims,
    "chapter": new_chapter,
    "serve": serve,
    "prepare": prepare,
}


if __name__ == "__main__":
    sys.exit(main())
