"""The command `openmanus`: the table of its commands, and the end of its process.

A module is loaded only when its command is used.
"""

import functools
import sys
import warnings
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.models import CommandInfo
from typing_extensions import override

from openmanus_graph.config import entry_points
from openmanus_graph.errors import ConfigError, StorageError
from openmanus_graph.interfaces.cli import process
from openmanus_graph.interfaces.service import own_process

COMMANDS = {
    "run": ("run:run", "Do one task."),
    "plan": ("run:plan", "Do one task with a plan, whose steps run in parallel."),
    "batch": ("batch:batch", "Do many tasks; run it again to continue where it stopped."),
    "eval": ("batch:evaluate", "Do the tasks of a suite, check each, and report what passes."),
    "chat": ("chat:chat", "Talk with the agent: several turns on one thread."),
    "resume": ("run:resume", "Continue a thread that stopped, waits for an answer, or crashed."),
    "tell": ("threads:tell", "Send a running agent a message, which it reads at its next step."),
    "demo": ("run:demo", "Do a task with real tools and a recorded model: no key, no network."),
    "threads": ("threads:threads", "List, find, pin, archive and delete threads."),
    "storage": ("threads:storage", "Show what is stored, and where the megabytes are."),
    "backup": ("threads:backup", "Write all threads into one file, while runs go on."),
    "restore": ("threads:restore", "Restore threads into a new or empty home folder."),
    "show": ("show:show", "Show what was said and done in a thread."),
    "export": ("show:export", "Write a thread as Markdown, a page, or a bundle for `replay`."),
    "fork": ("fork:fork", "Try again from an earlier point of a thread, as a new thread."),
    "diff": ("fork:diff", "Show what changed in a thread's files between two of its points."),
    "replay": ("replay:replay", "Run a thread again from its record, and show what differs now."),
    "init": ("init:init", "Set up your model: provider, key and name are tried and then stored."),
    "doctor": ("doctor:doctor", "Show what is configured, what is missing, and how to fix it."),
    "trust": ("skills:trust", "Trust the configuration of the working folder as it is now."),
    "models": ("init:models", "List what was learned about models' servers from their refusals."),
    "mcp-server": ("servers:mcp_server", "Offer the tools, and maybe an agent, to MCP clients."),
    "a2a": ("servers:a2a", "Offer an agent to other agents, by the A2A protocol."),
    "acp": ("servers:acp", "Work in an editor, by the Agent Client Protocol (stdin, stdout)."),
    "serve": ("servers:serve", "Serve the page, Studio and the SDK on this machine."),
    "triggers": (
        "triggers:app",
        "Runs that begin without a person: on a schedule, or when something arrives.",
    ),
    "channels": ("triggers:channels", "Where people talk to the agent: Telegram, Slack, mail."),
    "inbox": (
        "triggers:inbox",
        "List what waits for a person: approvals, questions, unknown outcomes, failed deliveries.",
    ),
    "users": ("users:app", "People who may use the server, each with threads of their own."),
    "mcp": ("mcp:app", "Servers of the Model Context Protocol, whose tools agents use."),
    "skills": ("skills:app", "Skills: folders of instructions and scripts for certain tasks."),
    "usage": (
        "usage:usage",
        "Show runs, tokens, dollars and time.",
    ),
    "library": ("library:app", "Documents that you, and agents, search."),
    "memory": ("threads:memory", "Notes that agents keep for later conversations."),
}
"""In the order of the help: the function or Typer app (`MODULE:NAME`), and its first help line.

A function returns the exit code of its command.
"""


@functools.cache
def load(name: str) -> Any:  # the class of commands is private in Typer
    if name in COMMANDS:
        module, _, attribute = COMMANDS[name][0].partition(":")
        found = getattr(import_module(f"openmanus_graph.interfaces.cli.{module}"), attribute)
    else:
        found = entry_points.load(entry_points.installed("commands")[name], "command")
    if isinstance(found, typer.Typer):
        return _with_metavars(typer.main.get_group(found))
    info = CommandInfo(name, callback=found)
    return _with_metavars(
        typer.main.get_command_from_info(info, pretty_exceptions_short=True, rich_markup_mode=None)
    )


