"""The backends of this machine (bubblewrap, docker, nono, no sandbox), and the choice of one."""

import contextlib
import errno
import importlib
import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import psutil

from openmanus_graph.backends.sandbox.backend import LAUNCHER, Backend, Launch, Layout, Probe
from openmanus_graph.backends.sandbox.held_network import HeldNetwork
from openmanus_graph.backends.sandbox.ssh import Ssh
from openmanus_graph.errors import ConfigError
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
_USERNS = (
    "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0 user.max_user_namespaces=10000"
)
_START_S = 60.0  # a machine that is short of memory needs many seconds
_ETC_NETWORK = ("resolv.conf", "hosts", "gai.conf")


class _Mounted(Backend):
    """Shows programs a root of mounts, where the scratch folders have fixed paths."""

    holds_processes = True

    def inside(self, path: Path) -> str:
        layout = self._layout
        for outside, place in ((layout.tmp, "/tmp"), (layout.home, HOME), (layout.run, RUN)):
            if path.is_relative_to(outside):
                return str(Path(place) / path.relative_to(outside))
        return str(path)


class Bwrap(_Mounted):
    """Runs programs in separate namespaces (Linux), which end with their first process."""

    name = "bwrap"

    def __init__(self, layout: Layout, settings: SandboxSettings) -> None:
        super().__init__(layout, settings)
        in_user = () if root_needs_powers(layout.workspace.root) else ("--unshare-user",)
        self.network = HeldNetwork(in_user)
        _end_orphans(layout.workspace.root)

    @property
    def shares_network(self) -> bool:
        return self._settings.network == "any"

    def new_socket(self, family: int) -> socket.socket:
        return (
            super().new_socket(family) if self.shares_network else self.network.new_socket(family)
        )

    def launch(self, argv: Sequence[str], env: Mapping[str, str], output: int | None) -> Launch:
        """Return the command. The caller passes the environment: see `scratch.py`."""
        # A single command that only reads gets an empty network instead.
        joins = not (self.shares_network or self._layout.read_only)
        options = bwrap_argv(self._layout, self._settings, in_network=joins)
        # The launcher binds its life to ours until bubblewrap does.
        confine = {"no_keys": True, "die_with": os.getpid()}
        confine |= {"network": self.network.holder()} if joins else {}
        return Launch((*options, "--new-session", "--", *argv), confine)

    def close(self) -> None:
        """End the network, and sandboxes that were killed while they started."""
        self.network.close()
        _end_orphans(self._layout.workspace.root)

    @classmethod
    def probe(cls, settings: SandboxSettings) -> Probe:
        """Run a program in a real sandbox."""
        fix = "sudo apt-get install -y bubblewrap"
        program = shutil.which("bwrap")
        if program is None:
            return Probe("bwrap", False, "bubblewrap is not installed", fix)
        # By the launcher, as for all programs: a bubblewrap that must be setuid may do no more.
        argv = [*LAUNCHER, json.dumps({"no_keys": True}), program, "--unshare-all"]
        argv += ["--die-with-parent", *_system(), "--proc", "/proc", "--dev", "/dev", "--", "true"]
        try:
            with signals_held():
                done = subprocess.run(
                    argv, capture_output=True, timeout=_START_S, env={}, start_new_session=True
                )
        except (OSError, subprocess.TimeoutExpired) as error:
            busy = not isinstance(error, FileNotFoundError | PermissionError)
            return Probe("bwrap", False, f"bubblewrap does not start: {error}", fix, busy)
        if done.returncode:
            why = done.stderr.decode(errors="replace").strip()[-300:]
            # Memory or processes may have run out, which others will free.
            busy = any(os.strerror(code) in why for code in (errno.EAGAIN, errno.ENOMEM))
            detail = f"bubblewrap may not make namespaces: {why}"
            return Probe("bwrap", False, detail, _USERNS, busy)
        return Probe("bwrap", True, "bubblewrap works")


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


