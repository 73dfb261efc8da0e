"""What must be known of an MCP server to use it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr

Transport = Literal["stdio", "http", "sse"]
SERVER_TOOL_PREFIX = "mcp_"
"""What the names of MCP servers' tools begin with."""
Effect = Literal["read_only", "workspace", "external"]
"""`read_only` may run twice; `workspace` changes files or processes of the sandbox; `external`
reaches the world outside, where nothing can be undone."""
EffectName = Effect | Literal["pure"]
"""What users may write; `pure` is an older name of `read_only`."""


def as_effect(name: EffectName) -> Effect:
    """Return the effect with this name."""
    return "read_only" if name == "pure" else name


_TRANSPORTS = {"streamable-http": "http", "streamable_http": "http", "streamableHttp": "http"}


@dataclass(frozen=True)
class OAuthClient:
    """Who we are to the authorization server of an MCP server over HTTP."""

    grant: Literal["authorization_code", "client_credentials"] = "authorization_code"
    """Whether a person logs in (`openmanus mcp login`), or the client by itself."""
    client_id: str | None = None
    """None: the client registers itself."""
    client_secret: str | None = field(default=None, repr=False)
    private_key: str | None = field(default=None, repr=False)
    """PEM. With it a client of `client_credentials` signs, in place of showing a secret."""
    issuer: str | None = None
    """The authorization server that knows this client; it is shown to no other."""
    scope: str | None = None
    """What to ask for beside what the server names, separated by spaces."""
    redirect_port: int | None = None
    """The port of `http://127.0.0.1:PORT/callback`. None: a free one."""


@dataclass(frozen=True)
class MCPServer:
    """An MCP server: a command that speaks over its pipes, or an address.

    Pass it among a builder's `extra_tools`, or in `Context.mcp_servers`.
    """

    name: str
    """Stands in the names of its tools: `mcp_<name>_<tool>`."""
    command: str | None = None
    """The program of a stdio server."""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Beside an allow-listed environment; nothing else of ours is passed on."""
    cwd: str | None = None
    url: str | None = None
    """The address of a server that runs already."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    oauth: OAuthClient = OAuthClient()
    transport: Transport | None = None
    """None: stdio for a command; for an address streamable HTTP, or SSE where that is refused."""
    enabled: bool = True
    allow: tuple[str, ...] | None = None
    """Its tools to offer, by their own names; `*` stands for anything. None: all."""
    deny: tuple[str, ...] = ()
    """Its tools never to offer."""
    start_timeout_s: float = 30
    """Seconds in which it must have listed its tools."""
    timeout_s: float = 120
    """Seconds of one call."""
    approval: bool | None = None
    """Whether policy `ask` pauses before its calls. None: before those with external effects."""
    effects: Mapping[str, Effect] = field(default_factory=dict[str, Effect])
    """By tool (`*` stands for anything), where the server's own annotations are not right."""
    sends_to: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    """By tool (`*` stands for anything), the arguments that decide where something goes or whom it
    hits. A tool that is not named is judged by the names of its arguments."""
    trusted: Mapping[str, bool | Sequence[str]] = field(
        default_factory=dict[str, bool | Sequence[str]]
    )
    """By tool (`*` stands for anything), whether whole JSON fields of its results verify where
    something goes (a contact list), or the names of those that do."""
    private: Mapping[str, bool | Sequence[str]] = field(
        default_factory=dict[str, bool | Sequence[str]]
    )
    """By tool (`*` stands for anything), whether whole JSON fields of its results leave only with
    the person's word, or the names of those."""
    sampling: bool = True
    """Whether it may ask the run's model, on the run's budget."""


def _as_text(value: Any) -> Any:
    """Take numbers and truth values for text, as other readers of `mcp.json` do."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


_Secret = Annotated[SecretStr, BeforeValidator(_as_text)]


class OAuthKeys(BaseModel):
    """How a file describes the client of a login: the key `oauth` of a server."""

    model_config = ConfigDict(extra="forbid")

    grant: Literal["authorization_code", "client_credentials"] = "authorization_code"
    client_id: str | None = None
    client_secret: SecretStr | None = None
    private_key: SecretStr | None = None
    issuer: str | None = None
    scope: str | None = None
    redirect_port: int | None = Field(default=None, gt=0, lt=65536)


class MCPServerKeys(BaseModel):
    """How a file describes a server: `[mcp.servers.NAME]`, or an entry of an `mcp.json`.

    `config.mcp` makes an `MCPServer` of it. Keys that mean nothing here are kept as extras.
    """

    model_config = ConfigDict(extra="allow", populate_by_name=True, defer_build=True)

    command: str | None = None
    """A program that speaks over its pipes."""
    args: list[Annotated[str, BeforeValidator(_as_text)]] = Field(default_factory=list)
    """Its arguments."""
    env: dict[str, _Secret] = Field(default_factory=dict)
    """What it gets beside a few harmless variables."""
    cwd: str | None = None
    """The folder it starts in."""
    url: str | None = None
    """A server that runs."""
    headers: dict[str, _Secret] = Field(default_factory=dict)
    """Sent to that server."""
    oauth: OAuthKeys = Field(default_factory=OAuthKeys)
    """A table: the client of a [login](mcp.md#logins), where it does not register itself."""
    type: Annotated[
        Transport | None,
        BeforeValidator(lambda value: _TRANSPORTS.get(value, value) if value else None),
    ] = Field(default=None, validation_alias=AliasChoices("type", "transport"))
    """How it is spoken to. Default: by the above."""
    enabled: bool = True
    """Whether agents use it."""
    disabled: bool = False
    """The contrary, as other programs write it."""
    allow: list[str] | None = None
    """Its tools to offer, by name or pattern. Default: all."""
    deny: list[str] = Field(default_factory=list)
    """Its tools never to offer."""
    start_timeout_s: float | None = Field(default=None, gt=0)
    """Seconds in which it must have listed its tools. Default 30."""
    timeout_s: float | None = Field(
        default=None, gt=0, validation_alias=AliasChoices("timeout_s", "timeout")
    )
    """Seconds of a call. Default 120."""
    approval: bool | None = None
    """Whether the policy `ask` pauses before its calls. Default: by effect."""
    effects: dict[str, Annotated[Effect, BeforeValidator(as_effect)]] = Field(default_factory=dict)
    """Tool or pattern to `read_only`, `workspace`, `external`. Default: its annotations."""
    sends_to: dict[str, list[str]] = Field(default_factory=dict)
    """Tool or pattern to the arguments that say where something goes. Default: by name."""
    trusted: dict[str, bool | list[str]] = Field(default_factory=dict)
    """Tool or pattern to `true` or the JSON fields whose values are known destinations."""
    private: dict[str, bool | list[str]] = Field(default_factory=dict)
    """Tool or pattern to `true` or the JSON fields that leave only with your word."""
    sampling: bool = True
    """Whether it may ask the run's model, on the run's budget."""
