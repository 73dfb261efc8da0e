"""`openmanus users`: who may use the server, besides the one with the machine's own token."""

import sys
from typing import Annotated

import typer

from openmanus_graph.backends.persistence.accounts import Role
from openmanus_graph.interfaces.cli.threads import JsonLinesOption, command_group, show_rows
from openmanus_graph.interfaces.cli.usage import quota
from openmanus_graph.interfaces.service.accounts import accounts
from openmanus_graph.interfaces.service.options import StorageOptions, takes

app = command_group("People who may use the server, each with threads of their own.")
app.command()(quota)
UserName = Annotated[str, typer.Argument(help="The user's name.")]
ROLES = "admin also changes the server, user runs agents, viewer only reads."


@app.command()
@takes(StorageOptions)
def add(
    name: UserName,
    role: Annotated[Role, typer.Option(help=ROLES)] = "user",
    subject: Annotated[str, typer.Option(help="Who it is at the OIDC issuer: ISSUER#SUB.")] = "",
) -> int:
    """Add a user and print the token, which is shown only now."""
    table = accounts()
    table.add(name, role, subject)
    return _show(name, table.new_token(name, alone=True))


@app.command("list")
@takes(StorageOptions)
def list_users(as_json: JsonLinesOption = False) -> int:
    """List the users."""
    rows = [one.__dict__ for one in accounts().all()]
    show_rows(rows, ("name", "role", "tokens", "created", "subject"), as_json=as_json)
    return 0


@app.command("role")
@takes(StorageOptions)
def change_role(name: UserName, role: Annotated[Role, typer.Argument(help=ROLES)]) -> int:
    """Give a user another role."""
    accounts().change_role(name, role)
    return 0


@app.command()
@takes(StorageOptions)
def rotate(name: UserName) -> int:
    """Print a new token of a user. The earlier ones become invalid."""
    return _show(name, accounts().new_token(name, alone=True))


@app.command()
@takes(StorageOptions)
def revoke(name: UserName) -> int:
    """Remove a user: the tokens become invalid, and runs end at their next step.

    The threads are kept. Nobody else can get the name; `users add NAME` lets the user in again.
    """
    accounts().remove(name)
    sys.stderr.write(f"Removed user {name}. The threads were kept.\n")
    return 0


def _show(name: str, token: str) -> int:
    sys.stdout.write(f"{token}\n")
    sys.stderr.write(f"This is the token of {name}. It is not stored and not shown again.\n")
    return 0
