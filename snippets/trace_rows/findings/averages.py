"""Rows of the profiler's table, made from a recorded trace."""

from collections.abc import Sequence
from fnmatch import fnmatchcase

from kinetoscope.html import Html, code, table
from kinetoscope.trace.averages import Average, key_averages
from snippets.lab.finding import Device, format_value

ROW_HEAD = ["row", "self CPU", "CPU total", "self GPU", "GPU total", "calls"]


def averages(device: Device, experiment: str, *patterns: str) -> list[Average]:
    """The rows of the profiler's table whose names match one of the patterns, in the patterns' order, each once."""
    rows = key_averages(device[experiment].trace)
    found = {row.name: row for pattern in patterns for row in rows if fnmatchcase(row.name, pattern)}
    return list(found.values())


def rows_of(device: Device, experiment: str, patterns: Sequence[str], caption: str) -> Html:
    """Some rows of the profiler's table of a recording, summed over its steps."""
    rows = [
        [
            Html(f"{code(row.name, 44)}{'' if row.kind == 'operator' else f'<small>{row.kind}</small>'}"),
            *(format_value(us, "us") if us else None for us in (row.self_cpu_us, row.cpu_us)),
            *(format_value(us, "us") if us else None for us in (row.self_gpu_us, row.gpu_us)),
            row.calls,
        ]
        for row in averages(device, experiment, *patterns)
    ]
    return table(caption, ROW_HEAD, rows)


def average(device: Device, experiment: str, name: str) -> Average:
    """One row of the profiler's table. Raises `StopIteration` if the recording lacks it."""
    return next(iter(averages(device, experiment, name)))
