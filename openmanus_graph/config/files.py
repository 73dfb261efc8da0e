"""Every key of the configuration, by the declarations of settings, and the files that set them."""

import errno
import json
import os
import re
import secrets
import tomllib
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import Field, dataclass, field, fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, cast, get_args

from pydantic import TypeAdapter, ValidationError

from openmanus_graph.config.entry_points import installed, load
from openmanus_graph.errors import ConfigError
from openmanus_graph.safety.open_beneath import UnsafeFileError, read_beneath
from openmanus_graph.state.json_values import as_list, as_object
from openmanus_graph.state.model_settings import LlmKeys, ModelKeys, ModelUseKeys, RoleKeys
from openmanus_graph.state.setting_declaration import ALWAYS, Setting
from openmanus_graph.state.settings import RunKeys, Settings

TABLE: tuple[tuple[type[Any], str], ...] = (
    (ModelKeys, ""),
    (Settings, ""),
    (LlmKeys, "llm"),
    (LlmKeys, "llm.vision"),
    (ModelUseKeys, "llm"),
    (RoleKeys, "llm.roles"),
    (RunKeys, ""),
)
"""The classes that declare settings, and the table of each in a file."""

LEFT_OUT = {
    "sandbox.use_sandbox": "Python and shell always run in a sandbox; [sandbox] mode chooses which",
    "sandbox.work_dir": "the workspace is the folder; --workspace or workspace names another",
    "sandbox.cpu_limit": "there is no such limit; memory_mb, processes, disk_mb and timeout_s hold",
    "daytona": "there is no such sandbox; remove the section and its key. Python and shell run "
    'in a sandbox of this machine, or on another one with [sandbox] mode = "ssh"',
    "mcp.server_reference": "`openmanus mcp-server` is the server; --mcp-server starts any other",
    "search.bing_api_key": "Bing's search interface was shut down in 2025; remove the key",
    "runflow": "`openmanus plan` always has the data_analysis agent",
}
"""Keys and sections of OpenManus that are ignored here, and what to use instead."""


@dataclass(frozen=True)
class DeclaredField:
    owner: type[Any]
    table: str
    """The table in a file, which is also the section of `Settings`; empty at the top level."""
    field: "Field[Any]"
    setting: Setting

    @property
    def name(self) -> str:
        return self.field.name

    @property
    def written(self) -> Any:
        return self.field.type if self.setting.written is None else self.setting.written

    @property
    def context(self) -> str | None:
        """The field of `Context` that sets it alone; None if there is none."""
        if self.setting.context or self.setting.context is None:
            return self.setting.context
        return None if self.table else self.name

    @property
    def option(self) -> str:
        """The field of `RunOptions` that sets it; empty if there is none."""
        return self.setting.option.lstrip("-").replace("-", "_")

    def key(self, name: str) -> str:
        return f"{self.table}.{name}" if self.table else name


@dataclass(frozen=True)
class Declared:
    name: str
    """The dotted name: `sandbox.network`."""
    of: DeclaredField
    part: str
    """The entry of the field's table that it sets; empty for the whole field."""
    kind: Any
    env: tuple[str, ...]

    @property
    def setting(self) -> Setting:
        return self.of.setting


@cache
def declared_fields() -> tuple[DeclaredField, ...]:
    """Return all fields that users can set, in order. ConfigError if a package's cannot load."""
    found = [one for kind, table in TABLE for one in _fields_of(kind, table)]
    for table, kind in package_tables().items():
        for one in _fields_of(kind, table):
            # Only files and the environment set it, and a folder's file not before it is trusted.
            setting = replace(one.setting, context=None, option="")
            found.append(replace(one, setting=replace(setting, trust=setting.trust or ALWAYS)))
    return tuple(found)


@cache
def package_tables() -> Mapping[str, type[Any]]:
    """Return the tables that installed packages add, by name. ConfigError as `declared_fields`."""
    ours = {each.name for each in fields(Settings)} | {table for _, table in TABLE}
    added = (point for point in installed("settings") if point.name not in ours)
    return {point.name: load(point, "table of settings") for point in added}


@cache
def declared() -> Mapping[str, Declared]:
    """Return all keys by name, in the order of their declaration."""
    return {key.name: key for one in declared_fields() for key in _keys_of(one)}


