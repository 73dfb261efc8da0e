"""The commands that serve other programs."""

from typing import Annotated

import typer

from openmanus_graph.interfaces.service.options import (
    McpOptions,
    RunOptions,
    ServerOptions,
    StorageOptions,
    takes,
)

app = typer.Typer(rich_markup_mode=None)


@app.command("mcp-server")
@takes(McpOptions, RunOptions, ServerOptions, StorageOptions)
def mcp_server(what: McpOptions, options: RunOptions, where: ServerOptions) -> None:
    """Offer the tools, and maybe an agent, to MCP clients."""
    from openmanus_graph.interfaces.cli.servers import serve_mcp

    raise typer.Exit(serve_mcp(what, options, where))


@app.command()
@takes(RunOptions, ServerOptions, StorageOptions)
def a2a(
    options: RunOptions,
    where: ServerOptions,
    agent: Annotated[str, typer.Option(help="Which agent works.")] = "manus",
) -> None:
    """Offer an agent to other agents, by the A2A protocol."""
    from openmanus_graph.interfaces.cli.servers import serve_a2a

    raise typer.Exit(serve_a2a(agent, options, where))


@app.command()
@takes(RunOptions, StorageOptions, without=("workspace",))
def acp(
    options: RunOptions,
    agent: Annotated[str, typer.Option(help="Which agent works.")] = "manus",
    log: Annotated[str | None, typer.Option(help="Write a log to this file.")] = None,
) -> None:
    """Work in an editor, by the Agent Client Protocol over stdin and stdout."""
    from openmanus_graph.interfaces.cli.servers import serve_acp

    raise typer.Exit(serve_acp(agent, options, log))


@app.command()
@takes(StorageOptions)
def serve(
    port: Annotated[int | None, typer.Option(help="Default 2024, or a free one.")] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    no_open: Annotated[bool, typer.Option("--no-open", help="Do not open the page.")] = False,
    modules: Annotated[
        list[str] | None,
        typer.Option("--import", help="Module that registers agents of yours; repeatable."),
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Runs that work at once.")] = 8,
    log_level: Annotated[str, typer.Option(help="Of the server's log on stdout.")] = "WARNING",
) -> None:
    """Serve the page, Studio and the SDK on this machine. Needs the extra `studio`."""
    from openmanus_graph.interfaces.cli import serve as serving

    code = serving.serve(
        host, port, open_page=not no_open, modules=modules or [], jobs=jobs, log_level=log_level
    )
    raise typer.Exit(code)
