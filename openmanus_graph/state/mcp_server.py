"""What must be known of an MCP server to use it, in Python and in a configuration file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, cast

from pydantic import BeforeValidator, ConfigDict, Field

Transport = Literal["stdio", "http", "sse"]
SERVER_TOOL_PREFIX = "mcp_"
"""The names of MCP servers' tools begin with it."""
Effect = Literal["read_only", "workspace", "external"]
"""`read_only` may run twice; `workspace` changes files or processes of the sandbox; `external`
reaches the outside world, where nothing can be undone."""
EffectName = Effect | Literal["pure"]
"""What users may write; `pure` is an older name of `read_only`."""


def as_effect(name: EffectName) -> Effect:
    return "read_only" if name == "pure" else name


def _as_text(value: Any) -> Any:
    """Return numbers and booleans as text, as other readers of `mcp.json` do."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


_Text = Annotated[str, BeforeValidator(_as_text)]
_Positive = Annotated[float, Field(gt=0)]


@dataclass(frozen=True)
class OAuthClient:
    """Who we are to the authorization server of an MCP server over HTTP."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    grant: Literal["authorization_code", "client_credentials"] = "authorization_code"
    """Whether a person logs in (`openmanus mcp login`), or the client by itself."""
    client_id: str | None = None
    """None: the client registers itself."""
    client_secret: str | None = field(default=None, repr=False)
    private_key: str | None = field(default=None, repr=False)
    """PEM. With it a client of `client_credentials` signs instead of sending a secret."""
    issuer: str | None = None
    """The authorization server that knows this client; it is shown to no other."""
    scope: str | None = None
    """Scopes to ask for in addition to those that the server names, separated by spaces."""
    redirect_port: Annotated[int, Field(gt=0, lt=65536)] | None = None
    """The port of `http://127.0.0.1:PORT/callback`. None: a free one."""


@dataclass(frozen=True)
class MCPServer:
    """An MCP server: a command that speaks over its pipes, or an address.

    Pass it in a builder's `extra_tools`, or in `Context.mcp_servers`.
    """

    other_keys: ClassVar[tuple[str, ...]] = ("type", "timeout", "disabled")
    """Keys of a file that are written otherwise here, see `read_server`."""

    name: str
    """Part of the names of its tools: `mcp_<name>_<tool>`. In a file, the name of its table."""
    command: str | None = None
    """Program to start. It communicates over standard input and output."""
    args: tuple[_Text, ...] = ()
    """Arguments of the program."""
    env: Mapping[str, _Text] = field(default_factory=dict[str, str], repr=False)
    """Environment variables of the program, in addition to a few harmless ones."""
    cwd: str | None = None
    """Folder in which the program starts."""
    url: str | None = None
    """Address of a server that is already running."""
    headers: Mapping[str, _Text] = field(default_factory=dict[str, str], repr=False)
    """HTTP headers that are sent to `url`."""
    oauth: OAuthClient = OAuthClient()
    """Table that describes the OAuth client for a [login](mcp.md#logins), if the client does not
    register itself."""
    transport: Transport | None = None
    """Transport: `stdio`, `http` or `sse`. In files, this key is also called `type`. Default:
    `stdio` for a command. For an address, streamable HTTP, or SSE if the server refuses that."""
    enabled: bool = True
    """Whether agents use this server. Other programs write `disabled`, which is the opposite."""
    allow: tuple[str, ...] | None = None
    """Tools of the server that agents get, by name or pattern (`*` matches anything). Default:
    all."""
    deny: tuple[str, ...] = ()
    """Tools of the server that agents never get, by name or pattern."""
    start_timeout_s: _Positive = 30
    """Time limit for starting the server and listing its tools, in seconds. Default 30."""
    timeout_s: _Positive = 120
    """Time limit for one call, in seconds. In files, this key is also called `timeout`. Default
    120."""
    approval: bool | None = None
    """Whether the policy `ask` pauses before calls to this server. Default: only before calls with
    external effects."""
    effects: Mapping[str, Annotated[Effect, BeforeValidator(as_effect)]] = field(
        default_factory=dict[str, Effect]
    )
    """Maps a tool name or pattern to `read_only`, `workspace` or `external`. Default: taken from
    the tool's annotations."""
    sends_to: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    """Maps a tool name or pattern to the arguments that decide where something goes or whom it
    affects. Default: decided by the names of the arguments."""
    trusted: Mapping[str, bool | Sequence[str]] = field(
        default_factory=dict[str, bool | Sequence[str]]
    )
    """Maps a tool name or pattern to `true` or the JSON fields of results whose values are trusted
    as destinations."""
    private: Mapping[str, bool | Sequence[str]] = field(
        default_factory=dict[str, bool | Sequence[str]]
    )
    """Maps a tool name or pattern to `true` or the JSON fields of results that may be sent out only
    with your approval."""
    sampling: bool = True
    """Whether the server may send requests to the run's model. They use the run's budget."""


_TRANSPORTS = {"streamable-http": "http", "streamable_http": "http", "streamableHttp": "http"}


def read_server(given: Any) -> Any:
    """Return a server's table in a file (`[mcp.servers.NAME]`, or of an `mcp.json`) as our fields.

    ValueError: `disabled` is not a truth value.
    """
    if not isinstance(given, dict):
        return given
    table = {k: v for k, v in cast("dict[str, Any]", given).items() if v is not None}
    transport = table.pop("type", table.pop("transport", None)) or None
    timeout = table.pop("timeout", None)
    disabled = table.pop("disabled", False)
    if not isinstance(disabled, bool):
        raise ValueError("disabled should be true or false")
    if disabled:
        table["enabled"] = False
    if timeout is not None:
        table.setdefault("timeout_s", timeout)
    return {**table, "name": "", "transport": _TRANSPORTS.get(str(transport), transport)}


FileServer = Annotated[MCPServer, BeforeValidator(read_server)]
"""A server as a file describes it; its name is the key of its table."""