@cache
def sections() -> Mapping[str, Any]:
    """Return the tables that are records of their own, ours and packages', by name: the class."""
    names = {each.name for each in fields(Settings)} | package_tables().keys()
    return {one.table: one.owner for one in declared_fields() if one.table in names}


def _fields_of(kind: type[Any], table: str) -> Iterator[DeclaredField]:
    for each in fields(kind):
        found = (one for one in getattr(each.type, "__metadata__", ()) if isinstance(one, Setting))
        setting = next(found, None)
        if setting is not None:
            yield DeclaredField(kind, table, each, setting)
        elif is_dataclass(each.type):
            yield from _fields_of(cast("type[Any]", each.type), each.name)


def _keys_of(one: DeclaredField) -> Iterator[Declared]:
    if one.setting.key is not None:
        name = one.key(one.setting.key or one.name)
        yield Declared(name, one, "", one.written, one.setting.env)
    for other in one.setting.alternative_keys:
        if other.part:
            entry = get_args(bare_type(one.written))[1]
            yield Declared(one.key(other.key), one, other.part, entry, other.env)


def bare_type(kind: Any) -> Any:
    return getattr(kind, "__origin__", kind) if hasattr(kind, "__metadata__") else kind


@cache
def _by_key() -> Mapping[str, Declared]:
    """Return the keys, under their alternative names too."""
    others = {
        key.of.key(other.key): key
        for key in declared().values()
        if not key.part
        for other in key.setting.alternative_keys
        if not other.part
    }
    return {**declared(), **others}


@cache
def _tables() -> frozenset[str]:
    parts = (name.split(".")[:-1] for name in (*_by_key(), *LEFT_OUT))
    return frozenset(".".join(words[: end + 1]) for words in parts for end in range(len(words)))


@cache
def _adapter(name: str) -> TypeAdapter[Any]:
    return TypeAdapter(declared()[name].kind)


@dataclass
class Layer:
    """The settings of one source: a file, the environment, or a run's `Context`."""

    values: dict[str, Any] = field(default_factory=dict[str, Any])
    """By the names of `declared`, validated."""
    path: Path | None = None
    """The file; None for another source."""
    unknown: list[str] = field(default_factory=list[str])
    problems: list[str] = field(default_factory=list[str])
    """Which values are wrong, and why; never the values, which may be secret."""
    broken_servers: dict[str, str] = field(default_factory=dict[str, str])
    """MCP servers that are described wrongly, by name, and why: only they are left out."""
    inputs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    """Values that an `mcp.json` wants to be asked for, by id, as VS Code describes them."""

    @property
    def llm(self) -> LlmKeys | None:
        return self.llm_keys("llm")

    def llm_keys(self, table: str) -> LlmKeys | None:
        """Return the keys of `[llm]`, or of `[llm.vision]` with the others as defaults, or None."""
        named = {each.name: f"{table}.{each.name}" for each in fields(LlmKeys)}
        given = {key: self.values[name] for key, name in named.items() if name in self.values}
        return LlmKeys(**given) if given else None

    def add(self, key: Declared, value: Any, written: str) -> None:
        """Validate and add one value; None, and empty text for an optional key, count as unset."""
        if value is None or (value == "" and type(None) in get_args(bare_type(key.kind))):
            return
        if key.name == SERVERS and isinstance(value, dict):
            value = self._without_broken(as_object(value), written)
        try:
            checked = _adapter(key.name).validate_python(value)
        except ValidationError as error:
            self.problems += _reasons(error, written)
            return
        if written == key.name:
            self.values[key.name] = checked
        else:
            self.values.setdefault(key.name, checked)
        self.unknown += _unknown_keys(checked, value, written)

    def _without_broken(self, servers: dict[str, Any], written: str) -> dict[str, Any]:
        """Return the servers that are described rightly, and keep why the others are not."""
        found: dict[str, Any] = {}
        for name, described in servers.items():
            try:
                _adapter(SERVERS).validate_python({name: described})
                found[name] = described
            except ValidationError as error:
                self.broken_servers[name] = "; ".join(_reasons(error, written))
        return found

    def read(self, table: Mapping[str, Any], prefix: str = "") -> None:
        """Validate and add everything in a table; `prefix` is its dotted path with a last dot."""
        for key, value in table.items():
            path = f"{prefix}{key}"
            if path in LEFT_OUT:
                # Keys of paid services are named, because they have no effect here.
                if value and path in ("daytona", "search.bing_api_key"):
                    self.unknown.append(f"[{path}]" if isinstance(value, dict) else path)
            elif path in _tables() and isinstance(value, dict):
                self.read(as_object(value), f"{path}.")
            elif path in _by_key():
                self.add(_by_key()[path], value, path)
            elif path in _tables():
                self.problems.append(f"{path}: Input should be a table, [{path}]")
            else:
                self.unknown.append(path)


