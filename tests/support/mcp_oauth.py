"""A shop that is an MCP server with logins, and the authorization server that it names.

Both are on this machine. `way` says what the authorization server does wrong.
"""

import base64
import contextlib
import hashlib
import json
import threading
import urllib.request
from collections.abc import Generator
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt

from openmanus_graph import MCPServer
from openmanus_graph.backends.mcp.transports import MAX_LOGIN_ANSWER
from openmanus_graph.state.context import OAuthClient
from tests.support.local_http import LocalServer, SilentHandler

SECRET = "shop-secret-NeverToBeSeen"
TOKEN = "token-NeverToBeSeen"


@dataclass(eq=False)
class Shop:
    """What both servers know; tests read and change it."""

    way: str = ""
    url: str = ""
    issuer: str = ""
    elsewhere: list[str] = field(default_factory=list[str])
    """What was sent to the address that the authorization server redirects to, or, beside its
    messages, to the MCP server."""
    asked_for_token: threading.Event = field(default_factory=threading.Event)
    may_answer: threading.Event = field(default_factory=threading.Event)
    """Not set while a test keeps new tokens back."""
    public_key: Any = None
    """Of the client that signs."""
    clients: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    codes: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])
    access: dict[str, str] = field(default_factory=dict[str, str])
    """Scopes by access token."""
    refresh: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])
    """Client and scope by refresh token; each can be used once."""
    asked: list[tuple[str, dict[str, str]]] = field(
        default_factory=list[tuple[str, dict[str, str]]]
    )
    """Paths and fields of the requests to the authorization server."""
    numbers: "count[int]" = field(default_factory=count)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.may_answer.set()

    def server(self, name: str = "shop", **oauth: Any) -> MCPServer:
        """Describe the MCP server."""
        return MCPServer(name, url=self.url, oauth=OAuthClient(**oauth), approval=False)

    def of(self, path: str) -> list[dict[str, str]]:
        """Return the fields of the requests to one path."""
        return [fields for asked, fields in self.asked if asked == path]

    def grant(self, client: str, scope: str, *, refreshable: bool = True) -> dict[str, Any]:
        """Make tokens."""
        number = next(self.numbers)
        self.access[f"{TOKEN}-{number}"] = scope
        answer = {"access_token": f"{TOKEN}-{number}", "token_type": "bearer", "expires_in": 3600}
        if refreshable:
            self.refresh[f"refresh-{TOKEN}-{number}"] = {"client": client, "scope": scope}
            answer["refresh_token"] = f"refresh-{TOKEN}-{number}"
        return {**answer, "scope": scope}

    def metadata(self) -> dict[str, Any]:
        """Describe the authorization server."""
        found: dict[str, Any] = {
            "issuer": "http://127.0.0.1:9/other" if self.way == "lies" else self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "revocation_endpoint": f"{self.issuer}/revoke",
            "code_challenge_methods_supported": ["plain" if self.way == "plain" else "S256"],
            "authorization_response_iss_parameter_supported": True,
        }
        if self.way != "unregistered":
            found["registration_endpoint"] = f"{self.issuer}/register"
        if self.way == "post":
            found["token_endpoint_auth_methods_supported"] = ["client_secret_post"]
        return found

    def authorize(self, asked: dict[str, str]) -> str:
        """Return where the browser is sent: the page approves by itself."""
        if self.way == "refuses":
            answer = {"error": "access_denied", "error_description": "Ada said no"}
        else:
            code = f"code-{next(self.numbers)}"
            self.codes[code] = asked
            iss = "http://127.0.0.1:9/other" if self.way == "mixes up" else self.issuer
            answer = {"code": code, "iss": iss}
        return f"{asked['redirect_uri']}?{urlencode({**answer, 'state': asked['state']})}"

    def signed(self, asked: dict[str, str]) -> bool:
        """Return whether a request holds a statement that the client's key signed."""
        if self.public_key is None or "client_assertion" not in asked:
            return False
        claims: dict[str, Any] = jwt.decode(
            asked["client_assertion"],
            self.public_key,
            algorithms=["ES256", "RS256"],
            audience=self.issuer,
        )
        return (claims["sub"], claims["iss"]) == ("machine", "machine")

    def token(self, asked: dict[str, str], secret: str) -> dict[str, Any] | None:
        """Return tokens; None if the request is not right."""
        match asked["grant_type"]:
            case "authorization_code":
                begun = self.codes.pop(asked.get("code", ""), None)
                digest = hashlib.sha256(asked["code_verifier"].encode()).digest()
                challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
                same = ("client_id", "redirect_uri", "resource")
                if begun is None or begun["code_challenge"] != challenge:
                    return None
                if any(begun[name] != asked.get(name) for name in same):
                    return None
                if self.clients.get(asked["client_id"], {}).get("secret", "") != secret:
                    return None
                return self.grant(asked["client_id"], begun["scope"])
            case "refresh_token":
                known = self.refresh.pop(asked["refresh_token"], None)
                if known is None or asked.get("resource") != self.url:
                    return None
                return self.grant(known["client"], known["scope"])
            case "client_credentials" if secret == SECRET or self.signed(asked):
                return self.grant("machine", asked.get("scope", ""), refreshable=False)
            case _:
                return None


class _Handler(SilentHandler):
    def __init__(self, *args: Any, shop: Shop) -> None:
        self.shop = shop
        super().__init__(*args)

    def answer(self, found: Any, status: int = 200, **headers: str) -> None:
        body = b"" if found is None else json.dumps(found).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))


