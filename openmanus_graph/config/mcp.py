"""Chooses a run's MCP servers: from the files, from the caller, or both."""

import os
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from openmanus_graph.config.files import Layer
from openmanus_graph.config.model import stored_key
from openmanus_graph.errors import ConfigError
from openmanus_graph.state.context import Context, MCPServer, OAuthClient

_VARIABLE = re.compile(
    r"\$\{(?P<kind>env:|input:)?(?P<name>[\w.-]+?)(?::-(?P<default>[^}]*))?\}|^\$(?P<whole>[A-Z_]\w*)$"
)
INPUT = "mcp-input"
"""Under this name and the place of `missing_inputs` keys are stored."""
_FOLDERS = {"workspaceFolder": Path.cwd, "userHome": Path.home}
"""Names that other programs fill in."""
_RUNNERS = {"python", "python3", "node", "npx", "uvx", "uv", "bunx", "deno", "env"}


class _UnsetError(Exception):
    pass


def mcp_servers(
    context: Context, layers: Sequence[Layer]
) -> tuple[tuple[MCPServer, ...], tuple[str, ...]]:
    """Return the servers of a run, and warnings about them.

    `context` may name the servers to use instead of all that are configured. The most important
    layer is the first. Raises ConfigError if one of these does not exist, or cannot be used.
    """
    configured, problems = configured_servers(layers)
    if context.mcp_servers is None:
        chosen = tuple(server for server in configured.values() if server.enabled)
        return chosen, (*problems.values(), *shadowed_servers(layers))
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
                found[name] = _server(replace(described, name=name), layer)
            except _UnsetError as unset:
                problems[name] = f"{_left_out(layer, name)}, because {unset}."
            except ConfigError as error:
                unknown = [key for key in layer.unknown if f".{name}." in key]
                names = ", ".join(key.rpartition(".")[2] for key in unknown)
                hint = f" Not known here: {names}." if names else ""
                problems[name] = f"{_left_out(layer, name)}. {error}{hint}"
        for name, reason in layer.broken_servers.items():
            if name not in found:
                problems.setdefault(name, f"{_left_out(layer, name)}. {reason}.")
    return found, problems


def shadowed_servers(layers: Sequence[Layer]) -> Iterator[str]:
    """Yield notices about servers that a less important file describes differently."""
    counting: dict[str, tuple[MCPServer, Layer]] = {}
    for layer in layers:
        for name, described in layer.values.get("mcp.servers", {}).items():
            known, owner = counting.setdefault(name, (described, layer))
            if known != described:
                yield (
                    f"{layer.path}: the MCP server {name!r} is left out, because {owner.path} "
                    "describes it differently, and counts."
                )


def _left_out(layer: Layer, name: str) -> str:
    return f"{layer.path}: the MCP server {name!r} is left out"


def missing_inputs(layers: Sequence[Layer]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the place and the description of each value that servers need and nobody gave yet.

    The description is VS Code's: `id`, `description`, `password`, `default`, `options`.
    """
    for layer in layers:
        servers = layer.values.get("mcp.servers", {}).values()
        texts = (text for server in servers if server.enabled for text in _texts(server))
        found = (match for text in texts for match in _VARIABLE.finditer(text))
        for name in sorted({match["name"] for match in found if match["kind"] == "input:"}):
            if stored_key(INPUT, place := _place(layer, name)) is None:
                yield place, {"id": name, **layer.inputs.get(name, {})}


def _place(layer: Layer, name: str) -> str:
    """Name a stored value: no other file gets it."""
    return f"{layer.path} {name}"


def _texts(server: MCPServer) -> Iterator[str]:
    yield from filter(None, (server.command, server.url, server.cwd, *server.args))
    yield from (*server.env.values(), *server.headers.values())


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


def _server(described: MCPServer, layer: Layer) -> MCPServer:
    """Return a server with the variables in its texts filled in."""

    def fill(text: str) -> str:
        return _expand(text, layer)

    def fill_optional(text: str | None) -> str | None:
        return fill(text) if text else None

    own = described.oauth
    server = replace(
        described,
        command=fill_optional(described.command),
        args=tuple(map(fill, described.args)),
        env={key: fill(value) for key, value in described.env.items()},
        cwd=str(Path(fill(described.cwd)).expanduser()) if described.cwd else None,
        url=fill_optional(described.url),
        headers={key: fill(value) for key, value in described.headers.items()},
        oauth=replace(
            own,
            client_id=fill_optional(own.client_id),
            client_secret=fill_optional(own.client_secret),
            private_key=fill_optional(own.private_key),
        ),
    )
    check_servers([server])
    return server


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
        raise ConfigError(f"--mcp-server {entry}: {unset}.") from unset
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


def filled_in(text: str) -> str:
    """Fill in environment variables, `${NAME}`. ConfigError: one is not set."""
    try:
        return _expand(text)
    except _UnsetError as unset:
        raise ConfigError(str(unset)) from unset


def _expand(text: str, layer: Layer | None = None) -> str:
    """Fill in environment variables, folders and, in a file, what the user was asked for."""

    def value(found: re.Match[str]) -> str:
        name = found["name"] or found["whole"]
        if found["kind"] == "input:":
            stored = layer and stored_key(INPUT, _place(layer, name))
            if not stored:
                raise _UnsetError(f"nobody gave the value {name!r} (openmanus mcp list asks)")
            return stored.get_secret_value()
        known = os.environ.get(name) or found["default"]
        if known is None and name in _FOLDERS:
            known = str(_FOLDERS[name]())
        if known is None:
            raise _UnsetError(f"the environment variable {name} is not set")
        return known

    return _VARIABLE.sub(value, text)


def host_name(url: str) -> str:
    return (urlsplit(url).hostname or "server").removeprefix("www.").replace(".", "_")
