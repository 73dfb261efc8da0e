"""Which sandboxes there are on this machine."""

from openmanus_graph.backends.sandbox.choose import probes
from openmanus_graph.state.context import SandboxMode
from openmanus_graph.state.settings import SandboxSettings

MODES: list[SandboxMode] = [
    mode for mode in ("bwrap", "nono", "none") if probes(SandboxSettings())[mode]().works
]
"""Those of this machine; docker's command is looked at in test_sandbox."""
