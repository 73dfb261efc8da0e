"""`openmanus library`: the user's documents, which agents search."""

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from openmanus_graph.backends.library.store import Library, libraries, search
from openmanus_graph.backends.persistence.texts import line_with, search_terms
from openmanus_graph.config import homes
from openmanus_graph.config.resolve import database_url, resolve_settings
from openmanus_graph.errors import ConfigError, ToolError
from openmanus_graph.interfaces.cli.threads import JsonLinesOption, command_group
from openmanus_graph.interfaces.service.accounts import accounts
from openmanus_graph.interfaces.service.options import StorageOptions, takes
from openmanus_graph.interfaces.service.own_process import prepare_home
from openmanus_graph.runtime.output import printable
from openmanus_graph.state.addresses import DatabaseUrl
from openmanus_graph.state.context import Context

app = command_group("Documents that you, and agents, search.")
_ALLOWED = "Hosts on private networks that may be accessed."


@dataclass(frozen=True)
class LibraryOptions:
    library: Annotated[str, typer.Option(help="Its name.")] = ""
    workspace: Annotated[
        str | None, typer.Option(help="The library is kept in the .openmanus of this folder.")
    ] = None
    user: Annotated[str, typer.Option(help="It belongs to this user of the server.")] = ""

    def found(self, *, create: str = "") -> list[Library]:
        """Return the library that is named, or all. ConfigError: it does not exist."""
        if self.user and accounts().find(self.user) is None:
            raise ConfigError(f"There is no user {self.user!r}. See: openmanus users list")
        url, name = database_url(), self.library or create
        if self.workspace is not None:
            home = Path(self.workspace).expanduser().resolve() / homes.HOME
            if not (homes.is_own(home) or homes.is_new(home)):
                raise ConfigError(f"{home} is not yours. Run `openmanus trust` in its folder.")
            url = DatabaseUrl.in_folder(home)
        if url.is_local and create:
            prepare_home(url.file.parent)
        known = libraries(url, self.user, [name] if name else [], create=create and name)
        if self.library and not known:
            raise ConfigError(f"There is no library {name!r}. See: openmanus library list")
        return known


@app.command()
@takes(LibraryOptions, StorageOptions)
def add(
    options: LibraryOptions,
    sources: Annotated[list[str], typer.Argument(metavar="PATH|URL...", help="Folders, too.")],
    mine: Annotated[
        bool, typer.Option("--mine", help="You vouch for these: they count as yours.")
    ] = False,
    allow_host: Annotated[list[str] | None, typer.Option(help=_ALLOWED)] = None,
) -> int:
    """Add files, folders and web pages; again: what changed.

    Files that are gone from a folder are removed. What cannot be read is named and skipped.
    """
    from openmanus_graph.backends.library import adding  # loads what reads pages
    from openmanus_graph.backends.web.guard import Guard

    context = Context(allow_hosts=tuple(allow_host) if allow_host else None)
    guard = Guard.of(resolve_settings(context, "library", without_model=True))
    (library,) = options.found(create="default")
    done, notes = adding.add(library, [*map(adding.source_of, sources)], guard, mine=mine)
    sys.stderr.writelines(f"{printable(note)}\n" for note in notes)
    kinds = ("added", "changed", "unchanged", "removed", "skipped")
    listed = ", ".join(f"{done[kind]} {kind}" for kind in kinds)
    sys.stderr.write(f"{library.name}: {listed}.\n")
    return int(0 < done["skipped"] == done.total())


@app.command("list")
@takes(LibraryOptions, StorageOptions)
def list_documents(options: LibraryOptions, as_json: JsonLinesOption = False) -> int:
    """List the libraries, or with --library the documents of one."""
    for one in (found := options.found()):
        documents = one.documents().values()
        rows = [{"library": one.name, "documents": len(documents)}]
        if options.library:
            rows = [{"source": known.source, "mine": known.mine} for known in documents]
        for row in rows:
            line = printable("  ".join(map(str, row.values())))
            sys.stdout.write(f"{json.dumps(row) if as_json else line}\n")
    if not found:
        sys.stderr.write("There is no library. Make one: openmanus library add PATH\n")
    return 0


@app.command("search")
@takes(LibraryOptions, StorageOptions)
def search_documents(
    options: LibraryOptions,
    query: Annotated[str, typer.Argument(help="Words.")],
    limit: Annotated[int, typer.Option(min=1, help="How many passages at most.")] = 5,
    as_json: JsonLinesOption = False,
) -> int:
    """Find passages."""
    try:
        hits = search(options.found(), query, limit)
    except ToolError as error:
        raise ConfigError(str(error)) from error
    # Other forms of a word begin like it.
    asked = [[word[: max(4, len(word) - 3)] for word in term] for term in search_terms(query)]
    for hit in hits:
        line = line_with(asked, hit.text) or hit.text[:100]
        shown = printable(f"{hit.label} ({hit.about})\n    {line}")
        sys.stdout.write(f"{json.dumps(asdict(hit)) if as_json else shown}\n")
    if not hits:
        sys.stderr.write("Nothing was found.\n")
    return 0 if hits else 1


@app.command()
@takes(LibraryOptions, StorageOptions)
def remove(
    options: LibraryOptions,
    sources: Annotated[
        list[str] | None, typer.Argument(metavar="[PATH|URL]...", help="A folder: all in it.")
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="The whole library.")] = False,
) -> int:
    """Remove documents, or with --all a library. The files themselves are kept."""
    from openmanus_graph.backends.library.adding import source_of

    if not options.library or all_ == bool(sources):
        raise ConfigError("Give --library NAME, and what to remove from it, or --all.")
    (library,) = options.found()
    wanted = tuple(map(source_of, sources or ()))
    beneath = tuple(f"{one}/" for one in wanted)
    gone = [one for one in library.documents() if one in wanted or one.startswith(beneath)]
    library.delete() if all_ else library.remove(gone)
    sys.stderr.write(f"{library.name}: {'all' if all_ else len(gone)} removed.\n")
    return 0 if gone or all_ else 1
