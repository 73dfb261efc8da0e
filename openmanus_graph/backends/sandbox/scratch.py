"""What a thread's programs get: variables, a scratch folder (temporary files, home), and a Python.

The variables are an allow-list, never a cleaned copy of ours. The sandbox's own process gets the
same ones, because programs inside can read them from `/proc/1/environ`.
"""

import configparser
import contextlib
import fcntl
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO
from urllib.parse import unquote, urlsplit

from filelock import FileLock

from openmanus_graph.backends.sandbox.git import identity, identity_file
from openmanus_graph.runtime.atomic_files import remove_tree
from openmanus_graph.runtime.workspace import Workspace, opened_folder, put_file
from openmanus_graph.safety.open_beneath import located, read_beneath

_ALWAYS = ("TZ", "LANG", "LC_ALL", "LC_CTYPE")
_NETWORK = (
    "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_CERT", "PIP_TRUSTED_HOST",
    "PIP_DEFAULT_TIMEOUT", "PIP_RETRIES", "PIP_NO_INDEX", "PIP_PREFER_BINARY",
    "UV_INDEX", "UV_INDEX_URL", "UV_DEFAULT_INDEX", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS",
    "UV_SYSTEM_CERTS", "UV_NATIVE_TLS", "UV_INSECURE_HOST", "SSL_CERT_FILE", "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO",
)  # fmt: skip
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")
_PROXIES = (*PROXIES, "NO_PROXY", "no_proxy", "PIP_PROXY")
_FIXED = {
    "TERM": "dumb",
    "NO_COLOR": "1",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_CONFIG_NOSYSTEM": "1",  # no sandbox shows it, and git fails if it may not read it
    "DEBIAN_FRONTEND": "noninteractive",
    "PIP_NO_INPUT": "1",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PIP_ROOT_USER_ACTION": "ignore",
    "PYTHONUTF8": "1",
}
NO_RETRIES = {"PIP_RETRIES": "0", "UV_OFFLINE": "1"}
"""For programs without network: retries would only take minutes."""
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_CREDENTIALS = re.compile(r"(?<=//)[^/@\s]+@")


def sandbox_environment(
    *,
    home: str,
    tmp: str,
    path: str,
    network: bool,
    host: Mapping[str, str],
    own_proxy: bool = False,
) -> dict[str, str]:
    """Return the environment for these paths inside. `path` comes first in PATH.

    With `own_proxy`, programs go through a proxy of ours instead of the host's.
    """
    names = (*_ALWAYS, *(_NETWORK if network else ()))
    names += () if own_proxy or not network else _PROXIES
    environment = {name: _without_credentials(host[name]) for name in names if name in host}
    environment.setdefault("LANG", "C.UTF-8" if sys.platform != "darwin" else "en_US.UTF-8")
    environment |= _FIXED | {"HOME": home, "TMPDIR": tmp, "PATH": f"{path}:{SYSTEM_PATH}"}
    environment |= {"MPLCONFIGDIR": f"{home}/.config/matplotlib", "MPLBACKEND": "Agg"}
    environment |= {"PIP_CONFIG_FILE": f"{home}/.config/pip/pip.conf"}
    return environment


def network_settings(host: Mapping[str, str]) -> dict[str, str]:
    """Return the network settings of the host's environment, unchanged."""
    return {name: host[name] for name in (*_NETWORK, *_PROXIES) if name in host}


def _without_credentials(value: str) -> str:
    """Remove user names and passwords from the addresses in a text."""
    return _CREDENTIALS.sub("", value)


def pip_configuration(host: Mapping[str, str], prefix: Path, home: Path) -> str:
    """Merge pip's configuration files, in pip's order, without credentials."""
    merged = configparser.RawConfigParser(strict=False)
    places = [
        Path("/etc/pip.conf"),
        home / ".pip" / "pip.conf",
        home / ".config" / "pip" / "pip.conf",
        home / "Library" / "Application Support" / "pip" / "pip.conf",
        prefix / "pip.conf",
        Path(host.get("PIP_CONFIG_FILE", os.devnull)),
    ]
    for place in places:
        try:
            merged.read_string(place.read_text("utf-8"))
        except (OSError, UnicodeDecodeError, configparser.Error):
            continue  # missing, or pip would refuse it too
    lines: list[str] = []
    for section in merged.sections():
        lines.append(f"[{section}]")
        for key, value in merged.items(section):
            lines.append(f"{key} = " + _without_credentials(value).replace("\n", "\n    "))
    return "\n".join(lines) + "\n"


