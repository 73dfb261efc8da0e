"""Which sandboxes there are on this machine."""

import pytest

from openmanus_graph.backends.sandbox.choose import probes
from openmanus_graph.state.context import SandboxMode
from openmanus_graph.state.settings import SandboxSettings
from tests.support.ssh import SshServer

MODES: list[SandboxMode] = [
    mode for mode in ("bwrap", "nono", "none") if probes(SandboxSettings())[mode]().works
]
"""Those of this machine; docker's command is looked at in test_sandbox."""


def sandbox_settings(request: pytest.FixtureRequest) -> SandboxSettings:
    """Return the settings of the sandbox that a fixture's parameter names."""
    if request.param == "ssh":
        server: SshServer = request.getfixturevalue("ssh_server")
        return server.settings
    return SandboxSettings(mode=request.param)
