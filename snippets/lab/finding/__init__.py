"""The names that a chapter's findings.py uses: figures, measures and claims over the recordings of a device.

figure.py      a value with unit and spread, and its formatting
device.py      the recordings of one GPU, and a run: one experiment on it
points.py      the point of a sweep that a selector names
views.py       a device that notes what is read, and a part of a device
part.py        one process's samples, or one third of the steps
measure.py     ratios, shares and extremes that chapters share
quantities.py  the quantities that every run has, by name
crossing.py    the size at which one limit of a growing step gives way to another
band.py        the values for which a claim holds
claim.py       a sentence, its band and its source
mismatch.py    what happens where recordings of another GPU do not fit: the one boundary for errors
spread.py      a figure of the whole and of its parts: how far processes and steps differ
accepted.py    the statuses that were accepted for a device
book.py        all chapters' figures and claims; only this module imports the chapters' findings

Imports recording, trace and experiment; never capture, drawing or page.
"""

from kinetoscope.trace.events import TraceError
from kinetoscope.trace.units import format_value
from snippets.lab.finding.claim import Claim, Source, at_least, at_most, between, claim, equals, matches
from snippets.lab.finding.crossing import crossing, grows_from
from snippets.lab.finding.device import Device, Run
from snippets.lab.finding.figure import Figure
from snippets.lab.finding.measure import (
    Measure,
    derived,
    difference_of_pairs,
    largest,
    listed,
    paired_difference,
    paired_ratio,
    percent,
    percent_saved,
    point_difference,
    point_ratio,
    ratio_of_kinds,
    ratio_of_pairs,
    same,
    share_of_ceiling,
    smallest,
    unpaired_ratio,
)
from snippets.lab.finding.part import timing_of_samples
from snippets.lab.finding.quantities import quantity
from snippets.lab.recording.schema import NotRecorded, NotTimed

__all__ = [
    "Claim",
    "Device",
    "Figure",
    "Measure",
    "NotRecorded",
    "NotTimed",
    "Run",
    "Source",
    "TraceError",
    "at_least",
    "at_most",
    "between",
    "claim",
    "crossing",
    "derived",
    "difference_of_pairs",
    "equals",
    "format_value",
    "grows_from",
    "largest",
    "listed",
    "matches",
    "paired_difference",
    "paired_ratio",
    "percent",
    "percent_saved",
    "point_difference",
    "point_ratio",
    "quantity",
    "ratio_of_kinds",
    "ratio_of_pairs",
    "same",
    "share_of_ceiling",
    "smallest",
    "timing_of_samples",
    "unpaired_ratio",
]