def local_files(texts: Iterable[str], home: Path) -> list[Path]:
    """Return the certificates and package folders that network settings name.

    Folders that contain the user's home or the whole system are left out.
    """
    found: list[Path] = []
    for word in (word for text in texts for word in text.split()):
        path = Path(unquote(urlsplit(word).path)) if word.startswith("file:") else Path(word)
        if not path.is_absolute() or not path.exists() or len(path.parts) < 3:
            continue
        if not home.is_relative_to(path):
            found.append(path)
    return found


_SCRATCH_PREFIX = "openmanus-"
PARENT_PACKAGES = "_parent.pth"
"""The file of a thread's environment that adds our own packages."""
_MARKER = "pyvenv.cfg"
_MAX_TMP_CHARS = 40
"""Characters of the temporary folder's path: a socket's path ends at 107."""
_PIP_SCRIPT = '#!/bin/sh\nexec "$(dirname "$0")/python" -m pip "$@"\n'
_FONT_PACKAGE = "notojp_matplotlib"
"""Of the `data` extra: Noto Sans CJK (OFL), with the glyphs of all these languages."""
_PACKAGED_FONT = "Noto Sans CJK JP"
_MAC_FONTS = "PingFang SC, Hiragino Sans GB, Arial Unicode MS"
_CHINESE_FONTS = (
    "Noto Sans CJK SC", "Noto Sans SC", "Source Han Sans SC", "WenQuanYi Micro Hei",
    "WenQuanYi Zen Hei", "Microsoft YaHei", "SimHei", "Droid Sans Fallback",
)  # fmt: skip


def make_scratch() -> IO[bytes]:
    """Create the folder; return the lock file in it, which is held while it is used."""
    base = Path(tempfile.gettempdir())
    base = base if len(str(base)) <= _MAX_TMP_CHARS else Path("/tmp")
    _remove_abandoned(base)
    scratch = Path(tempfile.mkdtemp(prefix=_SCRATCH_PREFIX, dir=base))
    lock = (scratch / "lock").open("wb")
    fcntl.flock(lock, fcntl.LOCK_EX)
    for name in ("tmp", "home", "run", "etc"):
        (scratch / name).mkdir()
    (scratch / "tmp").chmod(0o1777)
    return lock


def _remove_abandoned(base: Path) -> None:
    """Remove the folders of processes that were killed: their locks are free."""
    for folder in base.glob(_SCRATCH_PREFIX + "*"):
        with contextlib.suppress(OSError):
            status = folder.stat()
            if status.st_uid != os.getuid() or time.time() - status.st_mtime < 60:
                continue  # another user's, or not locked yet
            with (folder / "lock").open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove_folder(folder)


def fill_scratch(
    scratch: Path, workspace: Path, host: Mapping[str, str], *, network: bool
) -> list[Path]:
    """Write the files for programs; return the files of the host that their network needs.

    `workspace` is where programs run, `host` our own environment.
    """
    user, group = os.getuid(), os.getgid()
    root = "root:x:0:0:root:/home/manus:/bin/bash\n"
    manus = f"manus:x:{user}:{group}::/home/manus:/bin/bash\n" if user else ""
    etc = scratch / "etc"
    (etc / "passwd").write_text(root + manus + "nobody:x:65534:65534::/:/bin/false\n")
    groups = f"manus:x:{group}:\n" if group else ""
    (etc / "group").write_text(f"root:x:0:\n{groups}nogroup:x:65534:\n")
    (etc / "hosts").write_text("127.0.0.1 localhost\n::1 localhost\n")
    make_chart_settings(scratch / "home")
    # In the home, so that the repository's own name and e-mail come first, as for the user.
    (scratch / "home" / ".gitconfig").write_text(identity_file(identity(workspace)), "utf-8")
    if not network:
        return []
    configuration = pip_configuration(host, Path(sys.prefix), Path.home())
    place = scratch / "home" / ".config" / "pip"
    place.mkdir(parents=True)
    (place / "pip.conf").write_text(configuration)
    values = map(_without_credentials, network_settings(host).values())
    return local_files((configuration, *values), Path.home())


def remove_folder(folder: Path) -> None:
    """Remove a folder, even if programs inside have taken away rights."""
    with contextlib.suppress(OSError):
        above = os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            remove_tree(above, folder.name)
        finally:
            os.close(above)


