"""`openmanus mcp-server`, `a2a` and `acp`: serve our tools and agents to other programs."""

import contextlib
import logging
import socket
from collections.abc import Coroutine, Generator
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from openmanus_graph.errors import ConfigError, install_extra
from openmanus_graph.graphs.catalog import check_agent
from openmanus_graph.interfaces.cli.run import log_file
from openmanus_graph.interfaces.service.http import (
    Token,
    announce,
    bind,
    choose_token,
    require_token_off_loopback,
    url_of,
)
from openmanus_graph.interfaces.service.options import McpOptions, RunOptions, ServerOptions

if TYPE_CHECKING:
    from openmanus_graph.interfaces.mcp_server.server import ToolServer

MCP_PORT, A2A_PORT = 8642, 8643
MCP_TOKEN, A2A_TOKEN = "OPENMANUS_MCP_TOKEN", "OPENMANUS_A2A_TOKEN"  # their names


def serve_mcp(what: McpOptions, options: RunOptions, where: ServerOptions) -> int:
    """Serve MCP until the client hangs up or a signal comes, and return the exit code."""
    _require("mcp", "mcp")
    check_agent(what.agent)
    with log_file(where.log), quiet_libraries():
        if what.transport == "stdio":
            return _mcp_on_stdio(what, options)
        return _mcp_on_http(what, options, where)


def _mcp_on_stdio(what: McpOptions, options: RunOptions) -> int:
    from openmanus_graph.interfaces.service.own_process import StdioPipes

    pipes = StdioPipes()  # first, before other code can write to stdout
    from openmanus_graph.interfaces.mcp_server.server import serve_stdio

    server = _mcp_server(what, options)
    return _run_until_done(serve_stdio(server, pipes))


def _mcp_on_http(what: McpOptions, options: RunOptions, where: ServerOptions) -> int:
    from openmanus_graph.interfaces.cli.trust import ask_for_trust
    from openmanus_graph.interfaces.mcp_server.server import PATH, serve_http

    ask_for_trust(options.config)
    token = _token(where, MCP_TOKEN)
    server = _mcp_server(what, options)
    listening, url = _listen(where, MCP_PORT)
    announce("MCP server", url + PATH, token)
    value = None if token is None else token.value
    return _run_until_done(serve_http(server, listening, where.host, value, what.idle))


def _mcp_server(what: McpOptions, options: RunOptions) -> "ToolServer":
    from openmanus_graph.interfaces.mcp_server.server import build_server

    names = None
    if what.tools is not None:
        names = tuple(name.strip() for name in what.tools.split(",") if name.strip())
        if not names:
            raise ConfigError("--tools names no tool. Leave it out to offer all.")
    return build_server(options, names, what.agent, version("openmanus-graph"))


def serve_a2a(agent: str, options: RunOptions, where: ServerOptions) -> int:
    """Serve A2A until a signal comes, and return the exit code."""
    _require("a2a-sdk", "a2a", "a2a")
    check_agent(agent)
    from openmanus_graph.interfaces.a2a_server.app import build_app
    from openmanus_graph.interfaces.cli.trust import ask_for_trust
    from openmanus_graph.interfaces.service.http import serve
    from openmanus_graph.interfaces.service.run_setup import ready_for_runs, ready_for_tools

    ask_for_trust(options.config)
    with log_file(where.log), quiet_libraries():
        token = _token(where, A2A_TOKEN)
        ready_for_tools(options)
        ready_for_runs(options, agent)
        listening, url = _listen(where, A2A_PORT)
        value = None if token is None else token.value
        app = build_app(agent, options, url, where.host, value, version("openmanus-graph"))
        announce("A2A agent", url, token)
        return _run_until_done(serve(app, listening))


def serve_acp(agent: str, options: RunOptions, log: str | None) -> int:
    """Serve an editor by ACP until it hangs up, and return the exit code."""
    from openmanus_graph.interfaces.service.own_process import StdioPipes

    if find_spec("acp") is None:
        raise ConfigError(
            f"This command needs the package agent-client-protocol. {install_extra('acp')}"
        )
    check_agent(agent)
    pipes = StdioPipes()  # before other code can write to stdout
    from openmanus_graph.interfaces.acp_server.agent import serve_editor

    with log_file(log), quiet_libraries():
        return _run_until_done(serve_editor(agent, options, pipes, version("openmanus-graph")))


def _token(where: ServerOptions, variable: str) -> Token | None:
    if where.no_token:
        require_token_off_loopback(where.host)
        return None
    return choose_token(where.token, variable)


def _listen(where: ServerOptions, port: int) -> tuple[socket.socket, str]:
    listening = bind(where.host, port if where.port is None else where.port)
    return listening, url_of(listening, where.host)


def _require(package: str, module: str, extra: str = "mcp") -> None:
    """Refuse a server whose library is not installed."""
    if find_spec(module) is None or find_spec("uvicorn") is None:
        raise ConfigError(f"This command needs the package {package}. {install_extra(extra)}")


@contextlib.contextmanager
def quiet_libraries() -> Generator[None]:
    """Keep what libraries log off stderr: it is in the log file, if there is one."""
    nowhere = logging.NullHandler()
    logging.getLogger().addHandler(nowhere)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(nowhere)


def _run_until_done(serving: Coroutine[Any, Any, None]) -> int:
    from openmanus_graph.backends.models.build import run_and_close_models

    run_and_close_models(serving)
    return 0
