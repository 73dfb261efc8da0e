"""Files and functions that the user names on the command line or in a message.

A file may be anywhere, and be a link. In the workspace programs may replace a file by a link to
another one, so there it must be in the workspace.
"""

import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, cast

from langchain_core.tools import BaseTool, StructuredTool

from openmanus_graph.errors import ConfigError, ToolError
from openmanus_graph.graphs.catalog import agent_tools
from openmanus_graph.runtime.workspace import Workspace, opened_file
from openmanus_graph.safety.open_beneath import UnsafeFileError, open_beneath, read_whole
from openmanus_graph.tool_calls.declaration import with_function

MAX_TEXT_BYTES = 256 << 20
"""Of a file that is read as a whole: tasks, prompts."""


@contextmanager
def opened_input(
    path: str | Path, limit: int, workspace: Workspace | None = None
) -> Generator[BinaryIO]:
    """Open a file that the user named, of at most `limit` bytes. Blocks.

    ConfigError if there is none, or it cannot be read.
    """
    with ExitStack() as opened:
        try:
            place = Path(path).expanduser().absolute()
            file = opened.enter_context(
                opened_file(workspace, str(place), limit=limit)
                if workspace is not None and place.is_relative_to(workspace.root)
                else open_beneath(Path("/"), place, limit=limit)
            )
        except (FileNotFoundError, NotADirectoryError, RuntimeError) as error:
            raise ConfigError(f"There is no file {path}.") from error
        except ToolError as error:
            missing = isinstance(error.__cause__, (FileNotFoundError, NotADirectoryError))
            raise ConfigError(f"There is no file {path}." if missing else str(error)) from error
        except UnsafeFileError as error:
            raise ConfigError(str(error)) from error
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror}.") from error
        yield file


def read_input(path: str | Path, limit: int, workspace: Workspace | None = None) -> bytes:
    """Return the content of a file that the user named. Blocks. ConfigError as `opened_input`."""
    with opened_input(path, limit, workspace) as file:
        return read_whole(file, str(path), limit)


def load_function(address: str) -> Callable[..., Any]:
    """Load `module:function`, or `/folder/module:function`. ConfigError if that fails."""
    place, _, function = address.rpartition(":")
    folder, _, module = place.rpartition("/")
    sys.path.insert(0, folder or str(Path.cwd()))
    try:
        found: Any = getattr(import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"The function {address} cannot be loaded: {error}.") from error
    finally:
        sys.path.pop(0)
    if not callable(found):
        raise ConfigError(f"{address} is not a function, but {type(found).__name__}.")
    return cast("Callable[..., Any]", found)


def replaced_tools(agent: str, functions: Mapping[str, str]) -> list[BaseTool]:
    """Return an agent's tools, some of which call functions, given by the tools' names."""
    tools = {tool.name: tool for tool in agent_tools(agent)}
    for name, address in functions.items():
        if not isinstance(tool := tools.get(name), StructuredTool):
            raise ConfigError(
                f"The agent {agent} has no own tool {name!r} that a function could replace."
            )
        tools[name] = with_function(tool, load_function(address))
    return list(tools.values())