def _with_metavars(command: Any) -> Any:
    """Name what options take in a word, as in `--file FILE`; Typer writes `--file <list[str]>`."""
    for one in getattr(command, "commands", {}).values():
        _with_metavars(one)
    for param in command.params:
        is_flag = getattr(param, "is_flag", False)
        if param.metavar is None and not is_flag and not param.type_descriptor.is_choice:
            is_number = param.bare_type() in ("int", "float")
            param.metavar = "NUMBER" if is_number else param.name.rpartition("_")[2].upper()
    return command


class _LazyGroup(TyperGroup):
    """Lists and completes the commands from the table; loads the one that is invoked."""

    def __init__(self, **options: Any) -> None:  # Typer passes them on
        super().__init__(**options)
        for name, (_, line) in COMMANDS.items():
            self.commands[name] = TyperCommand(name, help=line)

    @override
    def list_commands(self, ctx: Any) -> list[str]:
        return [*COMMANDS, *sorted(entry_points.installed("commands").names - COMMANDS.keys())]

    @override
    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in COMMANDS or cmd_name not in entry_points.installed("commands").names:
            return super().get_command(ctx, cmd_name)
        try:
            return load(cmd_name)
        except ConfigError as error:  # the help still lists the other commands
            return TyperCommand(cmd_name, help=str(error))

    @override
    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # private classes of Typer
        name, command, rest = super().resolve_command(ctx, args)
        return name, command and load(args[0]), rest


def _exit(code: int, **options: object) -> None:
    raise typer.Exit(code)


app = typer.Typer(
    name="openmanus",
    cls=_LazyGroup,
    invoke_without_command=True,
    result_callback=_exit,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback()
def openmanus(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> int:
    """An agent that gets a task done with real tools, and hands over an answer and files.

    Without a command it opens the chat.
    """
    if context.invoked_subcommand is not None:
        return 0
    if version:
        from importlib import metadata

        sys.stdout.write(f"openmanus {metadata.version('openmanus-graph')}\n")
        return 0
    if sys.stdin.isatty() and sys.stderr.isatty():
        from openmanus_graph.interfaces.cli.chat import chat

        return int(chat())
    sys.stderr.write(f"{context.get_help()}\n")
    return 2


def main() -> None:
    """Run the command line, then end the process.

    Wrong usage and configuration exit with 2, other failures with 1.
    """
    with process.quick_exit():
        process.secure_standard_streams()
        own_process.relax_garbage_collection()
        # langchain-core calls `json()` of whatever answered a request that failed; Google's client
        # answers with aiohttp's, where it is a coroutine.
        warnings.filterwarnings(
            "ignore", r"coroutine 'ClientResponse\.json' was never", RuntimeWarning
        )
        own_process.export_traces()
        try:
            _run()
        except SystemExit as ended:
            failure = process.stdout_failure()
            if failure and not ended.code:
                _end(f"stdout cannot be written: {failure}. Send the output somewhere else.", 1)
            raise


def _run() -> None:
    try:
        app(list(with_network(sys.argv[1:])))
    except ConfigError as error:
        _end(str(error), 2)
    except (RuntimeError, StorageError, OSError) as error:
        from openmanus_graph.config.homes import home_place

        if isinstance(error, own_process.ReportedError):
            sys.exit(1)
        if isinstance(error, own_process.RunError):
            _end(str(error), 1)
        if isinstance(error, RuntimeError):
            raise
        try:
            Path.cwd()
        except OSError:
            _end("The working folder no longer exists. Change to another one: cd FOLDER.", 2)
        if not own_process.is_storage_fault(error):
            raise
        _end(own_process.describe_failure(error, home_place()), 1)


def with_network(arguments: Sequence[str]) -> Iterator[str]:
    """Give a bare `--network` its value: an option takes one always or never."""
    values, options = {"--network": "--network=ask", "--no-network": "--network=off"}, True
    for one in arguments:
        options = options and one != "--"
        yield values.get(one, one) if options else one


def _end(complaint: str, code: int) -> None:
    text = f"openmanus: {complaint}"
    if sys.stderr.isatty():
        from openmanus_graph.interfaces.cli.console import say

        say(text)  # wrapped at words
    else:
        sys.stderr.write(f"{text}\n")
    sys.exit(code)
