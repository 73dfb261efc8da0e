"""Reading configuration files in tests."""

from pathlib import Path

from openmanus_graph.config.files import Layer, read_layer


def layer_of(path: Path) -> Layer:
    """Read a file that is there."""
    layer = read_layer(path, None)
    assert layer is not None
    return layer
