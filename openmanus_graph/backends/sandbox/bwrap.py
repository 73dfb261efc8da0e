"""The bubblewrap backend: a separate root, made of bind mounts (Linux)."""

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from openmanus_graph.backends.sandbox.backend import LAUNCHER, Launch, Layout, OnThisMachine, Probe
from openmanus_graph.runtime.process import signals_held
from openmanus_graph.state.settings import SandboxSettings

HOME = "/home/manus"
RUN = "/run/openmanus"

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store")
# Of /etc only what programs need to start: no shadow, no keys, no host's configuration.
_ETC = (
    "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "fonts", "localtime", "timezone",
    "locale.alias", "nsswitch.conf", "mime.types", "magic", "os-release", "terminfo", "ssl/certs",
    "ssl/openssl.cnf", "pki/tls/certs", "pki/ca-trust/extracted", "crypto-policies",
    "ca-certificates", "libreoffice", "perl", "protocols", "services",
)  # fmt: skip
_ETC_NETWORK = ("resolv.conf", "hosts", "gai.conf")


class Bwrap(OnThisMachine):
    """Runs programs in separate namespaces, which end with their first process."""

    name = "bwrap"
    holds_processes = True

    def __init__(self, layout: Layout, settings: SandboxSettings) -> None:
        super().__init__(layout, settings)
        _end_orphans(layout.workspace.root)

    def inside(self, path: Path) -> str:
        return inside(self._layout, path)

    def launch(
        self, program: Sequence[str], environment: Mapping[str, str], *, terminal: bool, output: int
    ) -> Launch:
        """Return the command. The caller passes the environment: see `environment.py`."""
        session = () if terminal else ("--new-session",)
        argv = (*bwrap_argv(self._layout, self._settings), *session, "--", *program)
        # The launcher binds its life to ours until bubblewrap does.
        return Launch(argv, {"no_keys": True, "die_with": os.getpid()})

    def close(self) -> None:
        """End sandboxes that were killed while they started: they do not end by themselves."""
        _end_orphans(self._layout.workspace.root)


def _end_orphans(root: Path) -> None:
    """End the rest of sandboxes of this folder whose start was interrupted.

    bubblewrap's first process inside waits for the one outside before it binds its life to it.
    If that one is killed in between, it waits forever.
    """
    for process in psutil.process_iter(["name"]):
        if process.info["name"] == "bwrap":
            with contextlib.suppress(psutil.Error, OSError):
                status = Path(f"/proc/{process.pid}/status").read_text()
                numbers = status.partition("NSpid:")[2].splitlines()[0].split()
                first_inside = len(numbers) > 1 and numbers[-1] == "1"
                parent = process.parent()
                orphaned = parent is None or parent.name() != "bwrap"
                if first_inside and orphaned and str(root) in process.cmdline():
                    process.kill()


def inside(layout: Layout, path: Path) -> str:
    """Map the scratch folders to their fixed paths inside."""
    places = ((layout.tmp, "/tmp"), (layout.home, HOME), (layout.run, RUN))
    for outside, place in places:
        if path.is_relative_to(outside):
            return str(Path(place) / path.relative_to(outside))
    return str(path)


def bwrap_argv(layout: Layout, settings: SandboxSettings) -> list[str]:
    """Return the command line up to the program."""
    root = layout.workspace.root
    argv = [shutil.which("bwrap") or "bwrap", "--die-with-parent", *_namespaces(root, settings)]
    argv += [*_system(), *_etc(settings.network, layout.scratch / "etc")]
    argv += [*_kernel_files(), "--dev", "/dev"]
    argv += ["--size", str(settings.memory_mb << 20), "--tmpfs", "/dev/shm", "--dir", "/var/tmp"]
    argv += ["--bind", str(layout.tmp), "/tmp", "--bind", str(layout.home), HOME]
    argv += ["--bind", str(layout.run), RUN]
    for place, flags in sorted(_places(layout), key=lambda item: len(item[0].parts)):
        argv += [*flags, str(place)]
    for hidden in filter(Path.is_dir, masked(layout)):  # files written there would be lost
        argv += ["--remount-ro", str(hidden)]
    return [*argv, "--remount-ro", "/", "--chdir", str(root)]


