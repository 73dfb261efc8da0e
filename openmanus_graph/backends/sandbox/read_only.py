"""Runs a single command that may look at the workspace, and can change nothing in it."""

import contextlib
import os
import shutil
import stat
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from openmanus_graph.backends.sandbox.confinement import Sandbox
from openmanus_graph.backends.sandbox.process_tree import Tree
from openmanus_graph.errors import ToolError
from openmanus_graph.runtime.atomic_files import copy_entry
from openmanus_graph.runtime.output import shorten_file
from openmanus_graph.runtime.workspace import Workspace, opened_folder
from openmanus_graph.state.settings import SandboxSettings

MOST_COPIED_BYTES = 500 << 20
"""Of a workspace that is copied, where there is no sandbox that keeps it as it is."""
_POLL_S = 0.1
_PROGRAM = ("bash", "--noprofile", "--norc", "-c", 'cd -- "$1" && eval "$2"', "bash")


@dataclass(frozen=True)
class ReadOnlyResult:
    """A command's output and its exit status."""

    text: str
    code: int
    reason: str
    """Why we ended it, as a sentence; empty if it ended by itself."""


def run_read_only(
    command: str,
    workspace: Workspace,
    settings: SandboxSettings,
    *,
    limit_s: float,
    stop: threading.Event,
    max_chars: int,
    in_empty_folder: bool = False,
    brought: Mapping[str, Path | bytes] | None = None,
) -> ReadOnlyResult:
    """Run a bash command in a separate sandbox, with a scratch `/tmp`, without network. Blocks.

    Without a sandbox (mode `none`) it runs in a temporary copy of the workspace: files that it
    names by an absolute path are not protected. On another machine (mode `ssh`) it also runs in a
    copy, and reaches that machine's network.

    Args:
        command: For bash.
        workspace: Where it runs, unless `in_empty_folder`.
        settings: How programs are confined.
        limit_s: Seconds after which it is ended, with all that it has started.
        stop: Ends it when it is set.
        max_chars: Of its output; more is shortened.
        in_empty_folder: Whether it runs in an empty folder instead.
        brought: Content of its `$TMPDIR` by name: a file or folder to copy, or bytes.

    Raises:
        ToolError: There is no sandbox, and the workspace cannot be copied.
        ConfigError: The sandbox does not work here.
    """
    network = settings.mode == "ssh"  # another machine's cannot be switched off
    sandbox = Sandbox(workspace, replace(settings, network=network), read_only=True)
    with contextlib.closing(sandbox), tempfile.TemporaryFile() as output:
        folder = workspace.root
        if in_empty_folder:
            folder = sandbox.layout.tmp / "empty"
            folder.mkdir()
        elif sandbox.backend.name == "none":
            folder = sandbox.layout.scratch / "copy"
            _copy(workspace, folder)
        _bring(brought or {}, sandbox.layout.tmp)
        program = (*_PROGRAM, sandbox.backend.inside(folder), command)
        tree = sandbox.start(program, output=output.fileno())
        with sandbox.call(tree):
            if not _ended(tree, limit_s, stop):
                tree.kill(f"It did not end within {round(limit_s, 2):g} s and was ended.")
        reason = tree.reason
        if not reason and tree.out_of_memory():
            reason = f"It used more than {settings.memory_mb} MB of memory and was ended."
        sandbox.end(tree)
        text = shorten_file(output, workspace, max_chars=max_chars)
        return ReadOnlyResult(text, tree.process.wait(), reason)


def _ended(tree: Tree, limit_s: float, stop: threading.Event) -> bool:
    """Wait for a program's end; return True if it ended in time."""
    ends = time.monotonic() + limit_s
    while not stop.is_set() and (left_s := ends - time.monotonic()) > 0:
        with contextlib.suppress(subprocess.TimeoutExpired):
            tree.process.wait(min(left_s, _POLL_S))
            return True
    return False


def _bring(given: Mapping[str, Path | bytes], folder: Path) -> None:
    for name, content in given.items():
        if isinstance(content, bytes):
            (folder / name).write_bytes(content)
        elif content.is_dir():
            shutil.copytree(content, folder / name)
        else:
            shutil.copyfile(content, folder / name)


def _copy(workspace: Workspace, target: Path) -> None:
    """Copy all but protected and special files. ToolError if that is too much, or fails."""
    left = MOST_COPIED_BYTES

    def left_out(path: str, found: os.stat_result) -> bool:
        nonlocal left
        if workspace.hides(workspace.root / path):
            return True
        left -= found.st_size if stat.S_ISREG(found.st_mode) else 0
        if left < 0:
            raise ToolError(
                f"It was not run: there is no sandbox, and the workspace has more than "
                f"{MOST_COPIED_BYTES >> 20} MB, too much for the copy that it would run on. "
                "`file: NAME` or a question can be checked instead."
            )
        return False

    try:
        with opened_folder(workspace, workspace.root) as folder:
            copy_entry(folder, ".", target, left_out)
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else str(error)[:300]
        raise ToolError(
            f"It was not run: there is no sandbox, and the workspace could not be copied ({why})."
        ) from error
