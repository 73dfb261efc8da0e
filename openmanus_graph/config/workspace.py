"""Refuses folders that cannot be a workspace: system folders, and those of several users."""

import os
import pwd
import shlex
from pathlib import Path

from openmanus_graph.errors import ConfigError

WORKSPACES = "workspace"
"""The folder in the working folder that holds each thread's, unless a user names another."""
_SHARED = (
    "/", "/etc", "/home", "/run", "/usr", "/usr/local", "/var",
    "/Applications", "/Library", "/System", "/Users", "/Volumes", "/private",
)  # fmt: skip
"""Folders that hold the files of several users or programs."""
_PROGRAMS = (
    "/bin", "/boot", "/lib", "/lib32", "/lib64", "/libx32", "/sbin", "/usr/bin", "/usr/lib",
    "/usr/lib32", "/usr/lib64", "/usr/libx32", "/usr/sbin",
)  # fmt: skip
_KERNEL = ("/dev", "/proc", "/sys")


def refuse_system_folder(workspace: Path) -> None:
    """Refuse a workspace that the sandbox needs for itself, or that exposes the machine.

    Args:
        workspace: Resolved.

    Raises:
        ConfigError: It cannot be one, and why.
    """
    try:  # not `$HOME`, which is often set to a folder in a project
        home = Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:  # a container may run as a user without a name
        home = Path("/")
    if any(map(workspace.is_relative_to, _KERNEL)) and not workspace.is_relative_to("/dev/shm"):
        why = "there are no files, only what the kernel shows"
    elif any(map(workspace.is_relative_to, _PROGRAMS)):
        why = "the programs of the machine lie there, and the tools may change all in a workspace"
    elif workspace in {*map(Path, _SHARED), *home.parents}:
        why = "that is the whole machine, and the tools may change all in a workspace"
    else:
        return
    raise ConfigError(
        f"The workspace cannot be {workspace}: {why}. Choose a folder of your own for the run's "
        "files (--workspace FOLDER, or `workspace` of the Context)."
    )


def require_inside(workspace: Path, real: Path) -> None:
    """Refuse a default workspace that leads out of the working folder: a clone may have a link.

    Args:
        workspace: Of a thread for which no workspace was named.
        real: The same, resolved.

    Raises:
        ConfigError: It leads out.
    """
    if not real.is_relative_to(Path.cwd().resolve()):
        raise ConfigError(
            f"{workspace} leads out of this folder, to {real}. The link may have come with the "
            "folder, so nothing was run. Remove it, or give the folder that you want with "
            f"--workspace {shlex.quote(str(real))}."
        )
