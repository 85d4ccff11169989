"""The command `try`: run every experiment for a few steps, and record nothing."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from contextlib import nullcontext

from kinetoscope.terminal import positive
from snippets.lab.experiment import find
from snippets.lab.tools.record import within

DESCRIPTION = """\
Try experiments on this machine and print a line for each: ok or the first line of its error, and seconds. A loop is
built, compared with its reference and profiled; a probe measures with its trial parameters. Nothing is recorded. Before
you record on a machine with several GPUs, a trial finds what cannot run there.

  python -m snippets.lab try several_gpus --seconds 20
"""
LIMIT_S = 60


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `try`."""
    parser.add_argument("experiments", nargs="+", metavar="CHAPTER[/EXPERIMENT]")
    parser.add_argument(
        "--seconds",
        type=positive("seconds"),
        default=LIMIT_S,
        metavar="N",
        help=f"an experiment that takes longer fails (default {LIMIT_S})",
    )
    parser.add_argument("--device", choices=("cuda", "cpu"), help="default: the GPU if there is one, else the CPU")


def command(arguments: argparse.Namespace) -> int:
    """Try experiments; 1 if one failed."""
    from snippets.lab.capture.lock import reserve_gpu
    from snippets.lab.capture.selection import count_gpus
    from snippets.lab.capture.trial import try_experiments

    chosen = list({one.id: one for name in arguments.experiments for one in find(name)}.values())
    device = arguments.device or ("cuda" if count_gpus() else "cpu")
    if device == "cuda":
        chosen = within(count_gpus(), chosen)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as Ctrl-C: ends the processes
    begin, failed, ran = time.monotonic(), 0, 0
    gpus = max((one.gpus for one in chosen), default=1)
    with reserve_gpu(wait=False, shared=True, count=gpus) if device == "cuda" else nullcontext():
        for tried in try_experiments(chosen, device, int(arguments.seconds)):
            ran += 1
            failed += bool(tried.failed)
            said = f"failed: {tried.failed}" if tried.failed else "ok"
            print(f"{tried.experiment.id:40} {tried.seconds:6.1f} s  {said}", flush=True)
    print(f"{ran - failed} of {ran} ran, {failed} failed, {time.monotonic() - begin:.0f} s")
    return 1 if failed else 0
