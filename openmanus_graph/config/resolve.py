"""Merge what the caller passed over environment, files and defaults.

Precedence: options (the `Context`) > environment > `./openmanus.toml` or `Context.config` >
the person's `config.toml` > OpenManus's `config/config.toml` > defaults. Each source is read into a
`Layer`, checked by the declarations in `state.settings`; `config.merge` merges the layers.
"""

import dataclasses
import hashlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar, cast

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError

from openmanus_graph.config.declared import Declared, Reading, declared, read, sections, setting_of
from openmanus_graph.config.files import OLD_CONFIG, Layer, config_home, read_layer
from openmanus_graph.config.homes import (
    HOME,
    home_warnings,
    is_trusted,
    openmanus_home,
    risky_settings,
    without_risks,
)
from openmanus_graph.config.instructions import (
    read_instructions,
    untrusted_instructions,
    usable_skills,
)
from openmanus_graph.config.mcp import mcp_servers
from openmanus_graph.config.model import OtherModels, first, main_model
from openmanus_graph.config.workspace import WORKSPACES, refuse_system_folder, require_inside
from openmanus_graph.errors import ConfigError
from openmanus_graph.state.addresses import DatabaseUrl
from openmanus_graph.state.context import Context
from openmanus_graph.state.model_settings import ModelSettings
from openmanus_graph.state.search_engines import RETIRED
from openmanus_graph.state.settings import (
    BrowserSettings,
    SandboxSettings,
    SearchSettings,
    Settings,
    StorageSettings,
    WebSettings,
)
from openmanus_graph.state.validation import schema_defect

if TYPE_CHECKING:
    from langgraph.runtime import Runtime

    from openmanus_graph.conversation.outcome import ResponseFormat


_NOT_MERGED = ("mcp_servers",)
"""Settings that do not just come from the first layer that sets them: see `config.mcp`."""


def merge_layers(layers: Sequence[Layer]) -> dict[str, Any]:
    """Return the fields of `Settings` that the layers set, a section as a dict of its fields."""
    merged: dict[str, Any] = {}
    for layer in reversed(layers):
        merged = _overlaid(merged, _nested(layer))
    return {name: _thawed(merged[name]) for name in _merged_fields() if name in merged}


@cache
def _merged_fields() -> Sequence[str]:
    """Return the fields of `Settings` that are merged here: all sections, and single settings."""
    chosen = list(sections())
    for each in dataclasses.fields(Settings):
        setting = setting_of(each.type)
        if setting is not None and setting.join is None and each.name not in _NOT_MERGED:
            chosen.append(each.name)
    return chosen