def _namespaces(root: Path, settings: SandboxSettings) -> list[str]:
    """Return namespaces and capabilities. With all of them, root could undo the mounts."""
    if root_needs_powers(root):
        # In a user namespace root loses its power over the files of other users, and with it the
        # workspace if it was mounted into a container. These capabilities are real ones.
        powers = ("CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_CHOWN")
        kept = [word for power in powers for word in ("--cap-add", power)]
        spaces = ["--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try"]
        spaces += [] if settings.network else ["--unshare-net"]
        return [*spaces, "--cap-drop", "ALL", *kept]
    network = ["--share-net"] if settings.network else []
    return ["--unshare-all", *network, "--cap-drop", "ALL"]


def root_needs_powers(root: Path) -> bool:
    """Return True if we are root, and the workspace belongs to another user."""
    return os.geteuid() == 0 and root.stat().st_uid != 0


def _kernel_files() -> list[str]:
    """Show /proc. Root may change the whole machine's settings there, without any capability."""
    argv = ["--proc", "/proc"]
    for listed in filter(os.path.exists, ("/proc/keys", "/proc/key-users")):
        argv += ["--ro-bind", "/dev/null", listed]
    # All of it: depending on the kernel, files outside of /proc/sys change the machine too.
    return [*argv, "--remount-ro", "/proc"] if os.geteuid() == 0 else argv


def _system() -> list[str]:
    argv: list[str] = []
    for name in _SYSTEM:
        path = Path(name)
        if path.is_symlink():
            argv += ["--symlink", str(path.readlink()), name]
        elif path.is_dir():
            argv += ["--ro-bind", name, name]
    return argv


def _etc(network: bool, own: Path) -> list[str]:
    argv: list[str] = []
    for name in (*_ETC, *(_ETC_NETWORK if network else ())):
        argv += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    for file in sorted(own.iterdir()) if own.is_dir() else ():
        if not (network and file.name == "hosts"):
            argv += ["--ro-bind", str(file), f"/etc/{file.name}"]
    return argv


def _places(layout: Layout) -> list[tuple[Path, list[str]]]:
    """Return the mounts that are ordered by their depth: the deeper one wins."""
    workspace = layout.workspace
    bind = "--ro-bind" if layout.read_only else "--bind"
    places = [(path, [bind, str(path)]) for path in (workspace.root, workspace.python)]
    outputs = str(workspace.outputs)
    for place in (workspace.outputs, *workspace.former_outputs()):
        places.append((place, ["--ro-bind", outputs]))
    for path in (*layout.prefixes, *layout.readable):
        if not path.is_relative_to("/usr"):
            places.append((path, ["--ro-bind-try", str(path)]))
    for path in masked(layout):
        places.append((path, ["--tmpfs"] if path.is_dir() else ["--ro-bind", "/dev/null"]))
    return places


def masked(layout: Layout) -> list[Path]:
    """Return the protected files and folders inside the workspace that exist."""
    inside_root = (p for p in layout.workspace.protected if p.is_relative_to(layout.workspace.root))
    return [path for path in inside_root if path.exists()]


def probe() -> Probe:
    """Run a program in a real sandbox."""
    fix = "sudo apt-get install -y bubblewrap"
    program = shutil.which("bwrap")
    if program is None:
        return Probe("bwrap", False, "bubblewrap is not installed", fix)
    # By the launcher, as for all programs: a bubblewrap that must be setuid may do no more.
    argv = [*LAUNCHER, json.dumps({"no_keys": True}), program, "--unshare-all"]
    argv += ["--die-with-parent", *_system(), "--proc", "/proc"]
    argv += ["--dev", "/dev", "--", "true"]
    try:
        with signals_held():
            done = subprocess.run(
                argv, capture_output=True, timeout=10, env={}, start_new_session=True
            )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Probe("bwrap", False, f"bubblewrap does not start: {error}", fix)
    if done.returncode:
        why = done.stderr.decode(errors="replace").strip()[-300:]
        return Probe("bwrap", False, f"bubblewrap may not make namespaces: {why}", _USERNS)
    return Probe("bwrap", True, "bubblewrap works")


_USERNS = (
    "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0 user.max_user_namespaces=10000"
)
