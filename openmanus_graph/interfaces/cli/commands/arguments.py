"""Arguments and options that several groups of commands take."""

from typing import Annotated

import typer

MOST_COMPLETED = 200


def complete_thread(incomplete: str) -> list[str]:
    """Return the ids of threads that begin so, for the shell's completion."""
    from openmanus_graph.config.resolve import database_url
    from openmanus_graph.interfaces.service.threads import open_threads

    url = database_url()
    if url.is_local and not url.file.exists():
        return []
    return open_threads().beginning_with([incomplete])[:MOST_COMPLETED]


ThreadArgument = Annotated[
    str,
    typer.Argument(help="Its id, or a unique beginning of it.", autocompletion=complete_thread),
]
LatestThread = Annotated[
    str | None,
    typer.Argument(
        help="Its id, or a unique beginning of it. Default: the latest.",
        autocompletion=complete_thread,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="As JSON.")]