def bwrap_argv(layout: Layout, settings: SandboxSettings, *, in_network: bool = False) -> list[str]:
    """Return the command line up to the program. It keeps the network if it is `in_network`."""
    root, shared = layout.workspace.root, in_network or settings.network == "any"
    argv = [shutil.which("bwrap") or "bwrap", "--die-with-parent", *_namespaces(root, shared)]
    argv += [*_system(), *_etc(settings.network == "any", layout.scratch / "etc")]
    argv += [*_kernel_files(), "--dev", "/dev"]
    argv += ["--size", str(settings.memory_mb << 20), "--tmpfs", "/dev/shm", "--dir", "/var/tmp"]
    argv += ["--bind", str(layout.tmp), "/tmp", "--bind", str(layout.home), HOME]
    argv += ["--bind", str(layout.run), RUN]
    for place, flags in sorted(_places(layout), key=lambda item: len(item[0].parts)):
        argv += [*flags, str(place)]
    for hidden in filter(Path.is_dir, _masked(layout)):  # files written there would be lost
        argv += ["--remount-ro", str(hidden)]
    return [*argv, "--remount-ro", "/", "--chdir", str(root)]


def _namespaces(root: Path, shared_network: bool) -> list[str]:
    """Return namespaces and capabilities. With all of them, root could undo the mounts."""
    if root_needs_powers(root):
        # In a user namespace root loses its power over the files of other users, and with it the
        # workspace if it was mounted into a container. These capabilities are real ones.
        powers = ("CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_CHOWN")
        kept = [word for power in powers for word in ("--cap-add", power)]
        spaces = ["--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try"]
        spaces += [] if shared_network else ["--unshare-net"]
        return [*spaces, "--cap-drop", "ALL", *kept]
    network = ["--share-net"] if shared_network else []
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
    for path in map(Path, _SYSTEM):
        if path.is_symlink():
            argv += ["--symlink", str(path.readlink()), str(path)]
        elif path.is_dir():
            argv += ["--ro-bind", str(path), str(path)]
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
    for inside, here, writable in layout.git:
        places.append((Path(inside), ["--bind" if writable else "--ro-bind", str(here)]))
    for path in (*layout.prefixes, *layout.readable):
        if not path.is_relative_to("/usr"):
            places.append((path, ["--ro-bind-try", str(path)]))
    for path in _masked(layout):
        places.append((path, ["--tmpfs"] if path.is_dir() else ["--ro-bind", "/dev/null"]))
    return places


def _masked(layout: Layout) -> list[Path]:
    """Return the protected files and folders inside the workspace that exist."""
    inside_root = (p for p in layout.workspace.protected if p.is_relative_to(layout.workspace.root))
    return [path for path in inside_root if path.exists()]


class Docker(_Mounted):
    """Runs each program in a separate container, by the docker or podman command.

    The image's Python must have ipykernel.
    """

    name = "docker"
    hides_ports = True  # each program is in a separate container

    @property
    def python(self) -> str:
        return "python3"

    def launch(self, argv: Sequence[str], env: Mapping[str, str], output: int | None) -> Launch:
        """Return the command. Killing the client leaves the container, hence `kill`."""
        name = f"openmanus-{uuid.uuid4().hex[:12]}"
        options = container_options(self._layout, self._settings, env)
        command = (_engine() or "docker", "run", "--name", name, "-i", *options)
        remove = partial(subprocess.run, [command[0], "rm", "--force", name], capture_output=True)
        return Launch((*command, self._settings.image, *argv), kill=remove)

    @classmethod
    def probe(cls, settings: SandboxSettings) -> Probe:
        """Ask the engine if it has the image. Nothing is downloaded."""
        program = _engine()
        if program is None:
            return Probe("docker", False, "neither docker nor podman is installed", "install one")
        try:
            inspect = [program, "image", "inspect", settings.image]
            done = subprocess.run(inspect, capture_output=True, timeout=20, start_new_session=True)
        except (OSError, subprocess.TimeoutExpired) as error:
            detail = f"the engine does not answer: {error}"
            return Probe("docker", False, detail, "start the engine")
        if done.returncode == 0:
            return Probe("docker", True, f"image {settings.image} is here; it needs ipykernel")
        said = done.stderr.decode(errors="replace").strip().splitlines()
        recipe = f"printf 'FROM {settings.image}\\nRUN pip install ipykernel\\n'"
        build = f"{recipe} | {program} build -t manus -"
        detail = said[-1] if said else f"no image {settings.image}"
        return Probe("docker", False, detail, f"{build}, then set the image to manus")


