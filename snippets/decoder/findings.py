"""What the chapter decoder claims, measured in its recordings."""

from snippets.lab.finding import Device, Figure, claim, equals


@claim("DC1", equals(1))
def a_graph_is_one_launch(device: Device) -> Figure:
    """The kernels of a recorded token are launched by one call."""
    return device["decoder/graph"].per_step(lambda step: len({kernel.correlation for kernel in step.kernels}))
