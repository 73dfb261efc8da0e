"""Decides which folders can be used, and which settings of a folder the user trusts.

A cloned repository may bring a home folder, with threads, checkpoints, options and skills. So a
home folder has a random id, and the user's configuration folder records the place of each id. A
folder at another place, or with another id, is not read until the user trusts it.
`OPENMANUS_HOME` is the user's own choice and needs no trust. A workspace cannot be a system folder
or a folder of several users.
"""

import contextlib
import hashlib
import json
import os
import pwd
import secrets
import shlex
import stat
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, cast

from pydantic import SecretStr

from openmanus_graph.config import files
from openmanus_graph.config.files import LEFT_OUT, Layer, declared, moved_keys
from openmanus_graph.errors import ConfigError
from openmanus_graph.state.setting_declaration import ALWAYS
from openmanus_graph.state.settings import ProxySettings

HOME = ".openmanus"
HOME_VARIABLE = "OPENMANUS_HOME"
ID_FILE = "home-id"
TRUST_FILE = "trusted.json"
_ID_CHARS = 32
_MOST_KNOWN = 1000
"""With more registered places, those that no longer exist are removed."""
_SHOWN = 8
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
_checked = set[Path]()
"""Places that this process has found to be the user's own."""
_unregistered: dict[Path, str] = {}
"""New homes that could not be registered, and why."""


def home_place() -> Path:
    """Return where the home folder is or would be, without reading it."""
    if named := os.environ.get(HOME_VARIABLE):
        return Path(named).expanduser().resolve()
    return Path.cwd() / HOME


def openmanus_home() -> Path:
    """Return the home folder, which may not exist. ConfigError if it is not the user's. Blocks."""
    place = home_place()
    if os.environ.get(HOME_VARIABLE) or place in _checked:
        return place.resolve()
    if place in _unregistered or is_own(place):
        _checked.add(place)
    elif not is_new(place):
        raise ConfigError(
            f"{place} is not registered as yours: it may have come with this folder, or was moved. "
            "Nothing in it was read. If you trust it, run `openmanus trust` here. If not, move "
            f"it away, or set {HOME_VARIABLE} to a folder of your own."
        )
    return place.resolve()


def is_own(place: Path) -> bool:
    """Return True if a folder has a registered id, or is `OPENMANUS_HOME`. Blocks."""
    if os.environ.get(HOME_VARIABLE) and place.resolve() == home_place():
        return True
    known: object = files.read_object(_registry()).get(str(place))
    found = _read_id(place)
    return bool(found) and known == {"id": found, "folder": str(place.resolve())}


def is_new(place: Path) -> bool:
    """Return True if the place does not exist or is an empty folder. Blocks."""
    if place.is_symlink():
        return False
    try:
        with os.scandir(place) as entries:
            return next(entries, None) is None
    except FileNotFoundError:
        return True
    except OSError:  # no folder, or one that cannot be read
        return False


def untrusted_home() -> Path | None:
    """Return the working folder's `.openmanus` if it needs trust. Blocks."""
    with contextlib.suppress(FileNotFoundError):
        place = Path.cwd() / HOME
        if not is_new(place) and not is_own(place):
            return place
    return None


def trust_home(place: Path) -> None:
    """Register a home folder as the user's own, with a new id. Blocks. ConfigError if it cannot."""
    if not place.is_dir():
        raise ConfigError(f"{place} is not a folder. Move it away.")
    try:
        with contextlib.suppress(FileNotFoundError):
            (place / ID_FILE).unlink()
        _give_id(place)
    except OSError as error:
        raise ConfigError(f"{place} cannot be written: {error.strerror}.") from error


def describe_home(place: Path) -> str:
    """Return a short list of a home folder's content, without reading any file. Blocks."""
    try:
        names = sorted(f"{one.name}/" if one.is_dir() else one.name for one in place.iterdir())
    except OSError as error:
        return f"it cannot be read: {error.strerror}"
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    where = f" (a link to {place.resolve()})" if place.is_symlink() else ""
    return f"{', '.join(names[:_SHOWN])}{more}{where}"


def home_warnings(place: Path) -> tuple[str, ...]:
    if os.environ.get(HOME_VARIABLE):
        return ()
    why = _unregistered.get(place)
    if why is None and is_new(place):
        folder = files.config_home()
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
        if not (folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)):
            why = f"{_registry()} cannot be written."
    if why is None:
        return ()
    return (
        f"The new folder {place} could not be registered as yours: {why} The next command will "
        f"refuse it. Set {HOME_VARIABLE}={place} to keep using it.",
    )


