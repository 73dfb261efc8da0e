"""Which folders cannot be a workspace: they belong to the system, or hold everybody's files."""

import os
import pwd
import shlex
from pathlib import Path

from openmanus_graph.errors import ConfigError

WORKSPACES = "workspace"
"""The folder in the working folder that holds each thread's, unless a person names another."""
_SHARED = ("/", "/etc", "/home", "/run", "/usr", "/usr/local", "/var")
_SHARED_ON_MACOS = ("/Applications", "/Library", "/System", "/Users", "/Volumes", "/private")
_PROGRAMS = (
    "/bin", "/boot", "/lib", "/lib32", "/lib64", "/libx32", "/sbin", "/usr/bin", "/usr/lib",
    "/usr/lib32", "/usr/lib64", "/usr/libx32", "/usr/sbin",
)  # fmt: skip
_KERNEL = ("/dev", "/proc", "/sys")
_MEMORY = Path("/dev/shm")


def refuse_system_folder(workspace: Path) -> None:
    """Refuse a workspace that the sandbox needs for itself, or that hands over the machine.

    A run's tools may change all that lies in the workspace, and nothing else.

    Args:
        workspace: Resolved.

    Raises:
        ConfigError: It cannot be one, and why.
    """
    why = _objection(workspace)
    if why:
        raise ConfigError(
            f"The workspace cannot be {workspace}: {why}. Choose a folder of your own for the "
            "run's files (--workspace FOLDER, or `workspace` of the Context)."
        )


def require_inside(workspace: Path, real: Path) -> None:
    """Refuse a default workspace that leads out of the working folder: a clone may bring a link.

    Args:
        workspace: Of a thread for which a person named none.
        real: Resolved.

    Raises:
        ConfigError: It leads out.
    """
    if not real.is_relative_to(Path.cwd().resolve()):
        raise ConfigError(
            f"{workspace} leads out of this folder, to {real}. The link may have come with the "
            "folder, so nothing was run. Remove it, or give the folder that you want with "
            f"--workspace {shlex.quote(str(real))}."
        )


def _objection(workspace: Path) -> str:
    if _is_within(workspace, _KERNEL) and not workspace.is_relative_to(_MEMORY):
        return "there are no files, only what the kernel shows"
    if _is_within(workspace, _PROGRAMS):
        return "the programs of the machine lie there, and the tools may change all in a workspace"
    if workspace in _all_shared():
        return "that is the whole machine, and the tools may change all in a workspace"
    return ""


def _is_within(workspace: Path, places: tuple[str, ...]) -> bool:
    return any(workspace.is_relative_to(place) for place in places)


def _all_shared() -> set[Path]:
    """Return the folders that hold more than one person's or one program's files."""
    return {*map(Path, (*_SHARED, *_SHARED_ON_MACOS)), *_home_of_this_user().parents}


def _home_of_this_user() -> Path:
    """Return the home folder that the system knows: `$HOME` is often set to lie in a project."""
    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:  # a container may run as a user without a name
        return Path("/")
