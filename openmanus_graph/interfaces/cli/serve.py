"""`openmanus serve`: LangGraph's server with our page, opened in the browser."""

import http.client
import logging
import os
import socket
import sys
import threading
import time
import webbrowser
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from openmanus_graph.errors import ConfigError, install_extra

DEFAULT_PORT = 2024
GRACE_S = 8
NEEDED = ("langgraph_api", "langgraph_runtime_inmem", "fastapi")
READY_POLL_S = 0.02


def serve(
    host: str, port: int | None, *, open_page: bool, modules: list[str], jobs: int, log_level: str
) -> int:
    """Serve until a signal comes, and return the exit code.

    Raises:
        ConfigError: The extra `studio` is missing, the port is taken, or a module cannot be loaded.
    """
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        raise ConfigError(
            f"The server needs the extra `studio` ({', '.join(missing)} missing). "
            f"{install_extra('studio')}"
        )
    if modules:
        sys.path.insert(0, "")
    for module in modules:
        try:
            import_module(module)
        except ImportError as error:
            raise ConfigError(f"--import {module} cannot be loaded: {error}.") from error
    port = _free_port(host, port)
    _prepare_environment(host, log_level)
    run_server: Any = import_module("langgraph_api.cli").run_server
    protocols: Any = import_module("uvicorn.config").HTTP_PROTOCOLS
    from openmanus_graph.interfaces.server import server_config
    from openmanus_graph.interfaces.server.token import server_token, token_source
    from openmanus_graph.interfaces.service.http import PROTOCOL

    protocols["auto"] = PROTOCOL  # `run_server` has no argument for it

    logging.getLogger("langgraph_api.cli").setLevel(logging.WARNING)  # no banner of another page
    logging.getLogger("langgraph_api.timing.timer").setLevel(logging.ERROR)  # nor of a slow start
    config, address = server_config(), own_address(host, port)
    ready_arguments = (address, server_token(), token_source())
    printer = threading.Thread(
        target=_print_when_ready, args=ready_arguments, kwargs={"open_page": open_page}, daemon=True
    )
    printer.start()
    run_server(
        host,
        port,
        False,  # no reloading
        config["graphs"],
        n_jobs_per_worker=jobs,
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
    refused: OSError | None = None
    for candidate in (port,) if port is not None else (DEFAULT_PORT, 0):
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, candidate))
                return int(probe.getsockname()[1])
            except OSError as error:
                refused = error
    why = refused.strerror if refused else ""
    raise ConfigError(f"Port {port} of {host} cannot be used: {why}. Choose another.")


def _prepare_environment(host: str, log_level: str) -> None:
    from openmanus_graph.interfaces.server.guard import HOSTS_VARIABLE
    from openmanus_graph.state.addresses import is_loopback

    os.environ.setdefault("LOG_LEVEL", log_level)
    os.environ["LANGGRAPH_NO_VERSION_CHECK"] = "true"  # nothing leaves the machine
    if not is_loopback(host):
        sys.stderr.write(
            f"Warning: {host} may be reached by others, without encryption. "
            "Whoever learns the token can run anything here.\n"
        )
        named = [name for name in (os.environ.get(HOSTS_VARIABLE), host) if name]
        os.environ[HOSTS_VARIABLE] = ",".join(named)


def own_address(host: str, port: int) -> str:
    """Return where this machine reaches a server: by loopback if it listens everywhere."""
    name = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"[{name}]:{port}" if ":" in name else f"{name}:{port}"


def _print_when_ready(address: str, token: str, kept_in: str, *, open_page: bool) -> None:
    from openmanus_graph.interfaces.server.takeover import remember_page

    while not _answers(address):
        time.sleep(READY_POLL_S)
    page = f"http://{address}/app#token={token}"
    remember_page(page)
    sys.stdout.write(f"OpenManus: {page}\nAPI: http://{address} (token: {kept_in})\n")
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
