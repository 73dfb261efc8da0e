"""Identity providers on this machine: oidc-provider from npm, and one that issues wrong tokens."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import httpx
from joserfc import jwk, jws, jwt

from openmanus_graph.state.server_settings import ServerSettings
from tests.support.applications.installing import free_port, npm_packages
from tests.support.local_http import LocalServer, SilentHandler
from tests.support.serving import BIN

PACKAGE = '{"private": true, "type": "module", "dependencies": {"oidc-provider": "9.13.3"}}'
SCRIPT = Path(__file__).with_name("oidc_provider.mjs")
CLIENT, SECRET = "openmanus", "a-secret-of-the-client"


@dataclass
class Provider:
    """oidc-provider as a process."""

    url: str
    process: subprocess.Popen[str]

    def robot_token(self, resource: str) -> str:
        """Return an access token for a resource, which is a JWT for its host."""
        answer = httpx.post(
            f"{self.url}/token",
            auth=("robot", SECRET),
            data={"grant_type": "client_credentials", "resource": resource},
        )
        assert answer.status_code == 200, answer.text
        return str(answer.json()["access_token"])

    def stop(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)  # `node` is a program that starts Node
        self.process.wait()

    def code_address(self, browser: httpx.Client, login: str, name: str) -> str:
        """Sign in as somebody, and return the address with the code that the provider leads to."""
        answer = browser.get(login)
        assert answer.status_code in (302, 303), answer.text
        address = urljoin(login, answer.headers["location"])
        while address.startswith(self.url):
            answer = browser.get(address)
            if answer.status_code == 200:  # the form for the name, and the one for the consent
                action = unescape(re.findall(r'action="([^"]+)"', answer.text)[0])
                prompt = re.findall(r'name="prompt" value="(\w+)"', answer.text)[0]
                form = {"prompt": prompt, "login": name, "password": "any"}
                answer = browser.post(action, data=form)
            address = urljoin(address, answer.headers["location"])
        return address


@contextmanager
def identity_provider(callback: str) -> Generator[Provider]:
    folder, port = npm_packages("oidc-provider", PACKAGE), free_port()
    script = folder / SCRIPT.name  # Node looks for packages beside it
    shutil.copy(SCRIPT, script)
    command: list[str | Path] = [BIN / "node", script, str(port), callback]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    provider = Provider(f"http://127.0.0.1:{port}", process)
    assert process.stdout is not None
    with process.stdout:
        try:
            assert any(line == "ready\n" for line in process.stdout)
            yield provider
        finally:
            provider.stop()


@cache
def new_key(kid: str, number: int = 0) -> jwk.RSAKey:
    """Return a key; one of another number is another by the same name."""
    return jwk.RSAKey.generate_key(2048, {"kid": kid, "use": "sig", "alg": "RS256"})


@dataclass
class WrongIssuer:
    """An issuer whose every answer and token a test can change."""

    url: str = ""
    key: jwk.RSAKey = field(default_factory=lambda: new_key("first"))
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])
    jwks: Any = None
    drips_s: float = 0
    """Seconds over which an answer comes, a byte at a time."""
    is_drained: bool = False
    tokens: Any = None
    """What the token endpoint answers."""
    status: int = 200
    asked: list[str] = field(default_factory=list[str])

    def answer(self, path: str) -> Any:
        self.asked.append(path)
        if path == "/token":
            return self.tokens
        if path == "/jwks":
            return self.jwks or {"keys": [self.key.as_dict(private=False)]}
        return {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/auth",
            "token_endpoint": f"{self.url}/token",
            "jwks_uri": f"{self.url}/jwks",
            **self.metadata,
        }

    def settings(self, **more: Any) -> ServerSettings:
        return ServerSettings(oidc_issuer=self.url, oidc_client_id=CLIENT, **more)

    def claims(self, **changed: Any) -> dict[str, Any]:
        now = int(time.time())
        good = {"iss": self.url, "sub": "17", "aud": CLIENT, "iat": now, "exp": now + 300}
        return {name: one for name, one in {**good, **changed}.items() if one is not None}

    def token(
        self, *, key: Any = None, header: dict[str, Any] | None = None, **changed: Any
    ) -> str:
        """Sign a token that is valid but for what is changed."""
        sent = {"alg": "RS256", "kid": (key or self.key).kid, **(header or {})}
        anything = jws.JWSRegistry(
            algorithms=["RS256", "HS256", "PS256"], strict_check_header=False
        )
        return jwt.encode(sent, self.claims(**changed), key or self.key, registry=anything)


@contextmanager
def wrong_issuer(port: int = 0) -> Generator[WrongIssuer]:
    issuer = WrongIssuer()

    class Handler(SilentHandler):
        def do_GET(self) -> None:
            body = json.dumps(issuer.answer(self.path)).encode()
            self.send_response(issuer.status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if issuer.drips_s:
                for byte in body:
                    threading.Event().wait(issuer.drips_s / len(body))
                    self.wfile.write(bytes([byte]))
                issuer.is_drained = True
            else:
                self.wfile.write(body)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.do_GET()

    server = LocalServer(Handler, port=port)
    issuer.url = server.url
    server.begin()
    try:
        yield issuer
    finally:
        server.end()
