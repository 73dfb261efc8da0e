"""Calling `computer_use` as a model does, without a graph, and programs for its desktop."""

import contextlib
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import psutil
from filelock import FileLock
from langchain_core.tools import StructuredTool

from openmanus_graph.backends.desktop.desktop import HANDLE, Desktop
from openmanus_graph.errors import ToolError
from openmanus_graph.interfaces.cli.doctor import install_commands
from openmanus_graph.state.context import SandboxMode
from openmanus_graph.state.settings import SandboxSettings
from openmanus_graph.testing.replays import tool_runtime, tool_session
from openmanus_graph.tools.computer_use import computer_use


class DesktopUse:
    """One thread with a desktop."""

    def __init__(self, folder: Path, mode: SandboxMode = "bwrap") -> None:
        self.session = tool_session(folder, sandbox=SandboxSettings(mode=mode))

    async def __call__(self, action: str, **args: Any) -> str:
        """Make a call and return what the model reads, an error too."""
        assert isinstance(computer_use, StructuredTool)
        assert computer_use.coroutine is not None
        try:
            seen, _ = await computer_use.coroutine(
                action=action, runtime=tool_runtime(self.session), **args
            )
        except ToolError as error:
            return f"Error: {error}"
        return str(seen)

    @property
    def desktop(self) -> Desktop:
        """The thread's desktop."""
        desktop = self.session.find(HANDLE)
        assert isinstance(desktop, Desktop)
        return desktop

    def file(self, name: str) -> str:
        """Return what a file of the workspace holds."""
        return (self.session.workspace.root / name).read_text("utf-8")


def install_programs(*names: str) -> None:
    """Install programs that have their packages' names, as `doctor --fix` does."""
    with FileLock(Path(tempfile.gettempdir()) / "openmanus-tests-install.lock"):
        missing = [name for name in names if shutil.which(name) is None]
        for command in install_commands(" ".join(missing)) if missing else ():
            subprocess.run(command, shell=True, check=True, capture_output=True)


def below(process: int, name: str) -> list[psutil.Process]:
    """Return the processes of that name that a process has started."""
    found: list[psutil.Process] = []
    for one in psutil.Process(process).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # it has just ended
            found += [one] if one.name() == name else []
    return found
