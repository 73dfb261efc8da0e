"""Two tools of one name: which packages brought them."""

import pytest

from openmanus_graph import build_manus_graph
from openmanus_graph.errors import ConfigError


def bash(command: str) -> str:
    """Run it elsewhere."""
    return command


@pytest.mark.parametrize(
    ("module", "origin"),
    [("rich.shells", "the package rich"), ("no_package.at_all", "no_package.at_all")],
)
def test_the_packages_of_a_doubled_name_are_named(
    monkeypatch: pytest.MonkeyPatch, module: str, origin: str
) -> None:
    monkeypatch.setattr(bash, "__module__", module)
    with pytest.raises(ConfigError) as refused:
        build_manus_graph(extra_tools=[bash])
    assert "Two tools are named 'bash', from " in str(refused.value)
    assert f" and {origin}. Rename one of them" in str(refused.value)