def make_python(folder: Path) -> Path:
    """Create the environment if it is missing; return its interpreter.

    Takes a lock: the steps of a plan share a workspace and start at the same time.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_suffix(".lock")):
        lines = [f"home = {base_python().parent}", "include-system-site-packages = false"]
        configuration = "\n".join([*lines, f"version = {sys.version.split()[0]}", ""])
        parents = "".join(
            f"import site; site.addsitedir({str(path)!r})\n" for path in package_folders()
        )
        files = {
            "bin/pip": _PIP_SCRIPT,
            "bin/pip3": _PIP_SCRIPT,
            f"{site_packages(Path())}/{PARENT_PACKAGES}": parents,
            _MARKER: configuration,
        }
        has = {name: _content(folder, name) for name in files}
        if has[_MARKER] not in (None, configuration):
            remove_folder(folder)  # made for another Python, whose packages would not load
        elif has == files and _has_link(folder):
            return folder / "bin" / "python"
        try:
            _write_python(folder, files)
        except (NotADirectoryError, IsADirectoryError):  # a program has put it in the way
            remove_folder(folder)
            _write_python(folder, files)
        return folder / "bin" / "python"


def _content(folder: Path, name: str) -> str | None:
    try:
        data = read_beneath(folder.parent, f"{folder.name}/{name}", 1 << 20, follow=False)
    except OSError:
        return None
    return data.decode("utf-8", "replace")


def _has_link(folder: Path) -> bool:
    with (
        contextlib.suppress(OSError),
        located(folder.parent, folder / "bin" / "python", follow=False) as place,
    ):
        return os.readlink(place.name, dir_fd=place.folder) == str(base_python())
    return False


def _write_python(folder: Path, files: Mapping[str, str]) -> None:
    """Write an environment's files, by descriptors: programs can change the folder meanwhile."""
    place = Workspace(folder.parent, folder.parent)
    with opened_folder(place, folder / "bin", create=True) as binaries:
        for name in ("python", "python3", site_packages(folder).parent.name):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=binaries)
            os.symlink(base_python() if name == "python" else "python", name, dir_fd=binaries)
    for name, text in files.items():
        mode = 0o777 if name.startswith("bin/") else 0o666
        put_file(place, folder / name, text.encode(), mode=mode)


def site_packages(folder: Path) -> Path:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return folder / "lib" / f"python{version}" / "site-packages"


def python_prefixes() -> tuple[Path, ...]:
    """List the folders a program needs to run our Python, under every name they have."""
    places = [Path(sys.prefix), Path(sys.base_prefix), base_python().parent, *package_folders()]
    found = dict.fromkeys(name for place in places for name in (place, place.resolve()))
    # A folder inside another one of the list is left out, but not the end of a chain of links.
    return tuple(p for p in found if not any(p != o and p.is_relative_to(o) for o in found))


def package_folders() -> list[Path]:
    """List the folders our own packages are in."""
    names = ("site-packages", "dist-packages")
    return [Path(path) for path in sys.path if Path(path).name in names and Path(path).is_dir()]


def base_python() -> Path:
    """Name the interpreter below our own environment."""
    return Path(getattr(sys, "_base_executable", sys.executable) or sys.executable)


def make_chart_settings(home: Path) -> None:
    """Write matplotlib's settings into a home, and link the packaged font there."""
    mac = sys.platform == "darwin"
    fonts = home / "Library" / "Fonts" if mac else home / ".local" / "share" / "fonts"
    fonts.mkdir(parents=True, exist_ok=True)
    for font in _packaged_fonts():
        (fonts / font.name).symlink_to(font)
    family = chinese_font()
    # As a further family, not inside font.sans-serif: code that sets that list keeps the fallback.
    families = f"sans-serif, {family}" if family else "sans-serif"
    configuration = home / ".config" / "matplotlib"
    configuration.mkdir(parents=True, exist_ok=True)
    (configuration / "matplotlibrc").write_text(f"font.family: {families}\n")


def chinese_font() -> str:
    """Name the font charts will fall back to, or nothing. Blocks."""
    if _packaged_fonts():
        return _PACKAGED_FONT
    if sys.platform == "darwin":
        return _MAC_FONTS
    program = shutil.which("fc-list")
    if program is None:
        return ""
    try:
        command = [program, ":lang=zh", "family"]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=10, start_new_session=True
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return next((name for name in _CHINESE_FONTS if name in done.stdout), "")


def _packaged_fonts() -> list[Path]:
    """Find the files of the font of the `data` extra."""
    spec = importlib.util.find_spec(_FONT_PACKAGE)
    if spec is None or spec.origin is None:
        return []
    return list((Path(spec.origin).parent / "fonts").glob("*.otf"))
