"""The commands of `openmanus` and of `openmanus mcp`, which import what they need when they run."""

from typing import Annotated

import typer

from openmanus_graph.interfaces.service.options import (
    InputOptions,
    McpOptions,
    OutputOptions,
    PlanName,
    RunOptions,
    ServerOptions,
    takes,
)

app = typer.Typer(
    name="openmanus",
    help="An agent that gets a task done with real tools, and hands over an answer and files.",
    add_completion=False,
    no_args_is_help=True,
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


@app.command()
@takes(InputOptions, RunOptions, OutputOptions)
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
@takes(InputOptions, RunOptions, OutputOptions, without=("agent",))
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
@takes(InputOptions, RunOptions, OutputOptions)
def chat(given: InputOptions, options: RunOptions, output: OutputOptions) -> None:
    """Talk with the agent: several turns on one thread."""
    from openmanus_graph.interfaces.cli.chat import chat_with

    raise typer.Exit(chat_with(given, options, output))


@app.command()
@takes(RunOptions, OutputOptions, without=("policy",))
def resume(
    options: RunOptions,
    output: OutputOptions,
    thread: Annotated[str, typer.Argument(help="The thread to go on with.")],
    answer: Annotated[str | None, typer.Option(help="The answer to its question.")] = None,
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

    reply = Reply(answer, approve, reject, reason, interrupt, every)
    raise typer.Exit(resume_thread(thread, reply, options, output))


@app.command()
def tell(
    thread: Annotated[str, typer.Argument(help="The thread that is at work.")],
    text: Annotated[str, typer.Argument(help="What to say; - reads it from stdin.")],
) -> None:
    """Tell a running agent something, which it reads at its next step."""
    from openmanus_graph.interfaces.cli.threads import tell_thread

    raise typer.Exit(tell_thread(thread, text))


@app.command()
def threads(
    delete: Annotated[str | None, typer.Option(help="Delete this thread.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON lines.")] = False,
) -> None:
    """List the threads, newest first."""
    from openmanus_graph.interfaces.cli.threads import delete_thread, list_threads

    raise typer.Exit(delete_thread(delete) if delete else list_threads(as_json=as_json))


@app.command()
def show(
    thread: Annotated[str, typer.Argument(help="The thread to show.")],
    as_json: Annotated[bool, typer.Option("--json", help="The messages as JSON.")] = False,
    plan: Annotated[bool, typer.Option("--plan", help="Its plan as JSON, to be edited.")] = False,
) -> None:
    """Show what was said and done in a thread."""
    from openmanus_graph.interfaces.cli.threads import print_plan, show_thread

    raise typer.Exit(print_plan(thread) if plan else show_thread(thread, as_json=as_json))


@app.command()
def export(
    thread: Annotated[str, typer.Argument(help="The thread to export.")],
    output: Annotated[str, typer.Option(help="File to write; - is stdout.")] = "-",
) -> None:
    """Write a thread as Markdown."""
    from openmanus_graph.interfaces.cli.threads import export_thread

    raise typer.Exit(export_thread(thread, output))


@app.command()
def fork(
    thread: Annotated[str, typer.Argument(help="The thread to go back in.")],
    at: Annotated[
        str | None, typer.Option(help="Number or id of the point; without it they are listed.")
    ] = None,
    name: Annotated[str | None, typer.Option("--thread", help="Name of the new thread.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON lines.")] = False,
) -> None:
    """Go back to an earlier point of a thread and try again from there, as a new thread."""
    from openmanus_graph.interfaces.cli.fork import fork_thread

    raise typer.Exit(fork_thread(thread, at, name, as_json=as_json))


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
def doctor(
    fix: Annotated[bool, typer.Option("--fix", help="Run the commands that mend it.")] = False,
) -> None:
    """Say what is configured, what is missing, and the command that mends it."""
    from openmanus_graph.interfaces.cli.doctor import examine

    raise typer.Exit(examine(fix=fix))


@app.command("mcp-server")
@takes(McpOptions, RunOptions, ServerOptions)
def mcp_server(what: McpOptions, options: RunOptions, where: ServerOptions) -> None:
    """Offer the tools, and maybe an agent, to MCP clients."""
    from openmanus_graph.interfaces.cli.servers import serve_mcp

    raise typer.Exit(serve_mcp(what, options, where))


@app.command()
@takes(RunOptions, ServerOptions)
def a2a(
    options: RunOptions,
    where: ServerOptions,
    agent: Annotated[str, typer.Option(help="Which agent works.")] = "manus",
) -> None:
    """Offer an agent to other agents, by the A2A protocol."""
    from openmanus_graph.interfaces.cli.servers import serve_a2a

    raise typer.Exit(serve_a2a(agent, options, where))


@app.command()
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
