"""The commands that show threads, and go back in them."""

from typing import Annotated

import typer

from openmanus_graph.errors import ConfigError
from openmanus_graph.interfaces.cli.commands.arguments import (
    LatestThread,
    ThreadArgument,
    complete_thread,
)
from openmanus_graph.interfaces.service.options import PolicyName, StorageOptions, takes

app = typer.Typer(rich_markup_mode=None)


@app.command()
@takes(StorageOptions)
def threads(
    delete: Annotated[
        str | None, typer.Option(help="Delete this thread.", autocompletion=complete_thread)
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many at most.")] = 50,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON lines.")] = False,
) -> None:
    """List the newest threads."""
    if delete:
        from openmanus_graph.interfaces.cli.threads import delete_thread
        from openmanus_graph.interfaces.service.threads import thread_id

        raise typer.Exit(delete_thread(thread_id(delete)))
    from openmanus_graph.interfaces.cli.thread_list import list_threads

    raise typer.Exit(list_threads(limit, as_json=as_json))


@app.command()
@takes(StorageOptions)
def show(
    thread: LatestThread = None,
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
    thread: Annotated[
        str,
        typer.Argument(
            metavar="THREAD|BUNDLE",
            help="A thread's id, or a unique beginning of it; for --html a bundle's file as well.",
            autocompletion=complete_thread,
        ),
    ],
    output: Annotated[str, typer.Option(help="File to write; - is stdout.")] = "-",
    bundle: Annotated[
        str | None, typer.Option(help="Zip file for its record, which `replay` reads anywhere.")
    ] = None,
    html: Annotated[
        str | None, typer.Option(help="HTML file that plays it in a browser, without a server.")
    ] = None,
) -> None:
    """Write a thread as Markdown, as a file that plays it, or as one that `replay` reads."""
    if html is not None and bundle is not None:
        raise ConfigError("--html and --bundle exclude each other. Give one of them.")
    if html is not None:
        from openmanus_graph.interfaces.cli.export_page import export_page

        raise typer.Exit(export_page(thread, html))
    from openmanus_graph.interfaces.cli.replay import export_bundle
    from openmanus_graph.interfaces.cli.threads import export_thread
    from openmanus_graph.interfaces.service.threads import thread_id

    if bundle is not None:
        raise typer.Exit(export_bundle(thread_id(thread), bundle))
    raise typer.Exit(export_thread(thread_id(thread), output))


@app.command()
@takes(StorageOptions)
def fork(
    thread: ThreadArgument,
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
def replay(
    source: Annotated[
        str,
        typer.Argument(
            metavar="THREAD|BUNDLE",
            help="A thread's id, or a unique beginning of it, or a bundle's file.",
            autocompletion=complete_thread,
        ),
    ],
    to_test: Annotated[
        str | None, typer.Option(help="Python file for the run as a test, which passes offline.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="PROVIDER:NAME to ask instead, until it replies otherwise.")
    ] = None,
    prompt: Annotated[
        list[str] | None,
        typer.Option(help="NAME=FILE to try; NAME is system or next_step. The model is asked."),
    ] = None,
    policy: Annotated[
        PolicyName | None,
        typer.Option(help="Policy to try: ask, auto or never. No model is asked."),
    ] = None,
    tool: Annotated[
        list[str] | None,
        typer.Option(help="NAME=module:function to call instead of a tool. No model is asked."),
    ] = None,
    go_on: Annotated[
        bool,
        typer.Option(
            "--go-on", help="Go on really where something comes out otherwise, as a new thread."
        ),
    ] = False,
    browser: Annotated[
        bool,
        typer.Option("--browser", help="Really do its steps in the browser again; no model."),
    ] = False,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="Private HOST or HOST:PORT that --browser may reach.")
    ] = None,
) -> None:
    """Run a thread again from its record, and show what its model would be sent otherwise now.

    With another model, prompt, policy or tool it stops at the first thing that comes out otherwise.
    """
    from openmanus_graph.interfaces.cli.replay import Changes
    from openmanus_graph.interfaces.cli.replay import replay as replay_record

    changes = Changes(
        model, tuple(prompt or ()), policy, tuple(tool or ()), browser, tuple(allow_host or ())
    )
    raise typer.Exit(replay_record(source, to_test, changes, goes_on=go_on))
