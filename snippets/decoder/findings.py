"""What the chapter decoder claims, measured in its recordings."""

from snippets.lab.finding import Device, Figure, claim, equals


@claim("DECODER-1", equals(1))
def a_token_is_one_launch(device: Device) -> Figure:
    """As a recorded graph, a token is one launch."""
    return device["decoder/graph"].per_step(lambda step: len(step.calls))
