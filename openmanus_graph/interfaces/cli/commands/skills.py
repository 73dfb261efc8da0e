"""`openmanus skills`: what is installed."""

from typing import Annotated

import typer

app = typer.Typer(
    help="Skills: folders of instructions and scripts for certain tasks.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command("list")
def skills_list(
    as_json: Annotated[bool, typer.Option("--json", help="As JSON lines.")] = False,
) -> None:
    """List the skills, where they are, and what keeps one from being used."""
    from openmanus_graph.interfaces.cli.skills import list_skills

    raise typer.Exit(list_skills(as_json=as_json))


@app.command("show")
def skills_show(name: Annotated[str, typer.Argument(help="The skill's name.")]) -> None:
    """Print a skill's instructions; its files on stderr."""
    from openmanus_graph.interfaces.cli.skills import show_skill

    raise typer.Exit(show_skill(name))


@app.command("add")
def skills_add(
    path: Annotated[str, typer.Argument(help="Its folder, or the name of one that is shipped.")],
) -> None:
    """Copy a skill to your own, for all folders."""
    from openmanus_graph.interfaces.cli.skills import add_skill

    raise typer.Exit(add_skill(path))