def make_folder(folder: Path) -> None:
    """Make a folder in a home, or a home itself; a new home is registered. Blocks. OSError."""
    home = next((one for one in (folder, *folder.parents) if one.name == HOME), None)
    if home is not None and is_new(home):
        home.mkdir(parents=True, exist_ok=True)
        try:
            _give_id(home)
        except ConfigError as error:
            _unregistered[home] = str(error)
        overlook(home)
    folder.mkdir(parents=True, exist_ok=True)


def write_once(path: Path, text: str) -> None:
    """Write a private file unless there is one. Another process may do the same at this moment."""
    if path.exists():
        return
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(text)
        try:
            os.link(draft, path)
        except FileExistsError:
            return  # the other process's is used
        except OSError:
            draft.replace(path)  # a file system without hard links
    finally:
        draft.unlink(missing_ok=True)


def overlook(home: Path) -> None:
    with contextlib.suppress(OSError), (home / ".gitignore").open("x") as ignored:
        ignored.write("*\n")


def _give_id(place: Path) -> None:
    """Register a new id, then write it: a folder with an id that is not registered is refused."""
    name = secrets.token_hex(_ID_CHARS // 2)
    with files.changed_object(_registry(), mode=0o600) as known:
        if len(known) > _MOST_KNOWN:
            for gone in [other for other in known if not Path(other).exists()]:
                del known[gone]
        if known.get(str(place), {}).get("id") and _read_id(place) == known[str(place)]["id"]:
            return  # another process was faster
        known[str(place)] = {"id": name, "folder": str(place.resolve())}
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(place / ID_FILE, flags, 0o600), "w") as file:
            file.write(name)


def _read_id(place: Path) -> str:
    """Return a home's id; empty if it has none that can be read."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(place / ID_FILE, flags), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return ""
            content = file.read(_ID_CHARS + 1)
    except OSError:
        return ""
    return content.decode("ascii", "replace") if len(content) == _ID_CHARS else ""


def _registry() -> Path:
    return files.config_home() / "homes.json"


def refuse_system_folder(workspace: Path) -> None:
    """Raise ConfigError for a workspace that the sandbox needs, or that exposes the machine."""
    try:  # not `$HOME`, which is often set to a folder in a project
        home = Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:  # a container may run as a user without a name
        home = Path("/")
    if any(map(workspace.is_relative_to, _KERNEL)) and not workspace.is_relative_to("/dev/shm"):
        why = "it holds no files, only data of the kernel"
    elif any(map(workspace.is_relative_to, _PROGRAMS)):
        why = "it holds the machine's programs, and the tools may change everything in a workspace"
    elif workspace in {*map(Path, _SHARED), *home.parents}:
        why = "that is the whole machine, and the tools may change everything in a workspace"
    else:
        return
    raise ConfigError(
        f"The workspace cannot be {workspace}: {why}. Choose a folder of your own for the run's "
        "files (--workspace FOLDER, or `workspace` of the Context)."
    )


def require_inside(workspace: Path, real: Path) -> None:
    """Raise ConfigError if a default workspace, resolved, is not in the working folder.

    A cloned repository may bring a link that leads out of it.
    """
    if not real.is_relative_to(Path.cwd().resolve()):
        raise ConfigError(
            f"{workspace} leads out of this folder, to {real}. The link may have come with the "
            "folder, so nothing was run. Remove it, or give the folder that you want with "
            f"--workspace {shlex.quote(str(real))}."
        )


def risky_settings(layer: Layer) -> dict[str, Any]:
    """Return a file's settings that start commands, loosen safety or send data elsewhere."""
    risky: dict[str, Any] = {}
    for name, found in _risky_values(layer).items():
        table, _, key = name.partition(".")
        if table == "browser":
            value = _without_defaults(found) if isinstance(found, ProxySettings) else found
            risky.setdefault(table, {})[key] = value
        elif table == "mcp":
            risky[table] = {server: _without_defaults(one) for server, one in found.items()}
        else:
            risky[name] = found
    return risky


