"""Chooses a run's MCP servers: from the files, from the caller, or both."""

import os
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from urllib.parse import urlsplit

from openmanus_graph.config.files import Layer
from openmanus_graph.errors import ConfigError
from openmanus_graph.state.context import Context, MCPServer, OAuthClient

_VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")
_RUNNERS = {"python", "python3", "node", "npx", "uvx", "uv", "bunx", "deno", "env"}


class _UnsetError(Exception):
    pass


def mcp_servers(
    context: Context, layers: Sequence[Layer]
) -> tuple[tuple[MCPServer, ...], tuple[str, ...]]:
    """Return the servers of a run, and warnings about them.

    `context` may name the servers to use instead of all that are configured. The most important
    layer is the first. Raises ConfigError if a server is described wrongly, or does not exist.
    """
    configured, problems = configured_servers(layers)
    if context.mcp_servers is None:
        chosen = tuple(server for server in configured.values() if server.enabled)
        return chosen, tuple(problems.values())
    named = tuple(
        entry if isinstance(entry, MCPServer) else _resolve_entry(entry, configured, problems)
        for entry in context.mcp_servers
    )
    check_servers(named)
    return named, ()


def configured_servers(layers: Sequence[Layer]) -> tuple[dict[str, MCPServer], dict[str, str]]:
    """Return the configured servers by name, and why others cannot be used."""
    found: dict[str, MCPServer] = {}
    problems: dict[str, str] = {}
    for layer in layers:
        for name, described in layer.values.get("mcp.servers", {}).items():
            if name in found or name in problems:
                continue
            try:
                found[name] = _server(replace(described, name=name))
            except _UnsetError as unset:
                problems[name] = (
                    f"{layer.path}: the MCP server {name!r} is left out, because the environment "
                    f"variable {unset} is not set."
                )
            except ConfigError as error:
                unknown = [key for key in layer.unknown if f".{name}." in key]
                names = ", ".join(key.rpartition(".")[2] for key in unknown)
                hint = f" Not known here: {names}." if names else ""
                raise ConfigError(f"{layer.path}: {error}{hint}") from error
    return found, problems


def check_servers(servers: Sequence[MCPServer]) -> None:
    """Check that names are unique and each server has one transport. Raises ConfigError."""
    names = [server.name for server in servers]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(f"Two MCP servers are named {twice[0]!r}. Rename one of them.")
    for server in servers:
        if not server.name.strip():
            raise ConfigError("An MCP server has no name.")
        for problem in chain(_transport_problems(server), _oauth_problems(server)):
            raise ConfigError(f"The MCP server {server.name!r} {problem}.")


def _transport_problems(server: MCPServer) -> Iterator[str]:
    if (server.command is None) == (server.url is None):
        yield f"needs either a command or a url{', not both' if server.command else ''}"
    if (server.transport == "stdio") != (server.command is not None) and server.transport:
        what = "command" if server.command else "url"
        yield f"has the type {server.transport!r}, which does not go with its {what}"
    if server.url is not None and urlsplit(server.url).scheme not in ("http", "https"):
        yield f"has the url {server.url!r}, which is not an http or https address"


def _oauth_problems(server: MCPServer) -> Iterator[str]:
    client = server.oauth
    if client != OAuthClient() and server.url is None:
        yield "has no url: `oauth` is for addresses"
    if client.grant == "client_credentials":
        secret = client.client_secret or client.private_key
        needed = {"client_id": client.client_id, "client_secret": secret, "issuer": client.issuer}
        for key in (key for key, value in needed.items() if not value):
            yield f"logs in with client_credentials, which needs oauth.{key} too"
    if client.private_key and (client.client_secret or client.grant != "client_credentials"):
        grant = "the grant client_credentials, in place of a client_secret"
        yield f"has a private_key, which is for {grant}"
    if client.client_secret and not client.client_id:
        yield "has a client_secret but no client_id"


def _server(described: MCPServer) -> MCPServer:
    """Return a server with the environment variables in its texts expanded."""
    server = replace(
        described,
        command=_expand_optional(described.command),
        args=tuple(map(_expand, described.args)),
        env={key: _expand(value) for key, value in described.env.items()},
        cwd=str(Path(_expand(described.cwd)).expanduser()) if described.cwd else None,
        url=_expand_optional(described.url),
        headers={key: _expand(value) for key, value in described.headers.items()},
        oauth=replace(
            described.oauth,
            client_id=_expand_optional(described.oauth.client_id),
            client_secret=_expand_optional(described.oauth.client_secret),
            private_key=_expand_optional(described.oauth.private_key),
        ),
    )
    check_servers([server])
    return server


def _expand_optional(text: str | None) -> str | None:
    return _expand(text) if text else None


def _resolve_entry(
    entry: str, configured: Mapping[str, MCPServer], problems: Mapping[str, str]
) -> MCPServer:
    """Resolve what the user typed: a configured name, a URL or a command."""
    if entry in problems:
        raise ConfigError(problems[entry])
    if entry in configured:
        return configured[entry]
    try:
        text = _expand(entry)
        words = shlex.split(text)
    except _UnsetError as unset:
        raise ConfigError(f"--mcp-server {entry}: the variable {unset} is not set.") from unset
    except ValueError as error:
        raise ConfigError(f"--mcp-server {entry}: {error}.") from error
    if urlsplit(text).scheme in ("http", "https"):
        return MCPServer(host_name(text), url=text)
    if len(words) > 1 or (words and shutil.which(words[0])):
        # The name is the first word of the command that is not a runner.
        arguments = (word for word in words if not word.startswith("-"))
        names = [Path(word).stem.partition("@")[0] or word for word in arguments]
        name = next((one for one in names if one.partition(".")[0] not in _RUNNERS), names[0])
        return MCPServer(name, command=words[0], args=tuple(words[1:]))
    known = f"Configured are: {', '.join(configured)}." if configured else "None is configured."
    raise ConfigError(
        f"There is no MCP server {entry!r}. {known} You can also give an address or a command."
    )


def _expand(text: str) -> str:
    def value(found: re.Match[str]) -> str:
        known: str | None = os.environ.get(found[1]) or found[2]
        if known is None:
            raise _UnsetError(found[1])
        return known

    return _VARIABLE.sub(value, text)


def host_name(url: str) -> str:
    return (urlsplit(url).hostname or "server").removeprefix("www.").replace(".", "_")
