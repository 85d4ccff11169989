"""Find the call and the operator that launched a GPU activity."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping

from kinetoscope.trace.events import CpuOp, CudaCall, by_start


class Owners:
    """Finds the call and the op that launched an activity, in the process of the activity."""

    def __init__(self, cpu_ops: tuple[CpuOp, ...], calls: tuple[CudaCall, ...], process_of: Mapping[str, str]) -> None:
        """`process_of`: thread -> process; a missing thread belongs to the only process, whose name is empty."""
        self.process_of = process_of
        self.calls_of: dict[str, dict[int, CudaCall]] = defaultdict(dict)
        for call in reversed(calls):
            if call.correlation:
                self.calls_of[process_of.get(call.thread, "")][call.correlation] = call
        self._op_of: dict[str, dict[int, CpuOp]] = defaultdict(dict)
        self._ops_of_thread: dict[str, list[CpuOp]] = defaultdict(list)
        for op in cpu_ops:
            self._ops_of_thread[op.thread].append(op)
            if op.external_id is not None:
                self._op_of[process_of.get(op.thread, "")].setdefault(op.external_id, op)
        self._around: dict[int, CpuOp | None] = {}

    def launch(self, correlation: int | None, process: str) -> CudaCall | None:
        """The first call with this correlation."""
        return self.calls_of[process].get(correlation) if correlation else None

    def named_op(self, external_id: int | None, launch: CudaCall | None, process: str) -> CpuOp | None:
        """The op with the external id of the activity, or of its launch."""
        ops = self._op_of[process]
        op = None if external_id is None else ops.get(external_id)
        if op is None and launch is not None and launch.external_id is not None:
            op = ops.get(launch.external_id)
        return op

    def find_around(self, launches: Iterable[CudaCall]) -> None:
        """Prepare `op_around` for these launches.

        Goes through them in the order of time and skips ended operators from then on, so that thousands of nested
        operators cost no more than their number.
        """
        skip: dict[int, CpuOp | None] = {}
        for launch in sorted({id(launch): launch for launch in launches}.values(), key=by_start):
            ops = self._ops_of_thread.get(launch.thread, [])
            before = bisect_right(ops, launch.start_us, key=by_start)
            op = ops[before - 1] if before else None
            ended = []
            while op is not None and op.end_us <= launch.start_us:
                ended.append(id(op))
                op = skip.get(id(op), op.parent)
            skip.update(dict.fromkeys(ended, op))
            self._around[id(launch)] = op

    def op_around(self, launch: CudaCall | None) -> CpuOp | None:
        """The innermost op around the start of a launch."""
        return None if launch is None else self._around.get(id(launch))