def _without_defaults(record: Any) -> dict[str, Any]:
    """Return the fields of a record that differ from their defaults; secrets are hidden."""
    found: dict[str, Any] = {}
    for each in fields(record):
        value = getattr(record, each.name)
        default = each.default if each.default_factory is MISSING else each.default_factory()
        if value == default or each.name == "name":
            continue
        if is_dataclass(value):
            value = _without_defaults(value)
        elif isinstance(value, dict) and not each.repr:
            value = {name: SecretStr(one) for name, one in cast("dict[str, str]", value).items()}
        elif not each.repr:
            value = SecretStr(cast("str", value))
        found[each.name] = value
    return found


def _risky_values(layer: Layer) -> dict[str, Any]:
    """Return the values that need trust by the names of `declared`, in their order."""
    found = {
        name: key.setting.trust.risky(layer.values[name])
        for name, key in declared().items()
        if key.setting.trust and name in layer.values
    }
    return {name: value for name, value in found.items() if value}


def is_trusted(folder: Path, layer: Layer) -> bool:
    """Return True if the user has trusted exactly these settings of this folder."""
    return is_trusted_content(folder, *_name_and_digest(folder, layer))


def is_trusted_content(folder: Path, name: str, digest: str) -> bool:
    """Return True if the user has trusted a folder's content by this name and digest."""
    known = files.read_object(files.config_home() / TRUST_FILE)  # a damaged file trusts no folder
    return bool(known.get(str(folder), {}).get(name) == digest)


def trust(folder: Path, layer: Layer) -> None:
    """Store that the user trusts the risky settings of this folder."""
    trust_content(folder, *_name_and_digest(folder, layer))


def trust_content(folder: Path, name: str, digest: str) -> None:
    """Store that the user trusts a folder's content by this name and digest."""
    with files.changed_object(files.config_home() / TRUST_FILE, mode=0o644) as known:
        known.setdefault(str(folder), {})[name] = digest


def without_risks(layer: Layer) -> Layer:
    values = dict(layer.values)
    for name in _risky_values(layer):
        key = declared()[name]
        trust = key.setting.trust or ALWAYS
        values[name] = trust.harmless(values[name])
        values |= dict.fromkeys(map(key.of.key, trust.also_left_out))
    return replace(layer, values={key: value for key, value in values.items() if value is not None})


def _name_and_digest(folder: Path, layer: Layer) -> tuple[str, str]:
    assert layer.path is not None  # only files need trust
    # A secret is written out: a server's variable that changes needs trust again.
    plain = json.dumps(
        risky_settings(layer),
        sort_keys=True,
        default=lambda one: one.get_secret_value() if isinstance(one, SecretStr) else str(one),
    )
    name = layer.path.absolute().relative_to(folder).as_posix()
    return name, hashlib.sha256(plain.encode()).hexdigest()


OLD_FILES = (files.OLD_CONFIG, "config/mcp.json")


@dataclass(frozen=True)
class OldFile:
    """How the keys of one file are used: `section.key`, without their values."""

    path: str
    used: tuple[str, ...]
    """Keys with the same meaning here."""
    renamed: Mapping[str, str]
    """Keys that are used, with their names here."""
    left_out: Mapping[str, str]
    """Keys that are ignored, and what to do instead."""
    untrusted: tuple[str, ...]
    """Keys that are used only after `openmanus trust`."""


def old_files(folder: Path) -> Iterator[OldFile]:
    moved = moved_keys()
    for name in OLD_FILES:
        layer = files.read_layer(folder / name, folder)
        if layer is None:
            continue
        keys = _keys(folder / name, folder)
        left_out = {key: LEFT_OUT[key] for key in keys if key in LEFT_OUT}
        for key in layer.unknown:
            of_model = key.startswith("llm.") and key.count(".") == 1
            advice = ". If it configures another model, use --model or vision_model"
            if key.strip("[]") not in LEFT_OUT:
                left_out[key] = "not known here" + (advice if of_model else "; remove it")
        yield OldFile(
            path=name,
            used=tuple(key for key in keys if key not in moved and key not in left_out),
            renamed={key: moved[key] for key in keys if key in moved},
            left_out=left_out,
            untrusted=() if is_trusted(folder, layer) else tuple(risky_settings(layer)),
        )


def _keys(path: Path, folder: Path) -> list[str]:
    """List a file's keys as `section.key`; ignored sections count as one key."""
    text = (files.read_text(path, folder) or "").removeprefix("\ufeff")
    raw: dict[str, Any] = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    found: list[str] = []
    for section, value in raw.items():
        if isinstance(value, dict) and section not in LEFT_OUT:
            found += [f"{section}.{key}" for key in cast("dict[str, Any]", value)]
        else:
            found.append(section)
    return found