def _reasons(error: ValidationError, written: str) -> Iterator[str]:
    for item in error.errors(include_url=False, include_input=False):
        said = item.get("ctx", {}).get("error") or item["msg"]  # a validator's own message
        yield f"{'.'.join((written, *map(str, item['loc'])))}: {said}"


def _unknown_keys(checked: Any, raw: Any, prefix: str) -> Iterator[str]:
    """Yield the keys of a table that the type made from it does not have."""
    if is_dataclass(checked) and isinstance(raw, dict):
        names = {each.name for each in fields(checked)} - {"name"}  # that of a server is not a key
        known = names | set(getattr(checked, "other_keys", ()))
        yield from (f"{prefix}.{key}" for key in as_object(raw) if key not in known)
    elif isinstance(checked, dict) and isinstance(raw, dict):
        for key, value in as_object(checked).items():
            yield from _unknown_keys(value, as_object(raw)[key], f"{prefix}.{key}")


def moved_keys() -> Mapping[str, str]:
    """Return OpenManus's keys that are used here, with their names in `openmanus.toml`."""
    found: dict[str, str] = {}
    for key in declared().values():
        if not key.part and key.of.table != "llm.vision":
            found[key.name] = key.setting.moved
            found |= {key.of.key(one.key): one.moved for one in key.setting.alternative_keys}
    vision = "used where the main model cannot see; in openmanus.toml also vision_model"
    found["llm.vision"] = vision
    return {name: words for name, words in found.items() if words}


MAX_BYTES = 1 << 20
SERVERS = "mcp.servers"
OLD_CONFIG = "config/config.toml"
"""OpenManus's own file. One without a table `[llm]` belongs to another program."""
_TWICE = re.compile(r"Cannot declare \('(\w+)', '([^']+)'\) twice")
_LLM_TABLE = re.compile(r"^[ \t]*(?:\[\s*llm\b|llm\s*[.=])", re.MULTILINE)


def config_home() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "openmanus"


def read_text(path: Path, within: Path | None) -> str | None:
    """Return a file's text; None if there is none. Blocks.

    `within` is the folder that the file must be in, even if it is a link; None if the file is the
    user's own. Raises ConfigError if it is not a file, too large, not text, or not in its folder.
    """
    root = Path("/") if within is None else within.resolve()
    inside = path.absolute() if within is None else path.relative_to(within)
    try:
        return read_beneath(root, inside, MAX_BYTES).decode("utf-8-sig")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except UnsafeFileError as error:
        other = ", or use --config" if path.suffix == ".toml" else ""
        advice = f" Replace the link by the file{other}." if error.errno == errno.EXDEV else ""
        raise ConfigError(f"{path} is not read: {error}{advice}") from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path} is not UTF-8 text ({error.reason}). Save it as UTF-8."
        ) from error


def is_untrusted(folder: Path) -> bool:
    """Return True if a folder's `config/config.toml` is another program's. ConfigError as above."""
    text = read_text(folder / OLD_CONFIG, folder)
    return text is not None and not _LLM_TABLE.search(text)


