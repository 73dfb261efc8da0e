"""One thread's sandbox: its folders, its limits, and the programs it runs.

`run_read_only` runs a single command that can read the workspace but cannot change it.
"""

import ast
import contextlib
import itertools
import json
import os
import re
import shutil
import stat
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.machinery import PathFinder
from pathlib import Path, PurePosixPath

from openmanus_graph.backends.sandbox import forked_python, scratch
from openmanus_graph.backends.sandbox.backend import LAUNCHER, Layout
from openmanus_graph.backends.sandbox.choose import choose_sandbox, reaches_network
from openmanus_graph.backends.sandbox.process_tree import LimitMonitor, Tree, make_group, rlimits
from openmanus_graph.backends.sandbox.remote_program import MARKER
from openmanus_graph.backends.sandbox.worktree import make_git_dir, worktree_at, write_link
from openmanus_graph.errors import ConfigError, ToolError, TrustedToolError
from openmanus_graph.runtime.atomic_files import copy_entry
from openmanus_graph.runtime.events import Emit, notice
from openmanus_graph.runtime.output import shorten_file
from openmanus_graph.runtime.process import signals_held
from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.workspace import Workspace, opened_folder
from openmanus_graph.safety.open_beneath import shown
from openmanus_graph.safety.shell_commands import read_shell_text
from openmanus_graph.state.context import NetworkAccess
from openmanus_graph.state.settings import SandboxSettings

MOST_COPIED_BYTES = 500 << 20
"""Limit of a workspace that is copied because no sandbox protects it."""
_POLL_S = 0.1
_PROGRAM = ("bash", "--noprofile", "--norc", "-c", 'cd -- "$1" && eval "$2"', "bash")
_serial = itertools.count(1)


class Sandbox:
    """Starts programs in a thread's sandbox. A handle of the session; methods block."""

    def __init__(
        self, workspace: Workspace, settings: SandboxSettings, *, read_only: bool = False
    ) -> None:
        """Prepare the folders. If `read_only`, programs may change only the scratch folder.

        Raises:
            ConfigError: The mode does not work here.
            ToolError: Another machine cannot be reached.
        """
        if workspace.root == Path(workspace.root.anchor):
            raise ConfigError("workspace: the root of the file system cannot be a workspace.")
        kind = choose_sandbox(settings)
        self.settings, self.workspace = settings, workspace
        workspace.prepare()
        self.trees: list[Tree] = []
        self._fork_server: forked_python.ForkServer | None = None
        self._lock = scratch.make_scratch()
        folder = Path(self._lock.name).parent
        self._host: Mapping[str, str] = {} if kind.elsewhere else os.environ
        network = settings.network != "off" and not kind.elsewhere
        readable = scratch.fill_scratch(folder, workspace.root, self._host, network=network)
        worktree = worktree_at(workspace.root)
        if worktree is not None:
            make_git_dir(folder / "git", worktree)
            if not read_only:
                mounts_nothing = kind.name in ("nono", "none")
                write_link(worktree, str(folder / "git") if mounts_nothing else worktree.admin)
        self.layout = Layout(
            workspace=workspace,
            scratch=folder,
            python=scratch.make_python(workspace.python),
            prefixes=scratch.python_prefixes(),
            readable=tuple(readable),
            read_only=read_only,
            worktree=worktree,
        )
        try:
            self.backend = kind(self.layout, settings)
        except ToolError:  # `close` will not be called
            self._remove_scratch()
            raise
        self.proxy = ""
        """Address of the only way out of the programs' network; empty if there is none."""
        self.warning = self.backend.warning
        folders = (folder,) if read_only else (workspace.root, workspace.python, folder)
        self.monitor = LimitMonitor(folders, settings, self.backend, lambda: list(self.trees))

    @property
    def reaches_network(self) -> bool:
        """Whether programs reach the network, allowed or not."""
        return reaches_network(self.backend.name, self.settings)

    def environment(self) -> dict[str, str]:
        inside = self.backend.inside
        fixed = {} if self.reaches_network else scratch.NO_RETRIES
        if self.proxy:
            fixed = dict.fromkeys(scratch.PROXIES, self.proxy) | {"NODE_USE_ENV_PROXY": "1"}
        return fixed | scratch.sandbox_environment(
            home=inside(self.layout.home),
            tmp=inside(self.layout.tmp),
            path=":".join((str(Path(self.backend.python).parent), *self.backend.path)),
            network=self.settings.network != "off",
            own_proxy=bool(self.proxy),
            host=self._host,
        )

    def start(
        self,
        program: Sequence[str],
        *,
        output: int,
        given: int = subprocess.DEVNULL,
        direct: bool = False,
    ) -> Tree:
        """Start a program. It ends when the calling thread ends, so call this from a lasting one.

        Args:
            program: Command, with paths as seen inside.
            output: File descriptor of its standard output and error.
            given: File descriptor of its standard input.
            direct: Whether `output` is a pipe that is read at once.
        """
        # Again, because programs may have removed it.
        scratch.make_python(self.workspace.python)
        marker = f"{os.getpid()}-{next(_serial)}"
        variables = self.environment()
        if not self.backend.holds_processes:
            variables[MARKER] = marker
        self.backend.send()
        launch = self.backend.launch(program, variables, None if direct else output)
        group = make_group(self.settings)
        limits = rlimits(self.settings, group)
        spec = {"groups": group.entries if group else [], "limits": limits}
        with signals_held():
            process = subprocess.Popen(
                [*LAUNCHER, json.dumps(spec | dict(launch.confine)), *launch.argv],
                stdin=given,
                stdout=output,
                stderr=output,
                env=variables,
                cwd=self.workspace.root,
                start_new_session=True,
            )
        tree = Tree(process, group, marker, self.backend.holds_processes, launch.kill)
        self.trees.append(tree)
        return tree

    def start_python(self, arguments: Sequence[str], *, output: int, given: int) -> Tree:
        """Start a Python program with its arguments, forked from a warm process if possible."""
        if forked_python.can_fork(self):
            self._fork_server = self._fork_server or forked_python.use_fork_server()
            if self._fork_server is not None:
                tree = self._fork_server.start(self, arguments, output=output, given=given)
                if tree is not None:
                    return tree
        return self.start([self.backend.python, *arguments], output=output, given=given)

    @contextlib.contextmanager
    def call(self, tree: Tree) -> Generator[None, None, None]:
        """Mark the tree as busy while a call runs in it; send changes before, and fetch after.

        If the fetch fails, the tree is ended and its `reason` says why.
        """
        self.backend.send()
        tree.busy = True
        self.monitor.wake()
        try:
            yield
        finally:
            tree.busy = False
            try:
                self.backend.fetch()
            except ToolError as error:
                tree.kill(str(error))

    def end(self, tree: Tree) -> None:
        if tree in self.trees:
            self.trees.remove(tree)
            tree.close()

    def handle_state(self) -> str:
        """Return an empty text: its programs are separate handles."""
        return ""

    def close(self) -> None:
        """End all programs and remove the thread's own folder."""
        self.monitor.close()
        for tree in list(self.trees):
            self.end(tree)
        if self._fork_server is not None:
            forked_python.leave_fork_server()
        self.backend.close()
        self._remove_scratch()

    def _remove_scratch(self) -> None:
        scratch.remove_folder(self.layout.scratch)
        self._lock.close()


