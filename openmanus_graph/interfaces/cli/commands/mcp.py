"""`openmanus mcp`: the servers whose tools agents use."""

from typing import Annotated

import typer

from openmanus_graph.interfaces.cli.commands.arguments import JsonOption

app = typer.Typer(
    help="Servers of the Model Context Protocol, whose tools agents use.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
_ConfigOption = Annotated[
    str | None, typer.Option(help="Configuration file instead of ./openmanus.toml.")
]
_ServerArgument = Annotated[str, typer.Argument(help="NAME of a configured one, URL or COMMAND.")]


@app.command("list")
def mcp_list(config: _ConfigOption = None, as_json: JsonOption = False) -> None:
    """Start the configured servers and list their tools."""
    from openmanus_graph.interfaces.cli.mcp import list_servers

    raise typer.Exit(list_servers(config, as_json=as_json))


@app.command("test")
def mcp_test(
    server: _ServerArgument, config: _ConfigOption = None, as_json: JsonOption = False
) -> None:
    """Start a server and show its tools, or why it does not work."""
    from openmanus_graph.interfaces.cli.mcp import test_server

    raise typer.Exit(test_server(server, config, as_json=as_json))


@app.command("call")
def mcp_call(
    server: _ServerArgument,
    tool: Annotated[str, typer.Argument(help="The tool's name.")],
    arguments: Annotated[str, typer.Argument(help="Its arguments, a JSON object.")] = "{}",
    config: _ConfigOption = None,
) -> None:
    """Call a tool once, as an agent would, and print its result."""
    from openmanus_graph.interfaces.cli.mcp import call_tool

    raise typer.Exit(call_tool(server, tool, arguments, config))


@app.command("login")
def mcp_login(
    server: _ServerArgument,
    config: _ConfigOption = None,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Only print the address.")
    ] = False,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds to wait for you.")] = 300,
) -> None:
    """Log in to a server over HTTP, in the browser; the login is kept and refreshed."""
    from openmanus_graph.interfaces.cli.mcp_login import log_in

    code = log_in(server, config, open_browser=not no_browser, timeout_s=timeout)
    raise typer.Exit(code)


@app.command("logout")
def mcp_logout(server: _ServerArgument, config: _ConfigOption = None) -> None:
    """Revoke and forget the login at a server."""
    from openmanus_graph.interfaces.cli.mcp_login import log_out

    raise typer.Exit(log_out(server, config))
