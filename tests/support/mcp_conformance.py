"""The client that the official conformance suite tests: our command line.

`python mcp_conformance.py URL` logs in where the scenario is about logins, lists the server's tools
and calls each. The suite says in the environment which scenario it is, and what the client knows.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import urljoin
from urllib.request import urlopen

OPENMANUS = Path(sys.executable).with_name("openmanus")
ARGUMENTS: dict[str, dict[str, int]] = {"add_numbers": {"a": 2, "b": 3}}
"""By tool; others get none."""
PUBLISHED_CLIENT = "https://conformance-test.local/client-metadata.json"
"""Where the suite takes the client's metadata to be published."""
BROWSER = "import sys, urllib.request as r; r.urlopen(sys.argv[1])"


def oauth_of(scenario: str, known: dict[str, Any], url: str) -> dict[str, Any]:
    """Return how a scenario's client is configured."""
    client: dict[str, Any] = {
        name: known[name] for name in ("client_id", "client_secret") if name in known
    }
    if "cimd" in scenario:
        return {"client_id": PUBLISHED_CLIENT}
    if "credentials" not in scenario:
        return client
    # Who has a secret knows whose it is; the suite names only the server.
    with urlopen(urljoin(url, "/.well-known/oauth-protected-resource/mcp")) as answer:
        (issuer,) = json.load(answer)["authorization_servers"]
    if "private_key_pem" in known:
        client["private_key"] = known["private_key_pem"]
    return {**client, "grant": "client_credentials", "issuer": issuer}


def asked(command: list[str], home: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a command on a terminal whose person answers a question without filling in anything."""
    keyboard, terminal = os.openpty()
    os.write(keyboard, b"{}\n")
    return subprocess.run(
        command, cwd=home, env=env, stdin=terminal, stdout=subprocess.PIPE, stderr=terminal,
        text=True, check=False,
    )  # fmt: skip


def main(url: str) -> int:
    scenario = os.environ["MCP_CONFORMANCE_SCENARIO"]
    known: dict[str, Any] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        browser = home / "browser.py"
        browser.write_text(BROWSER)
        config = home / "servers.json"
        server = {"url": url, "oauth": oauth_of(scenario, known, url)}
        config.write_text(json.dumps({"mcpServers": {"tested": server}}))
        env = {
            "PATH": os.environ["PATH"],
            "HOME": folder,
            "OPENMANUS_HOME": str(home / "data"),
            "BROWSER": f"{sys.executable} {browser} %s",
        }

        def run(*args: str) -> subprocess.CompletedProcess[str]:
            command = [str(OPENMANUS), "mcp", *args, "--config", str(config)]
            if "elicitation" in scenario:
                return asked(command, home, env)
            done = subprocess.run(
                command, cwd=home, env=env, capture_output=True, text=True, check=False
            )
            sys.stderr.write(f"{args}: {done.returncode}\n{done.stdout}{done.stderr}")
            return done

        if scenario.startswith("auth/") and "credentials" not in scenario:
            run("login", "tested")
        listed = run("list", "--json")
        ok = listed.returncode == 0
        tools: list[dict[str, Any]] = json.loads(listed.stdout)["tools"] if ok else []
        failed = listed.returncode
        for tool in tools:
            call = ("call", "tested", tool["own_name"])
            given = json.dumps(ARGUMENTS.get(tool["own_name"], {}))
            done = run(*call, given)
            if "mcp login" in done.stdout:  # for more rights than the first login gave
                run("login", "tested")
                done = run(*call, given)
            failed = failed or done.returncode
        return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
