"""The official conformance suite against our client and our server."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cli import OPENMANUS, Cli
from tests.support.limits import BACKSTOP_S
from tests.support.servers import served

CLIENT = Path(__file__).parents[1] / "support" / "mcp_conformance.py"
SUITE = "@modelcontextprotocol/conformance@0.1.16"
SCENARIOS = [
    "initialize",
    "tools_call",
    "sse-retry",
    "elicitation-sep1034-client-defaults",
    "auth/metadata-default",
    "auth/metadata-var1",
    "auth/metadata-var2",
    "auth/metadata-var3",
    "auth/scope-from-www-authenticate",
    "auth/scope-from-scopes-supported",
    "auth/scope-omitted-when-undefined",
    "auth/scope-step-up",
    "auth/scope-retry-limit",
    "auth/token-endpoint-auth-basic",
    "auth/token-endpoint-auth-post",
    "auth/token-endpoint-auth-none",
    "auth/pre-registration",
    "auth/2025-03-26-oauth-endpoint-fallback",
    "auth/resource-mismatch",
    "auth/offline-access-scope",
    "auth/offline-access-not-supported",
    "auth/client-credentials-basic",
    "auth/client-credentials-jwt",
    "auth/basic-cimd",
]
"""All that the client is made for. Left out are these:

* `auth/2025-03-26-oauth-metadata-backcompat`: its metadata name another issuer than the address
  they come from, which RFC 8414 forbids to accept.
* `auth/cross-app-access-complete-flow`: an extension for companies' own identity providers.
"""


SERVER_SCENARIOS = [
    "server-initialize",
    "logging-set-level",
    "ping",
    "completion-complete",
    "tools-list",
    "server-sse-multiple-streams",
    "resources-list",
    "dns-rebinding-protection",
]
"""All that our server can meet. Left out are these:

* `tools-call-*`, `json-schema-*`, `elicitation-*`, `resources-read-*`, `resources-templates-read`:
  they want tools and resources of the suite's own example server.
* `resources-subscribe`, `resources-unsubscribe`, `prompts-*`: what our server has not.
* `server-sse-polling`: advice, which takes a store of past events.
"""


def run_suite(folder: Path, *args: str) -> str:
    """Run the suite with these arguments, and return what it says; all of its checks must pass."""
    beside = Path(OPENMANUS).parent
    done = subprocess.run(
        [str(beside / "npx"), "--yes", SUITE, *args],
        env={**os.environ, "PATH": f"{beside}{os.pathsep}{os.environ['PATH']}"},
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.exhaustive
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_official_suite_passes(scenario: str, tmp_path: Path) -> None:
    reported = run_suite(
        tmp_path, "client", "--command", f"{sys.executable} {CLIENT}",
        "--scenario", scenario, "--timeout", f"{BACKSTOP_S * 1000:.0f}",
    )  # fmt: skip
    assert "OVERALL: PASSED" in reported


@pytest.mark.exhaustive
def test_the_official_suite_passes_against_our_server(bare_cli: Cli, tmp_path: Path) -> None:
    with served(bare_cli, "mcp-server", "--transport", "http", "--no-token") as server:
        for scenario in SERVER_SCENARIOS:
            reported = run_suite(tmp_path, "server", "--url", server.url, "--scenario", scenario)
            assert ", 0 failed, 0 warnings" in reported, scenario
