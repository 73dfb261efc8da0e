"""The commands of `openmanus`, which import what they need when they run."""

import sys
from typing import Annotated

import typer

from openmanus_graph.interfaces.service.options import (
    InputOptions,
    McpOptions,
    OutputOptions,
    PlanName,
    RunOptions,
    ServerOptions,
    StorageOptions,
    takes,
)

app = typer.Typer(
    name="openmanus",
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
mcp_app = typer.Typer(
    help="Servers of the Model Context Protocol, whose tools agents use.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(mcp_app, name="mcp")
skills_app = typer.Typer(
    help="Skills: folders of instructions and scripts for certain tasks.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(skills_app, name="skills")
memory_app = typer.Typer(
    help="Notes that agents keep for later conversations.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(memory_app, name="memory")


@skills_app.command("list")
def skills_list(
    as_json: Annotated[bool, typer.Option("--json", help="As JSON lines.")] = False,
) -> None:
    """List the skills, where they are, and what keeps one from being used."""
    from openmanus_graph.interfaces.cli.skills import list_skills

    raise typer.Exit(list_skills(as_json=as_json))


@skills_app.command("show")
def skills_show(name: Annotated[str, typer.Argument(help="The skill's name.")]) -> None:
    """Print a skill's instructions; its files on stderr."""
    from openmanus_graph.interfaces.cli.skills import show_skill

    raise typer.Exit(show_skill(name))


@skills_app.command("add")
def skills_add(
    path: Annotated[str, typer.Argument(help="Its folder, or the name of one that is shipped.")],
) -> None:
    """Copy a skill to your own, for all folders."""
    from openmanus_graph.interfaces.cli.skills import add_skill

    raise typer.Exit(add_skill(path))


def _complete_thread(incomplete: str) -> list[str]:
    """Return the ids of threads that begin so, for the shell's completion."""
    from openmanus_graph.config.resolve import database_url
    from openmanus_graph.interfaces.service.threads import open_threads

    url = database_url()
    if url.is_local and not url.file.exists():
        return []
    return [known.id for known in open_threads().all() if known.id.startswith(incomplete)]


_ThreadArgument = Annotated[
    str,
    typer.Argument(help="Its id, or a unique beginning of it.", autocompletion=_complete_thread),
]
_LatestThread = Annotated[
    str | None,
    typer.Argument(
        help="Its id, or a unique beginning of it. Default: the latest.",
        autocompletion=_complete_thread,
    ),
]


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


@app.command()
@takes(InputOptions, RunOptions, OutputOptions, StorageOptions)
def run(
    given: InputOptions,
    options: RunOptions,
    output: OutputOptions,
    task: Annotated[str, typer.Argument(help="What to do; - reads it from stdin.")],
    plan: Annotated[
        PlanName,
        typer.Option(help="auto: by a plan, if the task has independent parts. Default never."),
    ] = "never",
) -> None:
    """Do one task."""
    from openmanus_graph.interfaces.cli.run import planned, run_task

    if plan == "auto":
        given = planned(given)
    raise typer.Exit(run_task(task, given, options, output))


@app.command()
@takes(InputOptions, RunOptions, OutputOptions, StorageOptions, without=("agent",))
def plan(
    given: InputOptions,
    options: RunOptions,
    output: OutputOptions,
    task: Annotated[str, typer.Argument(help="What to do; - reads it from stdin.")],
) -> None:
    """Do one task by a plan, whose steps run side by side."""
    from openmanus_graph.interfaces.cli.run import planned, run_task

    raise typer.Exit(run_task(task, planned(given), options, output))


@app.command()
@takes(RunOptions, OutputOptions, StorageOptions, without=("workspace", "max_cost_usd", "json"))
def batch(
    options: RunOptions,
    output: OutputOptions,
    tasks: Annotated[
        str, typer.Argument(help="JSON lines, one a task: task, id, files, agent, limits.")
    ],
    out: Annotated[
        str | None,
        typer.Option(help="File of the results, one a line. Default: TASKS.results.jsonl."),
    ] = None,
    agent: Annotated[
        str | None, typer.Option(help="Which agent does tasks that name none. Default manus.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Tasks that are done at once.")] = 4,
    budget_usd: Annotated[
        float | None,
        typer.Option(
            "--max-cost-usd", min=0, help="Dollars of all tasks together. Default: no limit."
        ),
    ] = None,
    remote: Annotated[
        str | None,
        typer.Option(help="Address of a server that does them; its token is in OPENMANUS_TOKEN."),
    ] = None,
) -> None:
    """Do many tasks; the same command goes on where it was cut off."""
    from openmanus_graph.interfaces.cli.batch import do_batch

    raise typer.Exit(do_batch(tasks, out, agent, jobs, budget_usd, remote, options, output))


@app.command()
@takes(InputOptions, RunOptions, OutputOptions, StorageOptions)
def chat(given: InputOptions, options: RunOptions, output: OutputOptions) -> None:
    """Talk with the agent: several turns on one thread."""
    from openmanus_graph.interfaces.cli.chat import chat_with

    raise typer.Exit(chat_with(given, options, output))


@app.command()
@takes(RunOptions, OutputOptions, StorageOptions, without=("policy",))
def resume(
    options: RunOptions,
    output: OutputOptions,
    thread: _LatestThread = None,
    answer: Annotated[
        str | None, typer.Option(help="The answer to its question, or `= RESULT` of a call.")
    ] = None,
    approve: Annotated[bool, typer.Option("--approve", help="Allow the call.")] = False,
    reject: Annotated[bool, typer.Option("--reject", help="Do not allow the call.")] = False,
    reason: Annotated[str, typer.Option(help="Why not, for the model.")] = "",
    interrupt: Annotated[
        str | None, typer.Option("--id", help="Which question, if several.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All open questions.")] = False,
) -> None:
    """Go on with a thread that was stopped, waits for an answer, or crashed."""
    from openmanus_graph.interfaces.cli.run import resume_thread
    from openmanus_graph.interfaces.service.resume import Reply
    from openmanus_graph.interfaces.service.threads import thread_id

    reply = Reply(answer, approve, reject, reason, interrupt, every)
    raise typer.Exit(resume_thread(thread_id(thread), reply, options, output))


@app.command()
@takes(StorageOptions)
def tell(
    thread: _ThreadArgument,
    text: Annotated[str, typer.Argument(help="What to say; - reads it from stdin.")],
) -> None:
    """Tell a running agent something, which it reads at its next step."""
    from openmanus_graph.interfaces.cli.threads import tell_thread
    from openmanus_graph.interfaces.service.threads import thread_id

    raise typer.Exit(tell_thread(thread_id(thread), text))


@app.command()
@takes(StorageOptions)
def threads(
    delete: Annotated[
        str | None, typer.Option(help="Delete this thread.", autocompletion=_complete_thread)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON lines.")] = False,
) -> None:
    """List the threads, newest first."""
    from openmanus_graph.interfaces.cli.threads import delete_thread, list_threads
    from openmanus_graph.interfaces.service.threads import thread_id

    code = delete_thread(thread_id(delete)) if delete else list_threads(as_json=as_json)
    raise typer.Exit(code)


@app.command()
@takes(StorageOptions)
def show(
    thread: _LatestThread = None,
    as_json: Annotated[bool, typer.Option("--json", help="The messages as JSON.")] = False,
    plan: Annotated[bool, typer.Option("--plan", help="Its plan as JSON, to be edited.")] = False,
) -> None:
    """Show what was said and done in a thread."""
    from openmanus_graph.interfaces.cli.threads import print_plan, show_thread
    from openmanus_graph.interfaces.service.threads import thread_id

    shown = thread_id(thread)
    raise typer.Exit(print_plan(shown) if plan else show_thread(shown, as_json=as_json))


@app.command()
@takes(StorageOptions)
def export(
    thread: _ThreadArgument,
    output: Annotated[str, typer.Option(help="File to write; - is stdout.")] = "-",
) -> None:
    """Write a thread as Markdown."""
    from openmanus_graph.interfaces.cli.threads import export_thread
    from openmanus_graph.interfaces.service.threads import thread_id

    raise typer.Exit(export_thread(thread_id(thread), output))


@app.command()
@takes(StorageOptions)
def fork(
    thread: _ThreadArgument,
    at: Annotated[
        str | None, typer.Option(help="Number or id of the point; without it they are listed.")
    ] = None,
    name: Annotated[str | None, typer.Option("--thread", help="Name of the new thread.")] = None,
    keep_files: Annotated[
        bool, typer.Option("--keep-files", help="Leave the files as they are now.")
    ] = False,
    in_place: Annotated[
        bool, typer.Option("--in-place", help="Turn the files back where they lie.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON lines.")] = False,
) -> None:
    """Go back to an earlier point of a thread and try again from there, as a new thread."""
    from openmanus_graph.interfaces.cli.fork import FilesChoice, fork_thread
    from openmanus_graph.interfaces.service.threads import thread_id

    files = FilesChoice(keep_files, in_place)
    raise typer.Exit(fork_thread(thread_id(thread), at, name, files, as_json=as_json))


@app.command()
def diff(
    thread: Annotated[str, typer.Argument(help="The thread whose files to compare.")],
    begin: Annotated[
        str | None, typer.Option("--from", help="Number or id of a point; default the first.")
    ] = None,
    end: Annotated[
        str | None, typer.Option("--to", help="Number or id of a point; default the newest.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON lines.")] = False,
) -> None:
    """Show what changed in a thread's files between two points of it."""
    from openmanus_graph.interfaces.cli.diff import show_changes
    from openmanus_graph.interfaces.service.threads import thread_id

    raise typer.Exit(show_changes(thread_id(thread), begin, end, as_json=as_json))


@app.command()
@takes(StorageOptions)
def replay(thread: _ThreadArgument) -> None:
    """Run a thread again from its record, and show what its model would be sent otherwise now."""
    from openmanus_graph.interfaces.cli.replay import replay as replay_thread
    from openmanus_graph.interfaces.service.threads import thread_id

    raise typer.Exit(replay_thread(thread_id(thread)))


@app.command()
@takes(OutputOptions)
def demo(
    output: OutputOptions,
    plan: Annotated[
        bool, typer.Option("--plan", help="By a plan, whose steps run side by side.")
    ] = False,
    workspace: Annotated[str | None, typer.Option(help="Folder of the demo's files.")] = None,
) -> None:
    """Do a real task with real tools and a recorded model: no key, no network."""
    from openmanus_graph.interfaces.cli.demo import run_demo

    raise typer.Exit(run_demo(workspace, output, plans=plan))


@app.command()
def init(
    model: Annotated[str | None, typer.Option(help="PROVIDER:NAME; else you are asked.")] = None,
    base_url: Annotated[str | None, typer.Option(help="Address of its server.")] = None,
) -> None:
    """Set up your model: provider, key and name, which are tried and then stored."""
    from openmanus_graph.interfaces.cli.init import set_up

    raise typer.Exit(set_up(model, base_url))


@app.command()
@takes(StorageOptions)
def doctor(
    fix: Annotated[bool, typer.Option("--fix", help="Run the commands that mend it.")] = False,
) -> None:
    """Say what is configured, what is missing, and the command that mends it."""
    from openmanus_graph.interfaces.cli.doctor import examine

    raise typer.Exit(examine(fix=fix))


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


@app.command()
def trust() -> None:
    """Trust the configuration of the working folder, as it is now."""
    from openmanus_graph.interfaces.cli.trust import trust_folder

    raise typer.Exit(trust_folder())


_ConfigOption = Annotated[
    str | None, typer.Option(help="Configuration file instead of ./openmanus.toml.")
]
_JsonOption = Annotated[bool, typer.Option("--json", help="As JSON.")]
_ServerArgument = Annotated[str, typer.Argument(help="NAME of a configured one, URL or COMMAND.")]


@mcp_app.command("list")
def mcp_list(config: _ConfigOption = None, as_json: _JsonOption = False) -> None:
    """Start the configured servers and list their tools."""
    from openmanus_graph.interfaces.cli.mcp import list_servers

    raise typer.Exit(list_servers(config, as_json=as_json))


@mcp_app.command("test")
def mcp_test(
    server: _ServerArgument, config: _ConfigOption = None, as_json: _JsonOption = False
) -> None:
    """Start a server and show its tools, or why it does not work."""
    from openmanus_graph.interfaces.cli.mcp import test_server

    raise typer.Exit(test_server(server, config, as_json=as_json))


@mcp_app.command("call")
def mcp_call(
    server: _ServerArgument,
    tool: Annotated[str, typer.Argument(help="The tool's name.")],
    arguments: Annotated[str, typer.Argument(help="Its arguments, a JSON object.")] = "{}",
    config: _ConfigOption = None,
) -> None:
    """Call a tool once, as an agent would, and print its result."""
    from openmanus_graph.interfaces.cli.mcp import call_tool

    raise typer.Exit(call_tool(server, tool, arguments, config))


@mcp_app.command("login")
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


@mcp_app.command("logout")
def mcp_logout(server: _ServerArgument, config: _ConfigOption = None) -> None:
    """Revoke and forget the login at a server."""
    from openmanus_graph.interfaces.cli.mcp_login import log_out

    raise typer.Exit(log_out(server, config))


_NoteArgument = Annotated[str, typer.Argument(help="Its path, /memories/NAME.md for example.")]


@memory_app.command("list")
@takes(StorageOptions)
def memory_list(as_json: _JsonOption = False) -> None:
    """List the notes, the newest change first."""
    from openmanus_graph.interfaces.cli.memory import list_notes

    raise typer.Exit(list_notes(as_json=as_json))


@memory_app.command("show")
@takes(StorageOptions)
def memory_show(path: _NoteArgument, as_json: _JsonOption = False) -> None:
    """Print a note."""
    from openmanus_graph.interfaces.cli.memory import show_note

    raise typer.Exit(show_note(path, as_json=as_json))


@memory_app.command("edit")
@takes(StorageOptions)
def memory_edit(
    path: _NoteArgument,
    text: Annotated[
        str | None, typer.Option(help="The new text; - reads it from stdin. Default: your editor.")
    ] = None,
    trusted: Annotated[
        bool, typer.Option("--trusted", help="You vouch for all of it: it counts as yours.")
    ] = False,
) -> None:
    """Change a note, or write a new one."""
    from openmanus_graph.interfaces.cli.memory import edit_note

    raise typer.Exit(edit_note(path, text, trusted=trusted))


@memory_app.command("delete")
@takes(StorageOptions)
def memory_delete(path: _NoteArgument) -> None:
    """Delete a note."""
    from openmanus_graph.interfaces.cli.memory import delete_note

    raise typer.Exit(delete_note(path))
