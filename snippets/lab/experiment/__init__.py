"""The vocabulary of a chapter's experiments: the measured code, its parameters, and its work.

errors.py       the errors of names, experiments and results
subject.py      the result of a maker: a step or a loop, its least work, and its reference
instruments.py  the measuring functions of a probe
description.py  an experiment: a frozen description
listing.py      finds the chapters and their experiments

The capture room measures an experiment, on a machine with a GPU; listing experiments needs neither a GPU nor torch,
which is why makers import torch inside their bodies. A chapter's experiments import nothing else of the lab: a probe
gets its measuring functions as `Instruments`.

    EAGER = Experiment(
        chapter="mlp", name="eager", label="mlp_fwd",
        parameters={"batch": 64, "seq": 128}, make=make_eager, work=forward_work, group="forward",
    )

Imports only the standard library.
"""

from snippets.lab.experiment.description import TRIAL, Experiment, Parameters, Schedule, Value
from snippets.lab.experiment.errors import ExperimentError, NeedsGpu, UnknownName, WrongAnswer, nearest
from snippets.lab.experiment.instruments import AllTimes, Instruments, SteadyTimes, StepTimes
from snippets.lab.experiment.listing import chapters, experiments, find, package_folder
from snippets.lab.experiment.subject import Loop, Subject, Work, copy_subject, matmul_subject

__all__ = [
    "TRIAL",
    "AllTimes",
    "Experiment",
    "ExperimentError",
    "Instruments",
    "Loop",
    "NeedsGpu",
    "Parameters",
    "Schedule",
    "SteadyTimes",
    "StepTimes",
    "Subject",
    "UnknownName",
    "Value",
    "Work",
    "WrongAnswer",
    "chapters",
    "copy_subject",
    "experiments",
    "find",
    "matmul_subject",
    "nearest",
    "package_folder",
]
