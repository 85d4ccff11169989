"""The names that a chapter's findings.py uses: figures, measures and claims over the recordings of a device.

figure.py      a value with unit and spread, and its formatting
device.py      the recordings of one GPU, and a run: one experiment on it
ranks.py       a run on each rank of an experiment on several GPUs, and the ranks compared
points.py      the point of a sweep that a selector names
views.py       a device that notes what is read, and a part of a device
part.py        one process's samples, or one third of the steps
measure.py     ratios, shares and extremes that chapters share
probed.py      times and rates out of what probes returned
quantities.py  the quantities that every run has, by name
crossing.py    the size at which one limit of a growing step gives way to another
band.py        the values for which a claim holds
claim.py       a sentence, its band and its source
fault.py       a fault that a chapter plants: its rule, its ceiling and what mending it saved
other_device.py  a figure of a named GPU, whichever device is shown
mismatch.py    what happens where recordings of another GPU do not fit: the one boundary for errors
spread.py      a figure of the whole and of its parts: how far processes and steps differ
accepted.py    the statuses that were accepted for a device
book.py        all chapters' figures and claims; only this module imports the chapters' findings

Imports recording, trace, diagnosis and experiment; never capture, drawing or page.
"""

from kinetoscope.trace.events import TraceError as TraceError
from kinetoscope.trace.units import format_value as format_value
from snippets.lab.finding.band import (
    at_least as at_least,
    at_most as at_most,
    between as between,
    equals as equals,
    matches as matches,
)
from snippets.lab.finding.claim import Claim as Claim, Source as Source, claim as claim
from snippets.lab.finding.crossing import crossing as crossing, grows_from as grows_from
from snippets.lab.finding.device import Device as Device, Run as Run
from snippets.lab.finding.figure import Figure as Figure
from snippets.lab.finding.measure import (
    Measure as Measure,
    derived as derived,
    difference_of_pairs as difference_of_pairs,
    largest as largest,
    listed as listed,
    paired_difference as paired_difference,
    paired_ratio as paired_ratio,
    percent as percent,
    percent_saved as percent_saved,
    point_difference as point_difference,
    point_ratio as point_ratio,
    ratio_of_kinds as ratio_of_kinds,
    ratio_of_pairs as ratio_of_pairs,
    same as same,
    share_of_ceiling as share_of_ceiling,
    smallest as smallest,
    unpaired_ratio as unpaired_ratio,
)
from snippets.lab.finding.part import timing_of_samples as timing_of_samples
from snippets.lab.finding.quantities import quantity as quantity
from snippets.lab.finding.ranks import compare_ranks as compare_ranks, on_ranks as on_ranks
from snippets.lab.recording.schema import NotRecorded as NotRecorded, NotTimed as NotTimed
