"""What can be typed after `openmanus mcp`."""

from typing import Annotated

import typer

mcp = typer.Typer(
    help="Servers of the Model Context Protocol, whose tools agents use.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_Config = Annotated[
    str | None, typer.Option(help="Configuration file instead of ./openmanus.toml.")
]
_Json = Annotated[bool, typer.Option("--json", help="As JSON.")]
_Server = Annotated[str, typer.Argument(help="NAME of a configured one, URL or COMMAND.")]


@mcp.command("list")
def mcp_list(config: _Config = None, as_json: _Json = False) -> None:
    """Start the configured servers and list their tools."""
    from openmanus_graph.interfaces.cli.mcp import list_servers

    raise typer.Exit(list_servers(config, as_json=as_json))


@mcp.command("test")
def mcp_test(server: _Server, config: _Config = None, as_json: _Json = False) -> None:
    """Start a server and show its tools, or why it does not work."""
    from openmanus_graph.interfaces.cli.mcp import test_server

    raise typer.Exit(test_server(server, config, as_json=as_json))


@mcp.command("call")
def mcp_call(
    server: _Server,
    tool: Annotated[str, typer.Argument(help="The tool's name.")],
    arguments: Annotated[str, typer.Argument(help="Its arguments, a JSON object.")] = "{}",
    config: _Config = None,
) -> None:
    """Call a tool once, as an agent would, and print its result."""
    from openmanus_graph.interfaces.cli.mcp import call_tool

    raise typer.Exit(call_tool(server, tool, arguments, config))
