"""Every configuration key, collected from the declarations in `state.settings`."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from typing import Any, cast, get_args

from pydantic import BaseModel, TypeAdapter, ValidationError

from openmanus_graph.state.model_settings import LlmKeys, ModelKeys, ModelUseKeys, RoleKeys
from openmanus_graph.state.setting_declaration import Setting
from openmanus_graph.state.settings import Settings

LEFT_OUT = {
    "sandbox.use_sandbox": "Python and shell always run in a sandbox; [sandbox] mode chooses which",
    "sandbox.work_dir": "the workspace is the folder; --workspace or workspace names another",
    "sandbox.cpu_limit": "there is no such limit; memory_mb, processes, disk_mb and timeout_s hold",
    "daytona": "there is no such sandbox; remove the section and its key. Python and shell run "
    'in a sandbox of this machine, or on another one with [sandbox] mode = "ssh"',
    "mcp.server_reference": "`openmanus mcp-server` is the server; --server starts any other",
    "search.bing_api_key": "Bing's search interface was shut down in 2025; remove the key",
    "runflow": "`openmanus plan` always has the data_analysis agent",
}
"""Keys and sections of OpenManus that are ignored here, and what to use instead."""


@dataclass(frozen=True)
class Declared:
    """One key and its declaration."""

    name: str
    """The dotted name in a file: `sandbox.network`."""
    field: str
    table: str
    """The table in the file and section of `Settings`; empty at the top level."""
    part: str
    """The entry of the field's table that it sets; empty for the whole field."""
    kind: Any
    """The type of the value in a file, for pydantic."""
    setting: Setting
    env: tuple[str, ...]

    def check(self, value: Any) -> Any:
        """Validate and convert a value. ValidationError says what is wrong."""
        return _adapter(self.name).validate_python(value)


@dataclass
class Reading:
    """The result of reading a table of keys."""

    values: dict[str, Any] = field(default_factory=dict[str, Any])
    """By the names of `declared`, validated."""
    unknown: list[str] = field(default_factory=list[str])
    """Unknown keys."""
    problems: list[str] = field(default_factory=list[str])
    """Which values are wrong, and why; never the values, which may be secret."""

    def add(self, one: Declared, value: Any, written: str) -> None:
        """Validate and add one value; None, and empty text for an optional key, count as unset."""
        if value is None or (value == "" and type(None) in get_args(bare_type(one.kind))):
            return
        try:
            checked = one.check(value)
        except ValidationError as error:
            self.problems += _problems(error, written)
            return
        if written == one.name:
            self.values[one.name] = checked
        else:
            self.values.setdefault(one.name, checked)
        self.unknown += _unknown_keys(checked, value, written)


def read(table: Mapping[str, Any], prefix: str = "") -> Reading:
    """Check everything in a table and the tables in it.

    Args:
        table: As parsed from a file.
        prefix: The dotted path of the table in its file, with a dot at its end.
    """
    reading = Reading()
    _read(reading, table, prefix)
    return reading


@cache
def declared() -> Mapping[str, Declared]:
    """Return all keys by name, in the order of their declaration."""
    all_keys = [
        *_fields_of(ModelKeys),
        *_fields_of(Settings),
        *_fields_of(LlmKeys, "llm"),
        *_fields_of(LlmKeys, "llm.vision"),
        *_fields_of(ModelUseKeys, "llm"),
        *_fields_of(RoleKeys, "llm.roles"),
    ]
    return {one.name: one for one in all_keys}


@cache
def sections() -> Mapping[str, Any]:
    """Return the tables that are a record in `Settings`, by name: its class."""
    tables = {one.table for one in declared().values()}
    return {each.name: each.type for each in fields(Settings) if each.name in tables}


def _read(reading: Reading, table: Mapping[str, Any], prefix: str) -> None:
    for key, value in table.items():
        path = f"{prefix}{key}"
        if path in LEFT_OUT:
            # Warn when keys of paid services are set, because they have no effect here.
            is_paid_service = path in ("daytona", "search.bing_api_key") and value
            reading.unknown += (
                [f"[{path}]" if isinstance(value, dict) else path] if is_paid_service else []
            )
        elif path in _tables() and (isinstance(value, dict) or path not in _by_key()):
            if isinstance(value, dict):
                _read(reading, cast("dict[str, Any]", value), f"{path}.")
            else:
                reading.problems.append(f"{path}: Input should be a table, [{path}]")
        elif path in _by_key():
            reading.add(_by_key()[path], value, path)
        else:
            reading.unknown.append(path)