def container_options(
    layout: Layout, settings: SandboxSettings, environment: Mapping[str, str]
) -> list[str]:
    workspace = layout.workspace
    root, python = str(workspace.root), str(workspace.python)
    options = ["--rm", "--init", "--cap-drop=ALL", "--security-opt=no-new-privileges"]
    options += ["--user", f"{os.getuid()}:{os.getgid()}", "--workdir", root]
    options += ["--memory", f"{settings.memory_mb}m", "--pids-limit", str(settings.processes)]
    options += ["--network", "none"] if settings.network == "off" else []
    mode = ":ro" if layout.read_only else ""
    mounts = [(root, root + mode), (python, python + mode), (str(layout.tmp), "/tmp")]
    for source, target in [*mounts, (str(layout.home), HOME), (str(layout.run), RUN)]:
        options += ["--volume", f"{source}:{target}"]
    for place in (workspace.outputs, *workspace.former_outputs()):
        options += ["--volume", f"{workspace.outputs}:{place}:ro"]
    for inside, here, writable in layout.git:
        options += ["--volume", f"{here}:{inside}{'' if writable else ':ro'}"]
    for path in _masked(layout):
        options += ["--tmpfs", str(path)] if path.is_dir() else ["--volume", f"/dev/null:{path}:ro"]
    kept = {key: value for key, value in environment.items() if key != "PATH"}
    kept |= {"PIP_USER": "1", "PYTHONUSERBASE": f"{python}/container"}
    for key, value in kept.items():
        options += ["--env", f"{key}={value}"]
    return options


def _engine() -> str | None:
    return shutil.which("docker") or shutil.which("podman")


_FOLDERS = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/nix/store", "/etc/alternatives",
    "/etc/fonts", "/etc/libreoffice", "/etc/ssl/certs", "/etc/ld.so.conf.d", "/etc/terminfo",
    "/etc/pki/tls/certs", "/etc/pki/ca-trust/extracted", "/System", "/Library/Frameworks",
    "/Library/Fonts", "/Library/Developer", "/opt/homebrew", "/private/var/db",
)  # fmt: skip
_FILES = (
    "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/localtime", "/etc/nsswitch.conf", "/etc/passwd",
    "/etc/group", "/etc/mime.types", "/etc/os-release", "/etc/ssl/openssl.cnf", "/dev/urandom",
    "/dev/random",
)  # fmt: skip
_FILE_POWERS = 0b1011  # CAP_CHOWN, CAP_DAC_OVERRIDE and CAP_FOWNER
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/tty", "/dev/ptmx")


class Nono(Backend):
    """Allows programs certain paths: Landlock on Linux, Seatbelt on macOS, by the nono-py package.

    Programs see the host's folders and processes. Landlock has no exceptions below an allowed
    folder: it cannot hide protected files inside the workspace.
    """

    name = "nono"

    def launch(self, argv: Sequence[str], env: Mapping[str, str], output: int | None) -> Launch:
        """Return the command. `launch.py` applies the rules to itself first."""
        layout, workspace = self._layout, self._layout.workspace
        outputs = workspace.readable_outputs()
        own = (workspace.root, workspace.python)
        read, write = (own, ()) if layout.read_only else ((), own)
        git = [here for _, here, writable in layout.git if not writable]
        shown = (*layout.prefixes, *layout.readable, *outputs, *read, *git)
        folders = [*_FOLDERS, *map(str, shown)]
        resolving = () if self._settings.network == "off" else _ETC_NETWORK
        files = [*_FILES, *(f"/etc/{name}" for name in resolving)]
        rules = {
            "package": str(_package()),
            "read": [path for path in (*folders, *files) if Path(path).exists()],
            "write": [
                *(str(path) for path in (*write, layout.scratch)),
                *(path for path in (*_DEVICES, "/dev/shm") if Path(path).exists()),
            ],
            "deny": [str(path) for path in _masked(layout)] if sys.platform == "darwin" else [],
            "shown": [str(path) for path in (*outputs, workspace.python)],
            "network": self._settings.network != "off",
        }
        # Landlock protects files only: with all capabilities root could load a kernel module.
        powers = _FILE_POWERS if root_needs_powers(workspace.root) else 0
        confine = {"nono": rules, "no_keys": True, "powers": powers, "die_with": os.getpid()}
        return Launch(tuple(argv), confine)

    @classmethod
    def probe(cls, settings: SandboxSettings) -> Probe:
        """Ask the package whether this system supports it."""
        if _package() is None:
            fix = "pip install 'openmanus-graph[nono]'"
            return Probe("nono", False, "the package nono-py is not installed", fix)
        nono_py: Any = importlib.import_module("nono_py")
        return Probe("nono", nono_py.is_supported(), str(nono_py.support_info().details))

    @property
    def warning(self) -> str:
        hidden = _masked(self._layout)
        if not hidden or sys.platform == "darwin":
            return ""
        names = ", ".join(self._layout.workspace.relative(path) for path in hidden)
        return f"The nono sandbox cannot hide {names} inside the workspace; bubblewrap can."