def _overlaid(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested dicts as one: where both hold a value that is no dict, the second one's."""
    both = {**below, **above}
    for name in below.keys() & above.keys():
        if isinstance(below[name], dict) and isinstance(above[name], dict):
            both[name] = _overlaid(below[name], above[name])
    return both


def _nested(layer: Layer) -> dict[str, Any]:
    """Return the values of one layer, nested as the fields of `Settings`."""
    nested: dict[str, Any] = {}
    for one in declared().values():
        if one.name not in layer.values or one.setting.join:
            continue
        table = nested.setdefault(one.table, {}) if one.table else nested
        value = layer.values[one.name]
        if one.part:
            table.setdefault(one.field, {})[one.part] = value
        elif one.setting.merged or not isinstance(value, dict):
            table[one.field] = value
        else:  # replaces those of the layers after it as a whole
            table[one.field] = MappingProxyType(cast("dict[str, Any]", value))
    return nested


def _thawed(value: Any) -> Any:
    """Return a value with dicts in place of what `_nested` made of them."""
    if isinstance(value, dict | MappingProxyType):
        return {key: _thawed(each) for key, each in cast("dict[str, Any]", value).items()}
    return value


_ACCEPTED = (
    'Give a JSON schema such as {"type": "object", "properties": {...}}, the form that OpenAI\'s '
    'API takes, {"type": "json_schema", "json_schema": {"schema": {...}}}, or the class of a '
    "pydantic model."
)
_WRAPPING = {"type", "name", "description", "strict", "schema"}
"""What stands around a schema in that form, or in the one of OpenAI's newer API."""


def read_response_format(given: Any) -> "ResponseFormat | None":  # unchecked, as the caller gave it
    """Return the format's bare JSON schema or model. ConfigError says why it is neither."""
    if given is None:
        return None
    if isinstance(given, type) and issubclass(given, BaseModel):
        try:
            given.model_json_schema()
        except PydanticUserError as error:
            raise _wrong(f"{given.__name__} has no JSON schema ({error.message})") from error
        return given
    if not isinstance(given, Mapping):
        raise _wrong(f"is no dict and no model, but {given!r:.60}")
    schema = _unwrapped(cast("Mapping[str, Any]", given))
    if defect := schema_defect(schema):
        raise _wrong(defect)
    return schema


def _wrong(what: str) -> ConfigError:
    return ConfigError(f"response_format {what}. {_ACCEPTED}")


def _unwrapped(given: Mapping[str, Any]) -> dict[str, Any]:
    holder: Any = given
    if "json_schema" in given:
        holder = given["json_schema"]
    elif given.get("type") != "json_schema" and ("schema" not in given or set(given) - _WRAPPING):
        return dict(given)
    schema: Any = cast("Any", holder).get("schema") if isinstance(holder, Mapping) else None
    if isinstance(schema, Mapping):
        return dict(cast("Mapping[str, Any]", schema))
    raise _wrong(f"has no schema in its {'json_schema' if holder is not given else 'wrapping'}")


Section = TypeVar(
    "Section", SandboxSettings, BrowserSettings, SearchSettings, StorageSettings, WebSettings
)

WORKING_FOLDER_FILES = ("openmanus.toml", "mcp.json", OLD_CONFIG, "config/mcp.json")
"""By precedence; OpenManus's files come after the user's configuration."""
KEY_FILES = (".env", *WORKING_FOLDER_FILES)
CONTEXT_TABLES = ("browser", "search", "web")
"""Fields of `Context` that take a whole table of the configuration file."""


def resolve_run_settings(
    runtime: "Runtime[Any]", thread: str, *, has_thread: bool = True
) -> Settings:
    """Merge a run's context into settings. Blocks: call it off the event loop.

    Inside another app's graph the runtime carries that app's context; ours then counts as unset.

    Args:
        runtime: The node's runtime.
        thread: Names the default workspace and the private folder.
        has_thread: Whether it is a thread; else the private folder belongs to the workspace.

    Raises:
        ConfigError: A value is wrong, and which.
    """
    context = runtime.context if isinstance(runtime.context, Context) else Context()
    return resolve_settings(context, thread, has_thread=has_thread)


def resolve_settings(
    context: Context, thread: str, *, without_model: bool = False, has_thread: bool = True
) -> Settings:
    """Merge a context into settings. Blocks. ConfigError as `resolve_run_settings`.

    Args:
        context: What the caller passed.
        thread: Names the default workspace and the private folder.
        without_model: No model is needed, so none has to be set.
        has_thread: Whether it is a thread; else the private folder belongs to the workspace.
    """
    response_format = read_response_format(context.response_format)
    context = _validated(context)
    layers, warnings = all_layers(context)
    values = _declared_values(layers)
    home = openmanus_home()
    named = values.pop("workspace", None)
    workspace = Path(named or Path(WORKSPACES) / safe_name(thread)).expanduser()
    root = workspace.resolve()
    if not named:
        require_inside(workspace, root)
    refuse_system_folder(root)
    servers, server_warnings = mcp_servers(context, layers)
    private = private_folder(home, root, thread if has_thread else None)
    skills, skill_warnings = usable_skills()
    instructions, cut = read_instructions(root)
    main = ModelSettings("") if without_model else _main_model(context, layers, warnings)
    others = OtherModels(layers, main)
    return Settings(
        **values,
        main=main,
        vision=None if without_model else others.vision(context),
        fallback=() if without_model else others.fallback(context),
        roles={} if without_model else others.roles(context),
        workspace=root,
        home=home,
        database=values["storage"].database_url or DatabaseUrl.in_folder(home),
        private=private,
        protected=_protected(home, workspace, values["browser"].profile, layers),
        max_steps_set="max_steps" in values,
        mcp_servers=servers,
        response_format=response_format,
        instructions=instructions,
        untrusted_instructions=bool(context.untrusted_prompt or untrusted_instructions(root)),
        skills=skills,
        warnings=(
            *warnings,
            *home_warnings(home),
            *cut,
            *skill_warnings,
            *server_warnings,
            *_retired_engines(layers),
            *_private_inside(private, root),
        ),
    )


def section(kind: type[Section], layers: Sequence[Layer]) -> Section:
    """Return one section of the settings, of all layers. ConfigError says which value is wrong."""
    return _section(kind, merge_layers(layers), layers)


def database_url(context: Context | None = None) -> DatabaseUrl:
    """Return the address of the database of threads, checkpoints and ledger. Blocks.

    Raises:
        ConfigError: The configured address, or a configuration file, is wrong.
    """
    return configured_database(context or Context()) or DatabaseUrl.in_folder(openmanus_home())


def configured_database(context: Context) -> DatabaseUrl | None:
    """Return the address that somebody set. Blocks. ConfigError as `database_url`."""
    return storage_settings(context).database_url


def storage_settings(context: Context | None = None) -> StorageSettings:
    """Return the settings of storage. Blocks. ConfigError as `database_url`."""
    return section(StorageSettings, all_layers(context or Context())[0])


def private_folder(home: Path, workspace: Path, thread: str | None) -> Path:
    """Return the folder of our own files of a thread, which lies outside of its workspace.

    Where the home folder lies in the workspace it is in the person's state folder instead, and
    where that does, too, in the home folder all the same, which `resolve_settings` warns of. Runs
    without a thread share one for each workspace: what their conversations name can be read again
    when the caller passes them on.
    """
    name = Path("threads", safe_name(thread)) if thread else Path("runs", safe_name(str(workspace)))
    outside = (place for place in _private_places(home) if not place.is_relative_to(workspace))
    return next(outside, home) / name


def _private_inside(private: Path, workspace: Path) -> list[str]:
    """Warn of a private folder that the sandbox shows to commands."""
    if not private.is_relative_to(workspace):
        return []
    return [
        f"The folder of our own files {private} lies in the workspace {workspace}, where commands "
        "can read and change it, logins of the browser included. Choose a smaller folder with "
        "--workspace, or set OPENMANUS_HOME to one outside of it."
    ]


def private_folders(home: Path, thread: str) -> list[Path]:
    """Return where a thread's private folder may be, whatever its workspaces were."""
    return [place / "threads" / safe_name(thread) for place in _private_places(home)]


def _private_places(home: Path) -> list[Path]:
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    digest = hashlib.sha256(os.fsencode(home)).hexdigest()[:16]
    return [home, state.resolve() / "openmanus" / digest]


def safe_name(thread: str) -> str:
    """Turn a thread's id into the name of a folder; no two threads share one."""
    name = re.sub(r"[^\w.-]+", "_", thread).strip("._")[:80]
    if name == thread:
        return name
    return f"{name or 'thread'}-{hashlib.sha256(thread.encode()).hexdigest()[:8]}"


def all_layers(context: Context) -> tuple[list[Layer], list[str]]:
    """Read all layers by precedence, with warnings. ConfigError as `read_layers`."""
    context_layer = _context_layer(context)
    files, warnings = read_layers(context.config)
    warnings += [f"{key} is not known here and was left out." for key in context_layer.unknown]
    return [context_layer, _environment_layer(), *files], warnings


def read_layers(config: str | None) -> tuple[list[Layer], list[str]]:
    """Read the configuration files that exist, by precedence, with warnings.

    Risky settings of the working folder that the person has not trusted are left out.

    Raises:
        ConfigError: A file cannot be used, and where it is wrong.
    """
    folder, own = _working_folder()
    places = [
        *([Path(config)] if config else own[:1]),
        *own[1:2],
        config_home() / "config.toml",
        config_home() / "mcp.json",
        *own[2:],
    ]
    layers: list[Layer] = []
    warnings: list[str] = []
    for path in places:
        trusted = path not in own or str(path) == config
        layer = read_layer(path, None if trusted else folder)
        if layer is None:
            if path == Path(config or ""):
                advice = "Check the path of --config."
                raise ConfigError(f"There is no configuration file {config}. {advice}")
            continue
        warnings += [f"{path}: {key} is not known here and was left out." for key in layer.unknown]
        if not trusted and risky_settings(layer) and not is_trusted(folder, layer):
            names = ", ".join(risky_settings(layer))
            warnings.append(
                f"{path} sets {names}: not used until you trust this folder (openmanus trust)."
            )
            layer = without_risks(layer)
        layers.append(layer)
    return layers, warnings


def _working_folder() -> tuple[Path, list[Path]]:
    """Return it, and where its configuration files are; nowhere if the folder itself is gone."""
    try:
        folder = Path.cwd()
    except FileNotFoundError:
        return Path(), []
    return folder, [folder / name for name in WORKING_FOLDER_FILES]


def context_field(one: Declared) -> str | None:
    """Return the field of `Context` that sets a key by itself; None where there is none."""
    if one.setting.context or one.setting.context is None:
        return one.setting.context
    return None if one.table or one.part else one.field


def _declared_values(layers: Sequence[Layer]) -> dict[str, Any]:
    """Return the fields of `Settings` that are set, and all sections."""
    merged = merge_layers(layers)
    records = {name: _section(kind, merged, layers) for name, kind in sections().items()}
    limit = first(map(_token_limit, layers))
    return {**merged, **_parsed("", merged, layers), **records, "max_total_tokens": limit}


def _section(kind: type[Section], merged: Mapping[str, Any], layers: Sequence[Layer]) -> Section:
    name = next(name for name, each in sections().items() if each is kind)
    raw = kind(**merged.get(name, {}))
    values = {each.name: getattr(raw, each.name) for each in dataclasses.fields(kind)}
    parsed = dataclasses.replace(raw, **_parsed(name, values, layers))
    if isinstance(parsed, BrowserSettings):
        connections = [key for key in ("cdp_url", "wss_url", "profile") if getattr(parsed, key)]
        if len(connections) > 1:
            raise ConfigError(f"[browser] sets {' and '.join(connections)}; set one of them.")
    return parsed


def _context_layer(context: Context) -> Layer:
    reading = Reading()
    for one in declared().values():
        name = context_field(one)
        value = getattr(context, name) if name else None
        instances = one.field in ("model", "vision_model") and not isinstance(value, str)
        if one.field != "fallback" and not instances:  # `config.model` reads those
            reading.add(one, value, name or one.name)
    for table in CONTEXT_TABLES:
        found = read(getattr(context, table) or {}, f"{table}.")
        reading.values |= found.values
        reading.problems += found.problems
        reading.unknown += found.unknown
    if reading.problems:
        raise ConfigError(f"The run's settings are wrong: {'; '.join(reading.problems)}.")
    unknown_web_keys = [
        key.removeprefix("web.") for key in reading.unknown if key.startswith("web.")
    ]
    if unknown_web_keys:
        raise ConfigError(f"There is no [web] key {', '.join(unknown_web_keys)}.")
    return Layer(reading.values, unknown=tuple(reading.unknown))


def _environment_layer() -> Layer:
    reading = Reading()
    for one in declared().values():
        value = first(os.environ.get(variable) or None for variable in one.env)
        reading.add(one, value, one.name)
        prefix = one.setting.env_prefix
        named = [name for name in os.environ if name.startswith(prefix)] if prefix else []
        if named:
            entries = {name.removeprefix(prefix).lower(): os.environ[name] for name in named}
            reading.add(one, entries, one.name)
    return Layer(reading.values)


def _parsed(table: str, values: Mapping[str, Any], layers: Sequence[Layer]) -> dict[str, Any]:
    """Return the fields of a section that have a `join` or `parse` function, parsed."""
    found: dict[str, Any] = {}
    for one in declared().values():
        if one.table != table:
            continue
        if one.setting.join:
            found[one.field] = one.setting.join(list(_values_in_layers(one, layers)))
        elif one.setting.parse and values.get(one.field) is not None:
            found[one.field] = one.setting.parse(values[one.field])
    return found


def _values_in_layers(one: Declared, layers: Sequence[Layer]) -> Iterator[tuple[str, Any]]:
    for layer in layers:
        if one.name in layer.values:
            yield str(layer.path or f"Context.{context_field(one)}"), layer.values[one.name]


def _retired_engines(layers: Sequence[Layer]) -> Iterator[str]:
    """Yield a warning for each retired engine in the configuration; OpenManus's file has some."""
    named = [layer.values.get("search.engine") for layer in layers]
    named += [
        name for layer in layers for name in layer.values.get("search.fallback_engines") or ()
    ]
    for name in sorted({str(name).strip().lower() for name in named} & RETIRED.keys()):
        replacement = RETIRED[name]
        yield (
            f"[search] {name.capitalize()}'s search interface was shut down in 2025; use "
            f"{replacement}, which needs no key. {replacement} is asked in its place."
        )


def _main_model(context: Context, layers: list[Layer], warnings: list[str]) -> ModelSettings:
    """Choose the model; an error also mentions files that are not trusted yet."""
    try:
        return main_model(context, layers)
    except ConfigError as error:
        trust_warnings = [warning for warning in warnings if "openmanus trust" in warning]
        raise ConfigError(" ".join([str(error), *trust_warnings])) from error


def _validated(context: Context) -> Context:
    # The server keeps wrong values (`max_steps="many"`), so a Context is checked here.
    checked: dict[str, Any] = {}
    problems: list[str] = []
    for name in _context_types():
        value = getattr(context, name)
        if value is None:
            continue
        try:
            checked[name] = _context_adapter(name).validate_python(value)
        except ValidationError as error:
            found = error.errors(include_url=False, include_input=False)
            problems += [f"{name}: {item['msg']}" for item in found]
    if problems:
        raise ConfigError(f"The run's settings are wrong: {'; '.join(problems)}.")
    return dataclasses.replace(context, **checked)


@cache
def _context_types() -> Mapping[str, Any]:
    return {each.name: each.type for each in dataclasses.fields(Context)}


@cache
def _context_adapter(name: str) -> TypeAdapter[Any]:
    """Return the validator of a field of `Context`. Most runs set few: none is built for all."""
    return TypeAdapter(_context_types()[name])


def _token_limit(layer: Layer) -> int | None:
    """Return a layer's limit, or OpenManus's `max_input_tokens`, a limit of the whole process."""
    limit: int | None = layer.values.get("max_total_tokens")
    return limit or (layer.llm.max_input_tokens if layer.llm else None) or None


def _protected(
    home: Path, workspace: Path, profile: str | None, layers: Sequence[Layer]
) -> tuple[Path, ...]:
    """Return what tools must not reach: configuration, keys, and a browser's logins."""
    paths = [home, config_home(), *(Path(name).absolute() for name in KEY_FILES)]
    paths += [layer.path for layer in layers if layer.path is not None]
    paths += [Path(profile).expanduser().absolute()] if profile else []
    paths += [workspace.absolute() / name for name in (*KEY_FILES, HOME)]
    return tuple(dict.fromkeys(path.resolve() for path in paths))