class _Resource(_Handler):
    """The MCP server: `look` needs the scope `read`, `buy` also `orders`."""

    def do_GET(self) -> None:
        if self.shop.way == "usurps" and self.path == "/.well-known/oauth-authorization-server":
            own = self.shop.url.removesuffix("/mcp")
            ends = ("authorization_endpoint", "token_endpoint", "registration_endpoint")
            self.answer({"issuer": own, **{name: f"{own}/{name}" for name in ends}})
        elif self.shop.way != "usurps" and self.path == "/.well-known/oauth-protected-resource/mcp":
            self.answer({
                "resource": self.shop.url,
                "authorization_servers": [self.shop.issuer],
                "scopes_supported": ["read"],
            })  # fmt: skip
        else:
            self.answer(None, 405 if self.path == "/mcp" else 404)

    def do_DELETE(self) -> None:
        self.answer(None, 200)

    def do_POST(self) -> None:
        body = self.body()
        if self.path != "/mcp":
            registers = self.path == "/registration_endpoint"
            described: dict[str, Any] = json.loads(body) if registers else {}
            if self.path != "/register":  # where the SDK registers if no other place is named
                self.shop.elsewhere.append(body.decode())
            self.answer({**described, "client_id": "usurped"}, 201 if registers else 404)
            return
        message = json.loads(body)
        params: dict[str, Any] = message.get("params") or {}
        key = self.headers.get("Authorization", "").removeprefix("Bearer ")
        scope = self.shop.access.get(key)
        needed = "orders" if params.get("name") == "buy" else "read"
        if scope is None:
            challenge = f'Bearer resource_metadata="{self.shop.url.removesuffix("/mcp")}'
            challenge += '/.well-known/oauth-protected-resource/mcp"'
            self.answer({"detail": "no"}, 401, WWW_Authenticate=challenge)
            return
        if needed not in scope.split():
            challenge = f'Bearer error="insufficient_scope", scope="{needed}"'
            self.answer({"detail": "no"}, 403, WWW_Authenticate=challenge)
            return
        schema = {"inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}
        results: dict[str, Any] = {
            "initialize": {
                "protocolVersion": params.get("protocolVersion"),
                "serverInfo": {"name": "shop", "version": "1"},
                "capabilities": {"tools": {}},
            },
            "tools/list": {"tools": [{"name": "look", **schema}, {"name": "buy", **schema}]},
            "tools/call": {"content": [{"type": "text", "text": f"did {params.get('name')}"}]},
        }
        if "id" not in message:
            self.answer(None, 202)
            return
        answer: dict[str, Any] = {"result": results[message["method"]]}
        if message["method"] == "tools/list" and self.shop.way == "closed":
            answer = {"error": {"code": -32603, "message": "the shop is closed"}}
        self.answer({"jsonrpc": "2.0", "id": message["id"], **answer})


class _Authorization(_Handler):
    def do_GET(self) -> None:
        path, fields = self._note(urlsplit(self.path).query)
        if path == "/.well-known/oauth-authorization-server" and self.shop.way != "silent":
            padding = {"padding": "x" * MAX_LOGIN_ANSWER} if self.shop.way == "floods" else {}
            self.answer(self.shop.metadata() | padding)
        elif path == "/authorize":
            self.answer(None, 302, Location=self.shop.authorize(fields))
        else:
            self.answer(None, 404)

    def do_POST(self) -> None:
        body = self.body().decode()
        if self.path == "/register":
            asked = json.loads(body)
            client = f"client-{next(self.shop.numbers)}"
            self.shop.clients[client] = asked
            self.shop.asked.append(("/register", {}))
            self.answer({**asked, "client_id": client}, 201)
            return
        path, fields = self._note(body)
        if path == "/elsewhere":
            self.shop.elsewhere.append(body)
            self.answer({})
        elif self.shop.way == "redirects":
            self.answer(
                None,
                307,
                Location=f"{self.shop.issuer.replace('127.0.0.1', 'localhost')}/elsewhere",
            )
        elif path == "/revoke":
            self.shop.refresh.pop(fields["token"], None)
            self.answer({}, 503 if self.shop.way == "busy" else 200)
        else:
            self._token(fields)

    def _token(self, fields: dict[str, str]) -> None:
        basic = self.headers.get("Authorization", "").removeprefix("Basic ")
        secret = base64.b64decode(basic).decode().partition(":")[2] or fields.get(
            "client_secret", ""
        )
        with self.shop.lock:
            found = None if self.shop.way == "broken" else self.shop.token(fields, secret)
        self.shop.asked_for_token.set()
        self.shop.may_answer.wait()
        refusal = {"error": "invalid_grant", "error_description": json.dumps(fields)}
        self.answer(found or refusal, 200 if found else 400)

    def _note(self, query: str) -> tuple[str, dict[str, str]]:
        path = urlsplit(self.path).path
        fields = {name: values[0] for name, values in parse_qs(query).items()}
        self.shop.asked.append((path, fields))
        return path, fields


@contextlib.contextmanager
def shop_with_logins(way: str = "") -> Generator[Shop]:
    """Run both servers."""
    shop = Shop(way)
    servers = [LocalServer(partial(handler, shop=shop)) for handler in (_Resource, _Authorization)]
    shop.url, shop.issuer = f"{servers[0].url}/mcp", servers[1].url
    for one in servers:
        one.begin()
    try:
        yield shop
    finally:
        for one in servers:
            one.end()


def browse(url: str) -> str:
    """Open an address as a browser does, and return the page that it ends at."""
    with urllib.request.urlopen(url) as page:  # on this machine
        text: str = page.read().decode()
        return text
