"""`openmanus serve`, `mcp-server`, `a2a` and `acp`: serve our page, tools and agents to others."""

import contextlib
import datetime
import http.client
import json
import logging
import os
import socket
import sys
import threading
import time
import webbrowser
from collections.abc import Coroutine, Generator
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from openmanus_graph.backends.models.build import run_and_close_models
from openmanus_graph.config.resolve import resolve_settings
from openmanus_graph.errors import ConfigError, install_extra
from openmanus_graph.graphs.catalog import check_agent
from openmanus_graph.interfaces.cli.run import log_file
from openmanus_graph.interfaces.cli.skills import ask_before_run
from openmanus_graph.interfaces.service.options import (
    McpOptions,
    RunOptions,
    ServerOptions,
    StorageOptions,
    takes,
)
from openmanus_graph.interfaces.service.own_process import StdioPipes
from openmanus_graph.state.context import Context

if TYPE_CHECKING:
    from openmanus_graph.interfaces.service.http import Token

MCP_PORT, A2A_PORT, PAGE_PORT = 8642, 8643, 2024
MCP_TOKEN, A2A_TOKEN = "OPENMANUS_MCP_TOKEN", "OPENMANUS_A2A_TOKEN"  # their names
GRACE_S = 8
READY_POLL_S = 0.02
MOST_WAITING = 1000
"""Runs that take turns; later ones are queued in order."""
PAGE_PACKAGES = ("langgraph_api", "langgraph_runtime_inmem", "fastapi")

AgentOption = Annotated[str, typer.Option(help="Which agent works.")]


@takes(McpOptions, RunOptions, ServerOptions, StorageOptions)
def mcp_server(what: McpOptions, options: RunOptions, where: ServerOptions) -> int:
    """Offer the tools, and maybe an agent, to MCP clients."""
    _require("mcp", "mcp", "mcp", "uvicorn")
    check_agent(what.agent)
    names = None
    if what.tools is not None:
        names = tuple(name.strip() for name in what.tools.split(",") if name.strip())
        if not names:
            raise ConfigError("--tools names no tool. Leave it out to offer all.")
    with log_file(where.log), _quiet_libraries():
        # First, before other code can write to stdout.
        pipes = StdioPipes() if what.transport == "stdio" else None
        from openmanus_graph.interfaces.mcp_server import server as mcp

        if pipes is None:
            ask_before_run(options.config)
        server = mcp.build_server(options, names, what.agent, version("openmanus-graph"))
        if pipes is not None:
            return _run_until_done(mcp.serve_stdio(server, pipes))
        from openmanus_graph.interfaces.service import http as service

        listening, token = _listen(where, MCP_PORT, MCP_TOKEN)
        service.announce("MCP server", service.url_of(listening, where.host) + mcp.PATH, token)
        value = None if token is None else token.value
        return _run_until_done(mcp.serve_http(server, listening, where.host, value, what.idle))


@takes(RunOptions, ServerOptions, StorageOptions)
def a2a(options: RunOptions, where: ServerOptions, agent: AgentOption = "manus") -> int:
    """Offer an agent to other agents, by the A2A protocol."""
    _require("a2a-sdk", "a2a", "a2a", "uvicorn")
    check_agent(agent)
    from openmanus_graph.interfaces.a2a_server.server import build_app
    from openmanus_graph.interfaces.service import http as service
    from openmanus_graph.interfaces.service import run_setup

    ask_before_run(options.config)
    with log_file(where.log), _quiet_libraries():
        run_setup.ready_for_tools(options)
        run_setup.ready_for_runs(options, agent)
        listening, token = _listen(where, A2A_PORT, A2A_TOKEN)
        url = service.url_of(listening, where.host)
        value = None if token is None else token.value
        app = build_app(agent, options, url, where.host, value, version("openmanus-graph"))
        service.announce("A2A agent", url, token)
        return _run_until_done(service.serve(app, listening))


@takes(RunOptions, StorageOptions, without=("workspace",))
def acp(
    options: RunOptions,
    agent: AgentOption = "manus",
    log: Annotated[str | None, typer.Option(help="Write a log to this file.")] = None,
) -> int:
    """Work in an editor, by the Agent Client Protocol (stdin, stdout)."""
    _require("agent-client-protocol", "acp", "acp")
    check_agent(agent)
    pipes = StdioPipes()  # before other code can write to stdout
    from openmanus_graph.interfaces.acp_server import serve_editor

    with log_file(log), _quiet_libraries():
        return _run_until_done(serve_editor(agent, options, pipes, version("openmanus-graph")))


def _require(package: str, extra: str, *modules: str) -> None:
    if not all(map(find_spec, modules)):
        raise ConfigError(f"This command needs the package {package}. {install_extra(extra)}")


def _listen(where: ServerOptions, port: int, variable: str) -> "tuple[socket.socket, Token | None]":
    """Listen where the options say, by default on a port; return the clients' token, too."""
    from openmanus_graph.interfaces.service import http as service

    token = None
    if where.no_token:
        service.require_token_off_loopback(where.host)
    else:
        token = service.choose_token(where.token, variable)
    return service.bind(where.host, port if where.port is None else where.port), token


@contextlib.contextmanager
def _quiet_libraries() -> Generator[None]:
    """Keep what libraries log off stderr; it goes to the log file, if there is one."""
    nowhere = logging.NullHandler()
    logging.getLogger().addHandler(nowhere)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(nowhere)


def _run_until_done(serving: Coroutine[Any, Any, None]) -> int:
    run_and_close_models(serving)
    return 0


