"""The commands of `openmanus`, a file for each group; they import what they need when they run."""

import sys
from typing import Annotated

import typer

from openmanus_graph.interfaces.cli.commands import (
    mcp,
    memory,
    runs,
    servers,
    setup,
    skills,
    threads,
)
from openmanus_graph.interfaces.service.options import InputOptions, OutputOptions, RunOptions

app = typer.Typer(
    name="openmanus",
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for group in (runs, threads, setup, servers):
    app.add_typer(group.app)
app.add_typer(mcp.app, name="mcp")
app.add_typer(skills.app, name="skills")
app.add_typer(memory.app, name="memory")


@app.callback()
def openmanus(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    """An agent that gets a task done with real tools, and hands over an answer and files.

    Without a command it opens the chat.
    """
    if context.invoked_subcommand is not None:
        return
    if version:
        from importlib.metadata import version as installed

        sys.stdout.write(f"openmanus {installed('openmanus-graph')}\n")
    elif sys.stdin.isatty() and sys.stderr.isatty():
        from openmanus_graph.interfaces.cli.chat import chat_with

        raise typer.Exit(chat_with(InputOptions(), RunOptions(), OutputOptions()))
    else:
        sys.stderr.write(f"{context.get_help()}\n")
        raise typer.Exit(2)
