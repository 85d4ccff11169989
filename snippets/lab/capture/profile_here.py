"""TODO."""

from __future__ import annotations

import json
from pathlib import Path

from snippets.lab.capture.profiling import chrome_trace, profile_steps
from snippets.lab.experiment import Experiment


def profile_here(experiment: Experiment, device: str, trace_dir: Path | None) -> None:
    """Profile one experiment in this process, print the profiler's table, and write its Chrome trace if asked to."""
    if experiment.measure is not None:
        print(json.dumps(experiment.measure(device=device, **experiment.parameters), indent=2))
        return
    assert experiment.make is not None
    for parameters in experiment.points:
        print(f"{experiment.id} on {device}: {' '.join(f'{name}={value}' for name, value in parameters.items())}")
        subject = experiment.make(device=device, **parameters)
        prof = profile_steps(experiment, subject, device)
        sort = "self_cuda_time_total" if device == "cuda" else "self_cpu_time_total"
        print(prof.key_averages().table(sort_by=sort, row_limit=15, max_name_column_width=60))
        if trace_dir is not None:
            trace_dir.mkdir(parents=True, exist_ok=True)
            given = "_".join(str(value) for value in parameters.values())
            path = trace_dir / f"{experiment.chapter}_{experiment.name}_{given}.json"
            path.write_bytes(chrome_trace(prof))
            print(f"trace: {path}\n  in Perfetto:   python -m snippets.lab open {path}")
            if device == "cuda":
                print(f"  in one table:  python -m snippets.lab summary {path}")