@takes(StorageOptions)
def serve(
    port: Annotated[int | None, typer.Option(help="Default 2024, or a free one.")] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    no_open: Annotated[bool, typer.Option("--no-open", help="Do not open the page.")] = False,
    modules: Annotated[
        list[str] | None,
        typer.Option("--import", help="Module that registers agents of yours; repeatable."),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Runs that work at the same time. Default 8.")
    ] = None,
    log_level: Annotated[str, typer.Option(help="Of the server's log on stdout.")] = "WARNING",
    log_format: Annotated[
        Literal["text", "json"], typer.Option(help="json: one object per line, without secrets.")
    ] = "text",
) -> int:
    """Serve the page, Studio and the SDK on this machine. Needs the extra `studio`."""
    if missing := [name for name in PAGE_PACKAGES if find_spec(name) is None]:
        raise ConfigError(
            f"The server needs the extra `studio` ({', '.join(missing)} missing). "
            f"{install_extra('studio')}"
        )
    if modules:
        sys.path.insert(0, "")
    for module in modules or ():
        try:
            import_module(module)
        except ImportError as error:
            raise ConfigError(f"--import {module} cannot be loaded: {error}.") from error
    port = _free_port(host, port)
    if jobs is not None:
        os.environ["OPENMANUS_JOBS"] = str(jobs)
    _prepare_environment(host, log_level)
    _warn_without_sandbox()
    run_server: Any = import_module("langgraph_api.cli").run_server  # it has no types
    protocols: Any = import_module("uvicorn.config").HTTP_PROTOCOLS  # typed as fixed names
    from openmanus_graph.interfaces.server import server_config
    from openmanus_graph.interfaces.server.guard import server_token, token_source
    from openmanus_graph.interfaces.service import http as service
    from openmanus_graph.interfaces.service.oidc import configured_issuer

    configured_issuer()
    protocols["auto"] = service.PROTOCOL  # `run_server` has no argument for it

    logging.getLogger("langgraph_api.cli").setLevel(logging.WARNING)  # no banner of another page
    logging.getLogger("langgraph_api.timing.timer").setLevel(logging.ERROR)  # nor of a slow start
    config, address = server_config(), own_address(host, port)
    threading.Thread(
        target=_print_when_ready,
        args=(address, server_token(), token_source()),
        kwargs={"open_page": not no_open, "as_json": log_format == "json"},
        daemon=True,
    ).start()
    if log_format == "json":  # the token, which it must not hold, was made above
        import_module("openmanus_graph.interfaces.server.json_log").write_json_lines()
    run_server(
        host,
        port,
        False,  # no reloading
        config["graphs"],
        n_jobs_per_worker=MOST_WAITING,  # `turns.py` decides which of them work
        auth=config["auth"],
        http=config["http"],
        checkpointer=config["checkpointer"],
        store=config["store"],
        disable_persistence=config["disable_persistence"],
        server_level=log_level,
        timeout_graceful_shutdown=GRACE_S,
    )
    return 0


def _free_port(host: str, port: int | None) -> int:
    """Return the port to listen on: the one that was asked for, or any free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    why = ""
    for candidate in (port,) if port is not None else (PAGE_PORT, 0):
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, candidate))
                return int(probe.getsockname()[1])
            except OSError as error:
                why = error.strerror or ""
    raise ConfigError(f"Port {port} of {host} cannot be used: {why}. Choose another.")


def _prepare_environment(host: str, log_level: str) -> None:
    from openmanus_graph.interfaces.server.guard import HOSTS_VARIABLE
    from openmanus_graph.state.addresses import is_loopback

    os.environ.setdefault("LOG_LEVEL", log_level)
    os.environ["LANGGRAPH_NO_VERSION_CHECK"] = "true"  # nothing leaves the machine
    if not is_loopback(host):
        sys.stderr.write(
            f"Warning: others may reach {host}, without encryption. "
            "Anyone who learns the token can run anything here.\n"
        )
        named = [name for name in (os.environ.get(HOSTS_VARIABLE), host) if name]
        os.environ[HOSTS_VARIABLE] = ",".join(named)


def _warn_without_sandbox() -> None:
    """Warn if the configuration lets programs of the server's users read each other's files."""
    from openmanus_graph.interfaces.service.accounts import accounts

    with contextlib.suppress(ConfigError):  # the page shows what is wrong
        settings = resolve_settings(Context(), "new", without_model=True)
        if settings.sandbox.mode == "none" and accounts().any():
            sys.stderr.write("Warning: without a sandbox, users can read each other's files.\n")


def own_address(host: str, port: int) -> str:
    """Return the address of a server for this machine: loopback if it listens everywhere."""
    name = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"[{name}]:{port}" if ":" in name else f"{name}:{port}"


def _print_when_ready(
    address: str, token: str, kept_in: str, *, open_page: bool, as_json: bool
) -> None:
    from openmanus_graph.interfaces.server import takeover

    while not _answers(address):
        time.sleep(READY_POLL_S)
    page = f"http://{address}/app#token={token}"
    takeover.pages.append(page)
    text = f"OpenManus: {page}\nAPI: http://{address} (token: {kept_in})\n"
    if as_json:
        now = datetime.datetime.now(tz=datetime.UTC).isoformat()
        line = {"time": now, "level": "info", "message": f"Serving at http://{address}"}
        text = f"{json.dumps(line)}\n"
    sys.stdout.write(text)
    sys.stdout.flush()
    if open_page:
        webbrowser.open(page)


def _answers(address: str) -> bool:
    connection = http.client.HTTPConnection(address, timeout=5)
    try:
        connection.request("GET", "/ok")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