def _package() -> Path | None:
    spec = importlib.util.find_spec("nono_py")
    return Path(spec.origin).parents[1] if spec and spec.origin else None


class Unconfined(Backend):
    """Runs programs as the user who started us, without confinement."""

    name = "none"

    @property
    def warning(self) -> str:
        return (
            "No sandbox: Python and shell commands can read and change every file of this account "
            "and reach the network. `openmanus doctor --fix` installs one."
        )

    @cached_property  # read once: all programs of a thread have the same
    def path(self) -> Sequence[str]:  # pyright: ignore[reportIncompatibleMethodOverride]  # it is read alike
        return [os.environ["PATH"]] if "PATH" in os.environ else []

    def launch(self, argv: Sequence[str], env: Mapping[str, str], output: int | None) -> Launch:
        """Return the command. It ends when we end, if the system supports that."""
        return Launch(tuple(argv), {"die_with": os.getpid()})

    @classmethod
    def probe(cls, settings: SandboxSettings) -> Probe:
        return Probe("none", True, "always works, and hides nothing")


_BACKENDS: dict[str, type[Backend]] = {
    kind.name: kind for kind in (Bwrap, Nono, Docker, Ssh, Unconfined)
}


def probes(settings: SandboxSettings) -> dict[str, Callable[[], Probe]]:
    """Return the probes of all backends, best first. Each takes some tens of milliseconds."""
    return {name: partial(kind.probe, settings) for name, kind in _BACKENDS.items()}


def reaches_network(name: str, settings: SandboxSettings) -> bool:
    """Return True if programs of that backend reach the network, allowed or not."""
    return settings.network != "off" or name == "none"


def backend_name(settings: SandboxSettings) -> str:
    """Return the backend that the settings name, or for `auto` the best that works. Blocks.

    Raises ConfigError if a busy machine does not tell: then nothing weaker is taken.
    """
    if settings.mode != "auto":
        return settings.mode
    # A container engine is used only if the settings name it: its image has other packages.
    for name in ("bwrap", "nono"):
        found = _BACKENDS[name].probe(settings)
        if found.undecided:
            raise ConfigError(
                f"This machine is too busy to start a sandbox: {found.detail}. Nothing was run. "
                "Try again when it has less to do."
            )
        if found.works:
            return name
    return "none"


def require_sandbox(settings: SandboxSettings) -> None:
    """Raise ConfigError if a named mode does not work here. `auto` always finds one. Blocks."""
    if settings.mode == "auto":
        return
    found = _BACKENDS[settings.mode].probe(settings)
    if not found.works:
        fix = f"`{found.fix}` or " if found.fix else ""
        raise ConfigError(
            f"sandbox = {settings.mode!r} does not work here: {found.detail}. Run {fix}"
            "`openmanus doctor --fix`, or choose auto, bwrap, nono, docker, ssh or none."
        )


def choose_sandbox(settings: SandboxSettings) -> type[Backend]:
    """Choose the mode that is set, or the best that works. Raises ConfigError. Blocks."""
    require_sandbox(settings)
    return _BACKENDS[backend_name(settings)]
