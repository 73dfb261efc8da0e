"""The Python libraries that the sandbox has, and the refusal to install more without network."""

from collections.abc import Callable
from functools import cache
from importlib.machinery import PathFinder

from openmanus_graph.backends.sandbox.confinement import sandbox_of
from openmanus_graph.backends.sandbox.scratch import package_folders
from openmanus_graph.errors import TrustedToolError
from openmanus_graph.runtime.session import Session
from openmanus_graph.state.settings import SandboxSettings

_USUAL = (
    "pandas", "numpy", "scipy", "sklearn", "matplotlib", "seaborn", "altair", "tabulate",
    "openpyxl", "docx", "pptx", "pypdf", "reportlab", "PIL", "bs4",
    "requests",
)  # fmt: skip
"""Names of modules: tables, charts, documents, pictures, web."""


def usual_libraries(settings: SandboxSettings) -> tuple[str, ...]:
    """Return the modules that can be imported; none where an image of its own has the Python.

    What a thread has installed by itself is left out. Blocks: folders are looked into.
    """
    return () if settings.mode in ("docker", "ssh") else _installed()


@cache
def _installed() -> tuple[str, ...]:
    """Look for the modules' files, without importing any."""
    folders = [str(folder) for folder in package_folders()]
    return tuple(name for name in _USUAL if PathFinder.find_spec(name, folders) is not None)


def refuse_install(session: Session, find: Callable[[str], str], text: str) -> None:
    """Raise TrustedToolError for an installation that would only try and fail. Blocks.

    Args:
        session: Whose sandbox it would run in.
        find: Returns the command of a text that installs from the network; empty if none does.
        text: What is to be run.
    """
    settings = session.settings.sandbox
    command = "" if settings.network else find(text)
    if not command or sandbox_of(session).reaches_network:
        return
    there = ", ".join(usual_libraries(settings))
    raise TrustedToolError(
        f"Nothing was run: `{command}` needs the network, which is off for Python and the shell. "
        + (f"Use what is there, such as {there}" if there else "Use what is there")
        + ", or install from files with --no-index. Only the person can switch it on: --network, "
        "or network = true under [sandbox]."
    )
