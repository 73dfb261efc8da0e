"""The commands that set up this machine and this folder."""

from typing import Annotated

import typer

from openmanus_graph.interfaces.service.options import StorageOptions, takes

app = typer.Typer(rich_markup_mode=None)


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


@app.command()
def trust() -> None:
    """Trust the configuration of the working folder, as it is now."""
    from openmanus_graph.interfaces.cli.trust import trust_folder

    raise typer.Exit(trust_folder())


@app.command()
def models(
    forget: Annotated[
        str | None, typer.Option(metavar="SERVER", help="Forget what was learnt about a server.")
    ] = None,
) -> None:
    """List what was learnt about models' servers from what they refused."""
    from openmanus_graph.interfaces.cli.models import forget_server, list_learnt

    raise typer.Exit(list_learnt() if forget is None else forget_server(forget))
