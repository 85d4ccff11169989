"""The traces of an experiment's ranks, taken together and merged into one file."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from kinetoscope.ranks.joining import merge_ranks
from kinetoscope.trace.events import Trace
from kinetoscope.trace.kineto import read_trace
from snippets.lab.capture.agreement import Ranks
from snippets.lab.capture.loops import profile_loop
from snippets.lab.capture.profiling import PROFILES, export, scrubbed
from snippets.lab.experiment import Experiment, Loop


@dataclass(frozen=True)
class RankTraces:
    """Profiles all ranks with one schedule. One rank alone under the profiler would be late everywhere."""

    ranks: Ranks
    folder: Path

    def take(self, experiment: Experiment, loop: Loop, device: str) -> None:
        """Profile until the steps of every rank show the same work, then merge; a cold process has only one try.

        Every rank writes its trace after all have run the last step, because writing takes unequal time.
        """
        own = self._path(experiment, self.ranks.rank)
        for _ in range(PROFILES if experiment.first_steps else 1):
            finished = profile_loop(experiment, loop, device, self.ranks)
            self.ranks.barrier()
            exported = export(finished)
            if not self.ranks.is_any(not same_work(read_trace(exported))):
                break
        own.write_bytes(scrubbed(exported))
        self.ranks.barrier()
        if self.ranks.is_first:
            traces = [self._path(experiment, rank) for rank in range(self.ranks.world)]
            merge_ranks(traces, self.folder / f"{experiment.name}.trace.json")

    def _path(self, experiment: Experiment, rank: int) -> Path:
        return self.folder / f"{experiment.name}.rank{rank}.json"


def same_work(trace: Trace) -> bool:
    """Whether all steps ran the same GPU work, in any order: streams of communication overlap others. False for no
    step."""
    counts = [Counter((each.kind, each.name) for each in step.activities) for step in trace.steps]
    return bool(counts) and all(each == counts[0] for each in counts)
