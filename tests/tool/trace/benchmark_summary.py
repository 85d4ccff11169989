"""How long `summary` takes for a large trace, and how much memory, as whole processes.

    python -m tests.tool.trace.benchmark_summary [--megabytes 150] [--repeats 5] [--hta-python PATH]

With the Python of an environment that has HolisticTraceAnalysis, also the time of its kernel breakdown on that file.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.tool.events import synthetic_trace

HTA = """
import sys, time
from hta.trace_analysis import TraceAnalysis
start = time.perf_counter()
analysis = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir="")
read = time.perf_counter()
analysis.get_gpu_kernel_breakdown(visualize=False)
print(f"{read - start:.2f} s to parse, {time.perf_counter() - read:.2f} s for the breakdown")
"""


def main() -> int:
    parser = argparse.ArgumentParser(description="Time the summary of a large synthetic trace.")
    parser.add_argument("--megabytes", type=float, default=150)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--hta-python", metavar="PATH", help="a Python that can import hta")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "synthetic.json"
        known = synthetic_trace(path, arguments.megabytes)
        print(f"{path.stat().st_size / 1e6:.1f} MB, {known.events:,} events, {known.kernels:,} kernels")
        times = sorted(
            seconds_of([sys.executable, "-m", "kinetoscope", "summary", str(path), "--json"])
            for _ in range(arguments.repeats)
        )
        peak_mb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1000
        spread = f"from {times[0]:.2f} to {times[-1]:.2f}"
        print(f"summary: median {times[len(times) // 2]:.2f} s, {spread}; peak {peak_mb:.0f} MB")
        if arguments.hta_python:
            seconds = seconds_of([arguments.hta_python, "-c", HTA, str(path)], quiet=False)
            peak_mb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1000
            print(f"HTA: {seconds:.2f} s; peak {peak_mb:.0f} MB (the larger of the two)")
    return 0


def seconds_of(command: list[str], *, quiet: bool = True) -> float:
    """Wall time of the whole process."""
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL if quiet else None)
    return time.perf_counter() - start


if __name__ == "__main__":
    sys.exit(main())
