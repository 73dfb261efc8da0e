"""One thread's sandbox: its folders, its limits, and the programs it runs."""

import contextlib
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path

from openmanus_graph.backends.sandbox import environment
from openmanus_graph.backends.sandbox.backend import LAUNCHER, Layout
from openmanus_graph.backends.sandbox.choose import choose_sandbox, reaches_network, warning_of
from openmanus_graph.backends.sandbox.forked_python import (
    ForkServer,
    can_fork,
    leave_fork_server,
    use_fork_server,
)
from openmanus_graph.backends.sandbox.limits import make_group, rlimits
from openmanus_graph.backends.sandbox.process_tree import LimitMonitor, Tree
from openmanus_graph.backends.sandbox.remote_program import MARKER
from openmanus_graph.backends.sandbox.scratch import (
    fill_scratch,
    make_python,
    make_scratch,
    python_prefixes,
    remove_folder,
)
from openmanus_graph.errors import ConfigError, ToolError
from openmanus_graph.runtime.events import Emit, notice
from openmanus_graph.runtime.process import signals_held
from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.workspace import Workspace
from openmanus_graph.state.settings import SandboxSettings

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
        choice = choose_sandbox(settings)
        self.settings, self.workspace = settings, workspace
        workspace.prepare()
        self.trees: list[Tree] = []
        self._fork_server: ForkServer | None = None
        self._lock = make_scratch()
        scratch = Path(self._lock.name).parent
        self._host: Mapping[str, str] = {} if choice.elsewhere else os.environ
        network, host = settings.network and not choice.elsewhere, self._host
        pip = fill_scratch(scratch, network=network, host=host, prefix=Path(sys.prefix))
        values = map(environment.without_credentials, environment.network_settings(host).values())
        texts = (pip, *values) if network else ()
        self.layout = Layout(
            workspace=workspace,
            scratch=scratch,
            python=make_python(workspace.python),
            prefixes=python_prefixes(),
            readable=tuple(environment.local_files(texts, Path.home())),
            read_only=read_only,
        )
        try:
            self.backend = choice.make(self.layout, settings)
        except ToolError:  # `close` will not be called
            self._remove_scratch()
            raise
        self.warning = warning_of(choice, self.layout)
        folders = (scratch,) if read_only else (workspace.root, workspace.python, scratch)
        self.monitor = LimitMonitor(folders, settings, self.backend, lambda: list(self.trees))

    @property
    def reaches_network(self) -> bool:
        """Whether programs reach the network, allowed or not."""
        return reaches_network(self.backend.name, self.settings)

    def environment(self) -> dict[str, str]:
        """Return the environment of a program."""
        inside = self.backend.inside
        fixed = {} if self.reaches_network else environment.NO_RETRIES
        return fixed | environment.sandbox_environment(
            home=inside(self.layout.home),
            tmp=inside(self.layout.tmp),
            path=":".join((str(Path(self.backend.python).parent), *self.backend.path)),
            network=self.settings.network,
            host=self._host,
        )

    def start(
        self,
        program: Sequence[str],
        *,
        output: int,
        given: int = subprocess.DEVNULL,
        terminal: int | None = None,
        more: Mapping[str, str] | None = None,
    ) -> Tree:
        """Start a program. It ends when the calling thread ends, so call this from a lasting one.

        Args:
            program: Command, with paths as seen inside.
            output: File descriptor of its standard output and error.
            given: File descriptor of its standard input, unless it has a terminal.
            terminal: File descriptor of a terminal that becomes its controlling one and its input.
            more: Further environment variables.
        """
        # Again, because programs may have removed it.
        make_python(self.workspace.python)
        marker = f"{os.getpid()}-{next(_serial)}"
        variables = self.environment() | dict(more or {})
        if not self.backend.holds_processes:
            variables[MARKER] = marker
        self.backend.send()
        launch = self.backend.launch(
            program, variables, terminal=terminal is not None, output=output
        )
        group = make_group(self.settings)
        limits = rlimits(self.settings, group)
        entries = group.entries if group else []
        spec = {"groups": entries, "limits": limits, "terminal": terminal is not None}
        with signals_held():
            process = subprocess.Popen(
                [*LAUNCHER, json.dumps(spec | dict(launch.confine)), *launch.argv],
                stdin=given if terminal is None else terminal,
                stdout=output,
                stderr=output,
                env=variables,
                cwd=self.workspace.root,
                start_new_session=True,
            )
        tree = Tree(
            process,
            group=group,
            marker=marker,
            holds_processes=self.backend.holds_processes,
            kill=launch.kill,
        )
        self.trees.append(tree)
        return tree

    def start_python(self, arguments: Sequence[str], *, output: int, given: int) -> Tree:
        """Start a Python program with its arguments, forked from a warm process if possible."""
        if can_fork(self):
            self._fork_server = self._fork_server or use_fork_server()
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
        """Kill a program and forget it."""
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
            leave_fork_server()
        self.backend.close()
        self._remove_scratch()

    def _remove_scratch(self) -> None:
        remove_folder(self.layout.scratch)
        self._lock.close()


def warn_of_sandbox(session: Session, emit: Emit) -> None:
    """Notify the user, once per run, of what the session's sandbox does not prevent."""
    warning = sandbox_of(session).warning
    if warning:
        session.cached("sandbox warning", lambda: notice(emit, warning))


def sandbox_of(session: Session) -> Sandbox:
    """Return the session's sandbox. Blocks."""
    return session.handle("sandbox", lambda: Sandbox(session.workspace, session.settings.sandbox))
