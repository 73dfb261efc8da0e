"""What installed packages add, by entry points of the groups `openmanus_graph.KIND`.

- `tools`: a tool, or a list of tools, which `manus` and `planner` get.
- `agents`: a builder that takes what `build_manus_graph` takes. The first line of its docstring
  tells planners what the agent is for.
- `skills`: a package with skills in its folder.
- `providers`: a `Provider`; the entry point's name is the `PROVIDER` of `PROVIDER:NAME`.
- `databases`: a subclass of `Database` that is called with the address; `checkpointers`: the
  subclass of `Checkpointer` for it. The name of both is the scheme of the addresses.
- `settings`: a dataclass of `Setting` fields; the name is its table in the configuration file.
- `commands`: a function that returns an exit code; typer makes the command from its signature.
- `routes`: a FastAPI router of the server.
- `channels`: a subclass of `BaseChannel`, where people talk to the agent.

Ours win if a name is taken.
"""

import sys
from functools import cache
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from typing import Any

from openmanus_graph.errors import ConfigError


def installed(kind: str) -> EntryPoints:
    """Return what packages add of a kind, such as "tools". Nothing is imported.

    The packages are searched once per `sys.path`.
    """
    return _installed(kind, tuple(sys.path))


def load(point: EntryPoint, what: str) -> Any:  # whatever the package brings
    """Import what an entry point names. A ConfigError, if it cannot, calls it `what`."""
    try:
        return point.load()
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"The {what} {point.name!r} ({point.value}) cannot be loaded: {error}. "
            "Repair or uninstall the package that brings it."
        ) from error


@cache
def _installed(kind: str, path: tuple[str, ...]) -> EntryPoints:
    found: EntryPoints = _all_entry_points(path).select(group=f"openmanus_graph.{kind}")
    return found


@cache
def _all_entry_points(path: tuple[str, ...]) -> Any:  # in Python 3.11 no `EntryPoints`
    return entry_points()
