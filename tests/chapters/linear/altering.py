"""Altered times of the chapter's experiments."""

from tests.chapters.altered import AlteredDevice, constant, replace


def retime(device: AlteredDevice, experiment: str, *rows: int, **us: float) -> None:
    """Give `interleaved`, `enqueue`, ... a constant time: at all points, or at those with so many rows."""
    times = {kind: constant(each) for kind, each in us.items()}
    points = tuple(
        replace(at, timings=replace(at.timings, **times)) if not rows or at.parameters["batch"] in rows else at
        for at in device[experiment].points
    )
    device.record(experiment, points=points)