def read_layer(path: Path, within: Path | None) -> Layer | None:
    """Read a TOML file, or an `mcp.json`; `within` is that of `read_text`.

    Returns None if there is no such file, or if a `config/config.toml` is another program's. A
    ConfigError names the file and the line, or the key.
    """
    text = read_text(path, within)
    if text is None or (path.match(OLD_CONFIG) and not _LLM_TABLE.search(text)):
        return None
    layer, is_json = Layer(path=path), path.suffix == ".json"
    try:
        if is_json:
            _read_mcp_file(layer, parse_json(text))
        else:
            _read_toml(layer, tomllib.loads(text))
    except RecursionError:  # its traceback is as deep as the text
        parts = "objects" if is_json else "tables"
        text = f"{path} is nested too deeply. Write fewer {parts} in one another."
        raise ConfigError(text) from None
    except ConfigError:
        raise
    except ValueError as error:  # also of a number with thousands of digits
        kind = "JSON" if is_json else "TOML"
        why = _TWICE.sub(r"there are two tables [\1.\2]; rename or remove one", str(error))
        raise ConfigError(f"{path} is not valid {kind}: {why}.") from error
    if layer.problems:
        raise ConfigError(f"{path}: {'; '.join(layer.problems)}.")
    return layer


def _read_toml(layer: Layer, table: dict[str, Any]) -> None:
    layer.read(table)
    if any(name.startswith("llm.vision.") for name in layer.values):
        for key in (each.name for each in fields(LlmKeys) if f"llm.{each.name}" in layer.values):
            layer.values.setdefault(f"llm.vision.{key}", layer.values[f"llm.{key}"])


def _read_mcp_file(layer: Layer, table: Any) -> None:
    """Read the form that most programs share, `mcpServers`, or `servers`."""
    if not isinstance(table, dict):
        layer.problems.append("the file: Input should be a valid dictionary")
        return
    given, servers = as_object(table), dict[str, Any]()
    for key in ("servers", "mcpServers"):  # of a name in both, the one in `mcpServers` counts
        if key in given:
            layer.values.clear()
            layer.add(declared()[SERVERS], given.pop(key), key)
            servers |= layer.values.get(SERVERS, {})
    layer.values[SERVERS] = servers
    asked = map(as_object, as_list(given.pop("inputs", None)))
    layer.inputs = {str(one["id"]): one for one in asked if "id" in one}
    layer.unknown += given


def parse_json(text: str) -> Any:  # any JSON
    """Parse JSON, with comments and trailing commas as editors allow. ValueError: it is neither."""
    try:
        return json.loads(text)
    except ValueError:
        import pyjson5  # seldom needed

        with suppress(pyjson5.Json5Exception, RecursionError):
            return pyjson5.decode(text)
        raise


def read_object(path: Path) -> dict[str, Any]:
    """Return a JSON file's object; an empty one if it is missing or damaged. Blocks."""
    with suppress(OSError, ValueError):
        return _read(path)
    return {}


@contextmanager
def changed_object(
    path: Path, *, mode: int, parse: Callable[[str], Any] = json.loads
) -> Generator[dict[str, Any]]:
    """Let the block change a JSON file's object, one process at a time. Blocks.

    `parse_json` also takes comments, which are lost then.

    Raises ConfigError if the file is damaged, because its other entries would be lost, or cannot be
    read or written.
    """
    from filelock import FileLock  # only here: every run reads these files, few change them

    with ExitStack() as stack:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            stack.enter_context(FileLock(path.with_name(f".{path.name}.lock")))
            found = _read(path, parse)
        except OSError as error:
            raise ConfigError(f"{path} cannot be changed: {error.strerror}.") from error
        except ValueError as error:
            raise ConfigError(
                f"{path} is damaged ({error}) and was not changed. Fix it, or move it away, and "
                "try again."
            ) from error
        yield found
        write_file(path, json.dumps(found, indent=2) + "\n", mode=mode)


def write_file(path: Path, text: str, *, mode: int) -> None:
    """Replace a file at once; others cannot read it before its mode is set. Blocks."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        try:
            with os.fdopen(os.open(draft, flags, 0o600), "w", encoding="utf-8") as file:
                file.write(text)
            draft.chmod(mode)
            draft.replace(path.resolve())  # a link to a file of dotfiles stays one
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}.") from error


def _read(path: Path, parse: Callable[[str], Any] = json.loads) -> dict[str, Any]:
    """Return a file's object. ValueError: it holds none, by UnicodeDecodeError, too."""
    try:
        text = path.read_text("utf-8-sig")
    except FileNotFoundError:
        return {}
    try:
        known: object = parse(text) if text.strip() else {}
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(known, dict):
        raise ValueError("it is not a JSON object")  # as json's own errors
    return as_object(known)
