"""Which programs a shell text really starts: bash runs it in the sandbox, among stand-ins.

`rm` is the denied program: whatever is called `rm` there only logs that it was started. Programs
that would need another host, another user or a terminal are played by scripts that run what the
real ones would. Many texts share one sandbox: each has an empty folder of its own, and none
begins before the last process of the one before has ended.
"""

import json
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from openmanus_graph.backends.sandbox.backend import Layout
from openmanus_graph.backends.sandbox.choose import bwrap_argv
from openmanus_graph.runtime.workspace import Workspace
from openmanus_graph.state.settings import SandboxSettings
from tests.support.limits import BACKSTOP_S

_REAL = """
    awk base64 bash cat chmod cp cut date env expr false find flock git grep head install ln ls make
    mkdir mv nice node nohup perl printf python3 rev script sed setsid sh sleep sort stdbuf tail tar
    tee timeout touch tr true uniq vim wc which xargs yes
"""
_SKIP = """#!/bin/bash
while [[ $1 == -* || $1 == *=* ]]; do
  [[ $1 == -- ]] && { shift; break; }
  case $1 in *=*) shift ;; %s) shift 2 ;; *) shift ;; esac
done
"""
_PLAYED = {
    "rm": "#!/bin/sh\necho rm >> /tmp/started\n",
    "sudo": _SKIP % "-[ughpCDRTrt]|--user|--group" + '[[ $# -gt 0 ]] && exec "$@"\n',
    "doas": _SKIP % "-[uaC]" + 'exec "$@"\n',
    "busybox": '#!/bin/bash\nexec "$@"\n',
    "chroot": _SKIP % "--userspec" + 'shift; exec "$@"\n',
    "ionice": _SKIP % "-[cnpPu]" + 'exec "$@"\n',
    "parallel": _SKIP
    % "-j"
    + 'c=(); while [[ $# -gt 0 && $1 != ::: ]]; do c+=("$1"); shift; done; '
    'shift; for a; do eval "${c[*]} $a"; done\n',
    "ssh": _SKIP % "-[pilFo]" + 'shift; if (($#)); then exec bash -c "$*"; else exec bash; fi\n',
    "su": '#!/bin/bash\nwhile (($#)); do case $1 in -c) exec bash -c "$2" ;; '
    '--command=*) exec bash -c "${1#*=}" ;; esac; shift; done; exec bash\n',
    "watch": _SKIP % "-n" + 'exec sh -c "$*"\n',
    "docker": "#!/bin/sh\nexit 0\n",
}
_DRIVER = Path(__file__).with_name("shell_driver.py")


@dataclass(frozen=True)
class Started:
    """What became of one text."""

    denied: bool
    """Whether the denied program was started."""
    parses: bool
    """Whether bash can parse the text (`bash -n`)."""


class ShellOracle:
    """Runs texts in one workspace's sandbox."""

    def __init__(self, folder: Path) -> None:
        """Prepare the workspace, with the programs that there are.

        Args:
            folder: Where; empty.
        """
        root, scratch = folder / "work", folder / "scratch"
        for name in ("tmp", "home", "run", "etc"):
            (scratch / name).mkdir(parents=True)
        workspace = Workspace(root, folder / "private")
        workspace.prepare()
        workspace.python.mkdir(parents=True, exist_ok=True)
        programs = root / "programs"
        programs.mkdir(parents=True)
        for name in _REAL.split():
            found = shutil.which(name, path="/usr/bin:/bin")
            assert found, f"{name} is needed for this test"
            (programs / name).symlink_to(found)
        for name, text in _PLAYED.items():
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)
        shutil.copy(_DRIVER, root / "driver.py")
        layout = Layout(workspace, scratch, Path("/usr/bin/python3"))
        stand_in = ["--ro-bind", str(programs / "rm"), "/usr/bin/rm"]
        self._argv = [
            *bwrap_argv(layout, SandboxSettings(mode="bwrap")),
            *stand_in,
            "--new-session",
            "--",
        ]
        self._root, self._programs = root, programs

    def run(self, texts: Sequence[str]) -> list[Started]:
        """Run texts one after another; return what each started."""
        given = self._root / "texts.json"
        given.write_text(json.dumps(list(texts)))
        done = subprocess.run(
            [*self._argv, "/usr/bin/python3", "-I", str(self._root / "driver.py"), str(given)],
            env={"PATH": str(self._programs), "HOME": "/home/manus", "LANG": "C.UTF-8"},
            stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=BACKSTOP_S + len(texts), check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-2000:]
        return [Started(*one) for one in json.loads((self._root / "results.json").read_text())]