def _unknown_keys(checked: Any, raw: Any, prefix: str) -> Iterator[str]:
    """Yield the keys of a table that the type made from it does not have."""
    if isinstance(checked, BaseModel):
        yield from (f"{prefix}.{key}" for key in checked.model_extra or {})
    elif is_dataclass(checked) and isinstance(raw, dict):
        known = {each.name for each in fields(checked)}
        yield from (f"{prefix}.{key}" for key in cast("dict[str, Any]", raw) if key not in known)
    elif isinstance(checked, dict) and isinstance(raw, dict):
        for key, value in cast("dict[str, Any]", checked).items():
            yield from _unknown_keys(value, cast("dict[str, Any]", raw)[key], f"{prefix}.{key}")


def _problems(error: ValidationError, written: str) -> Iterator[str]:
    for item in error.errors(include_url=False, include_input=False):
        custom_message = item.get("ctx", {}).get("error")  # the message of a custom validator
        yield f"{'.'.join((written, *map(str, item['loc'])))}: {custom_message or item['msg']}"


def _fields_of(kind: type[Any], table: str = "") -> Iterator[Declared]:
    prefix = f"{table}." if table else ""
    for each in fields(kind):
        setting = setting_of(each.type)
        if setting is not None:
            yield from _keys_of(setting, each.name, each.type, table)
        elif is_dataclass(each.type):
            yield from _fields_of(cast("type[Any]", each.type), f"{prefix}{each.name}")


def _keys_of(setting: Setting, name: str, kind: Any, table: str) -> Iterator[Declared]:
    prefix = f"{table}." if table else ""
    written = kind if setting.written is None else setting.written
    if setting.key is not None:
        yield Declared(
            f"{prefix}{setting.key or name}", name, table, "", written, setting, setting.env
        )
    for alternative in setting.alternative_keys:
        if alternative.part:
            entry = get_args(bare_type(written))[1]
            yield Declared(
                f"{prefix}{alternative.key}",
                name,
                table,
                alternative.part,
                entry,
                setting,
                alternative.env,
            )


def setting_of(kind: Any) -> Setting | None:
    """Return the `Setting` in a field's `Annotated` type."""
    found = (each for each in getattr(kind, "__metadata__", ()) if isinstance(each, Setting))
    return next(found, None)


@cache
def _by_key() -> Mapping[str, Declared]:
    """Return the keys, under their alternative names too."""
    found = dict(declared())
    for one in declared().values():
        prefix = f"{one.table}." if one.table else ""
        for alternative in () if one.part else one.setting.alternative_keys:
            if not alternative.part:
                found[f"{prefix}{alternative.key}"] = one
    return found


@cache
def _tables() -> frozenset[str]:
    parts = (name.split(".")[:-1] for name in (*_by_key(), *LEFT_OUT))
    return frozenset(".".join(words[: end + 1]) for words in parts for end in range(len(words)))


@cache
def _adapter(name: str) -> TypeAdapter[Any]:
    return TypeAdapter(declared()[name].kind)


def bare_type(kind: Any) -> Any:
    """Return a type without its `Annotated` metadata."""
    return getattr(kind, "__origin__", kind) if hasattr(kind, "__metadata__") else kind


def moved_keys() -> Mapping[str, str]:
    """Return OpenManus's keys that are used here, with their names in `openmanus.toml`."""
    found: dict[str, str] = {}
    for one in declared().values():
        if one.part or one.table == "llm.vision":
            continue
        prefix = f"{one.table}." if one.table else ""
        notes = [(one.name, one.setting.moved)]
        notes += [(f"{prefix}{each.key}", each.moved) for each in one.setting.alternative_keys]
        found |= {key: words for key, words in notes if words}
    found["llm.vision"] = (
        "used where the main model cannot see; in openmanus.toml also vision_model"
    )
    return found