def warn_of_sandbox(session: Session, emit: Emit) -> None:
    """Notify the user, once per run, of what the session's sandbox does not prevent."""
    warning = sandbox_of(session).warning
    if warning:
        session.cached("sandbox warning", lambda: notice(emit, warning))


def sandbox_of(session: Session) -> Sandbox:
    """Return the session's sandbox. Blocks."""
    return session.handle("sandbox", lambda: Sandbox(session.workspace, session.settings.sandbox))


def place_of(session: Session, path: str) -> tuple[Workspace, str]:
    """Return the folder and the name in it of a path: the workspace, or the programs' `/tmp`.

    ToolError: The path is in the temporary folder of another machine.
    """
    workspace, sandbox = session.workspace, session.find("sandbox")
    if isinstance(sandbox, Sandbox) and workspace.output_named(path) is None:
        named = PurePosixPath(os.path.normpath(path))
        tmp = sandbox.backend.inside(sandbox.layout.tmp)
        if named.is_relative_to(tmp) and not named.is_relative_to(workspace.root):
            if sandbox.backend.elsewhere:
                raise ToolError(
                    f"{shown(path)} is on another machine. Copy it to the workspace with bash."
                )
            temporary = Workspace(sandbox.layout.tmp, workspace.private)
            return temporary, str(named.relative_to(tmp))
    return workspace, path


_USUAL = (
    "pandas", "polars", "duckdb", "numpy", "scipy", "sklearn", "statsmodels", "sympy", "networkx",
    "matplotlib", "seaborn", "plotly", "altair", "tabulate", "openpyxl", "xlsxwriter", "docx",
    "pptx", "pypdf", "pypdfium2", "reportlab", "PIL", "cv2", "bs4", "lxml", "yaml",
    "requests", "httpx", "cryptography",
)  # fmt: skip
"""Names of modules: tables, mathematics, charts, documents, pictures, web, keys."""


def usual_libraries(settings: SandboxSettings) -> tuple[str, ...]:
    """Return the usual modules that can be imported; none if the Python is not ours. Blocks.

    Packages that a thread has installed are left out.
    """
    return () if settings.mode in ("docker", "ssh") else _installed()


@cache
def _installed() -> tuple[str, ...]:
    """Look for the modules' files, without importing any."""
    folders = [str(folder) for folder in scratch.package_folders()]
    return tuple(name for name in _USUAL if PathFinder.find_spec(name, folders) is not None)


def refuse_install(session: Session, find: Callable[[str], str], text: str) -> None:
    """Raise TrustedToolError if `text` installs packages but the sandbox has no network. Blocks.

    `find` returns the command of a text that installs from the network, or an empty text.
    """
    settings = session.settings.sandbox
    command = find(text) if settings.network == "off" else ""
    if not command or sandbox_of(session).reaches_network:
        return
    there = ", ".join(usual_libraries(settings))
    raise TrustedToolError(
        f"Nothing was run: `{command}` needs the network, which is off for Python and the shell. "
        + (f"Use what is there, such as {there}" if there else "Use what is there")
        + ", or install from files with --no-index. Only the person can switch it on: --network, "
        "or network = true under [sandbox]."
    )


_PIP = re.compile(r"pip[\d.]*")
_PYTHON = re.compile(r"python[\d.]*")
_NEEDS_NO_NETWORK = frozenset({"--no-index", "--help", "-h"})
_LOCAL = re.compile(r"(?!.*://)(?:[.~/].*|.*/.*|.*\.(?:whl|zip|tar\.gz))")
"""A package that is a path."""
_TAKES_VALUE = frozenset({
    "-c", "--constraint", "-t", "--target", "--prefix", "--root", "--python", "-p",
    "--cache-dir", "-f", "--find-links", "--timeout", "--retries", "--progress-bar", "--proxy",
})  # fmt: skip
_MAGIC = re.compile(r"^[ \t]*(?:%(?=pip\b|uv\b)|!!?)[ \t]*(\S.*)$", re.MULTILINE)
"""A line of a notebook's cell that is a command."""


def install_in_shell(text: str) -> str:
    """Return the first command of a shell text that needs the network to install; else nothing."""
    if "pip" not in text:
        return ""
    found = read_shell_text(text).found
    return next((one for one in found if _needs_network(_pip_arguments(one.split()))), "")


def install_in_cell(code: str) -> str:
    """Do the same for a notebook's cell: its lines that begin with `%` or `!`."""
    lines: list[str] = _MAGIC.findall(code)
    found = next((one for line in lines if (one := install_in_shell(line))), "")
    if found:
        with contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError):
            ast.parse(code)
            return ""  # the lines are only text in a string: as commands they are not Python
    return found


def _pip_arguments(words: Sequence[str]) -> Sequence[str]:
    """Return what pip is called with; nothing if the command is not pip."""
    name = PurePosixPath(words[0]).name if words else ""
    if _PIP.fullmatch(name):
        return words[1:]
    if name == "uv" and words[1:2] == ["pip"]:
        return words[2:]
    if _PYTHON.fullmatch(name) and "-m" in words[:-1]:
        at = words.index("-m") + 1
        return words[at + 1 :] if words[at] == "pip" else ()
    return ()


def _needs_network(arguments: Sequence[str]) -> bool:
    """Return True if a call of pip installs something that is not a path."""
    if "install" not in arguments or not _NEEDS_NO_NETWORK.isdisjoint(arguments):
        return False
    after = arguments[arguments.index("install") + 1 :]
    packages = [
        word
        for before, word in zip(("", *after), after, strict=False)
        if not word.startswith("-") and before not in _TAKES_VALUE
    ]
    return not all(map(_LOCAL.fullmatch, packages)) or "-r" in after


@dataclass(frozen=True)
class ReadOnlyResult:
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
        limit_s: Seconds after which it is ended, with all that it has started.
        stop: Ends it when it is set.
        max_chars: Of its output; more is shortened.
        in_empty_folder: Whether it runs in an empty folder instead of the workspace.
        brought: Content of its `$TMPDIR` by name: a file or folder to copy, or bytes.

    Raises:
        ToolError: There is no sandbox, and the workspace cannot be copied.
        ConfigError: The sandbox does not work here.
    """
    # Another machine's network cannot be switched off.
    network: NetworkAccess = "any" if settings.mode == "ssh" else "off"
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
