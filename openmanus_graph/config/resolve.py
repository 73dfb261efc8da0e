"""Reads all layers of the configuration and merges them into `Settings`.

Precedence: options (the `Context`) > environment > `./openmanus.toml` or `Context.config` >
the user's `config.toml` > OpenManus's `config/config.toml` > defaults. The declarations in
`state.settings` say what each layer may hold, and how the layers are merged.
"""

import contextlib
import dataclasses
import hashlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError

from openmanus_graph.config import homes
from openmanus_graph.config.claude_files import usable_hooks
from openmanus_graph.config.files import (
    OLD_CONFIG,
    Declared,
    Layer,
    config_home,
    declared,
    package_tables,
    read_layer,
    sections,
)
from openmanus_graph.config.instructions import (
    read_instructions,
    untrusted_instructions,
    usable_skills,
)
from openmanus_graph.config.mcp import mcp_servers
from openmanus_graph.config.model import first, main_model, other_models
from openmanus_graph.errors import ConfigError
from openmanus_graph.state.addresses import DatabaseUrl
from openmanus_graph.state.context import Context
from openmanus_graph.state.model_settings import ModelSettings
from openmanus_graph.state.search_engines import RETIRED
from openmanus_graph.state.server_settings import ServerSettings, StorageSettings
from openmanus_graph.state.settings import BrowserSettings, Settings
from openmanus_graph.state.triggers import Channel, Trigger
from openmanus_graph.state.validation import schema_defect

if TYPE_CHECKING:
    from openmanus_graph.conversation.replies import ResponseFormat

Section = TypeVar("Section")

WORKING_FOLDER_FILES = ("openmanus.toml", "mcp.json", OLD_CONFIG, "config/mcp.json")
"""By precedence; OpenManus's files come after the user's configuration."""
KEY_FILES = (".env", *WORKING_FOLDER_FILES)
CONTEXT_TABLES = ("browser", "search", "web")
"""Fields of `Context` that take a whole table of the configuration file."""


def resolve_settings(
    context: Context, thread: str, *, without_model: bool = False, has_thread: bool = True
) -> Settings:
    """Merge a context into settings. Blocks: call it off the event loop.

    `thread` names the default workspace and the private folder, which belongs to the workspace if
    `has_thread` is false. With `without_model`, none has to be set. A ConfigError says which value
    is wrong.
    """
    response_format = read_response_format(context.response_format)
    context = _validated(context)
    layers, warnings = all_layers(context)
    values = _merged("", layers)
    records = {name: section(kind, layers) for name, kind in sections().items()}
    packages = {kind: records.pop(table) for table, kind in package_tables().items()}
    storage: StorageSettings = records["storage"]
    home = homes.openmanus_home()
    named = values.pop("workspace", None)
    workspace = Path(named or Path(homes.WORKSPACES) / safe_name(thread)).expanduser()
    root = workspace.resolve()
    if not named:
        homes.require_inside(workspace, root)
    homes.refuse_system_folder(root)
    servers, server_warnings = mcp_servers(context, layers)
    private = private_folder(home, root, thread if has_thread else None)
    skills, skill_warnings = usable_skills()
    hooks, hook_warnings = usable_hooks()
    instructions, cut = read_instructions(root)
    exposed = (
        f"The folder of our own files {private} lies in the workspace {root}, where commands can "
        "read and change it, logins of the browser included. Choose a smaller folder with "
        "--workspace, or set OPENMANUS_HOME to one outside of it."
    )
    # OpenManus's `max_input_tokens` is also a limit of the whole process.
    limits = (
        each.values.get("max_total_tokens") or (each.llm and each.llm.max_input_tokens) or None
        for each in layers
    )
    values |= {"max_total_tokens": first(limits), **records}
    if without_model:
        values |= {"main": ModelSettings(""), "vision": None}
    else:
        main = _main_model(context, layers, warnings)
        values |= {"main": main, **other_models(context, layers, main)}
    return Settings(
        **values,
        workspace=root,
        home=home,
        database=storage.database_url or DatabaseUrl.in_folder(home),
        private=private,
        protected=(
            *_protected(home, workspace, records["browser"].profile, layers),
            *(path.resolve() for hook in hooks for path in hook.files),
        ),
        own_workspace=not named,
        max_steps_set="max_steps" in values,
        mcp_servers=servers,
        response_format=response_format,
        instructions=instructions,
        untrusted_instructions=bool(context.untrusted_prompt or untrusted_instructions(root)),
        skills=skills,
        hooks=hooks,
        packages=packages,
        warnings=(
            *warnings,
            *homes.home_warnings(home),
            *cut,
            *skill_warnings,
            *hook_warnings,
            *server_warnings,
            *_retired_engines(layers),
            *((exposed,) if private.is_relative_to(root) else ()),
        ),
    )


def section(kind: type[Section], layers: Sequence[Layer]) -> Section:
    """Return one section of the settings, of all layers. ConfigError says which value is wrong."""
    name = next(name for name, each in sections().items() if each is kind)
    found = kind(**_merged(name, layers))
    if isinstance(found, BrowserSettings):
        connections = [key for key in ("cdp_url", "wss_url", "profile") if getattr(found, key)]
        if len(connections) > 1:
            raise ConfigError(f"[browser] sets {' and '.join(connections)}; set one of them.")
    return found


def _merged(table: str, layers: Sequence[Layer]) -> dict[str, Any]:
    """Return the fields of `Settings`, or of a section of it, that some layer sets."""
    names = {each.name for each in dataclasses.fields(sections().get(table, Settings))}
    by_field: dict[str, list[Declared]] = {}
    for key in declared().values():
        # Which MCP servers count is decided by `config.mcp`.
        if key.of.table == table and key.of.name in names - {"mcp_servers"}:
            by_field.setdefault(key.of.name, []).append(key)
    values = {name: _merged_value(keys, layers) for name, keys in by_field.items()}
    return {name: value for name, value in values.items() if value is not None}


def _merged_value(keys: Sequence[Declared], layers: Sequence[Layer]) -> Any:
    """Return the value of one field, parsed; None if no layer sets it.

    `keys` are all that set the field. In one layer, the key of a part counts before the whole. The
    most important layer is the first.
    """
    one, setting = keys[0], keys[0].setting
    given = [layer for layer in layers if any(key.name in layer.values for key in keys)]
    if not given:
        return None
    if setting.join:
        names = [str(layer.path or f"Context.{one.of.context}") for layer in given]
        return setting.join([*zip(names, (each.values[one.name] for each in given), strict=True)])
    value: Any = {}
    for layer in reversed(given if setting.merged else given[:1]):
        for key in keys:
            if key.name in layer.values:
                found = layer.values[key.name]
                entries = {key.part: found} if key.part else found
                value = {**value, **entries} if setting.merged else entries
    return setting.parse(value) if setting.parse else value


def database_url(context: Context | None = None) -> DatabaseUrl:
    """Return the address of the database. Blocks. ConfigError if it, or a file, is wrong."""
    return storage_settings(context).database_url or DatabaseUrl.in_folder(homes.openmanus_home())


def storage_settings(context: Context | None = None) -> StorageSettings:
    """Return the settings of storage. Blocks. ConfigError as `database_url`."""
    return section(StorageSettings, all_layers(context or Context())[0])


def server_settings() -> ServerSettings:
    """Return the settings of this process as a server, whatever a run's context says. Blocks."""
    return section(ServerSettings, all_layers(Context())[0])


def automation() -> tuple[Mapping[str, Trigger], Mapping[str, Channel]]:
    """Return the triggers and channels as written. Blocks. ConfigError: a file is wrong."""
    found = _merged("", all_layers(Context())[0])
    return found.get("triggers", {}), found.get("channels", {})


def all_layers(context: Context) -> tuple[list[Layer], list[str]]:
    """Read all layers by precedence, with warnings. ConfigError as `read_layers`."""
    context_layer = _context_layer(context)
    files, warnings = read_layers(context.config)
    warnings += [f"{key} is not known here and was left out." for key in context_layer.unknown]
    return [context_layer, _environment_layer(), *files], warnings


def read_layers(config: str | None) -> tuple[list[Layer], list[str]]:
    """Read the configuration files that exist, by precedence, with warnings.

    Risky settings of the working folder that the user has not trusted are left out. A ConfigError
    says where a file is wrong.
    """
    own: list[Path] = []
    folder = Path()
    with contextlib.suppress(FileNotFoundError):  # the folder itself is gone
        folder = Path.cwd()
        own = [folder / name for name in WORKING_FOLDER_FILES]
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
                raise ConfigError(
                    f"There is no configuration file {config}. Check the path of --config."
                )
            continue
        warnings += [f"{path}: {key} is not known here and was left out." for key in layer.unknown]
        if not trusted and homes.risky_settings(layer) and not homes.is_trusted(folder, layer):
            names = ", ".join(homes.risky_settings(layer))
            warnings.append(
                f"{path} sets {names}: not used until you trust this folder (openmanus trust)."
            )
            layer = homes.without_risks(layer)
        layers.append(layer)
    return layers, warnings


def _context_layer(context: Context) -> Layer:
    layer = Layer()
    for key in declared().values():
        name = key.of.context
        # `config.model` reads the fields that may hold instances of models.
        if name and key.name != "llm.fallback":
            value = getattr(context, name)
            if name not in ("model", "vision_model") or isinstance(value, str):
                layer.add(key, value, name)
    for table in CONTEXT_TABLES:
        layer.read(getattr(context, table) or {}, f"{table}.")
    if layer.problems:
        raise ConfigError(f"The run's settings are wrong: {'; '.join(layer.problems)}.")
    unknown_web_keys = [key[4:] for key in layer.unknown if key.startswith("web.")]
    if unknown_web_keys:
        raise ConfigError(f"There is no [web] key {', '.join(unknown_web_keys)}.")
    return layer


def _environment_layer() -> Layer:
    layer = Layer()
    for key in declared().values():
        variable = first(name for name in key.env if os.environ.get(name))
        layer.add(key, variable and os.environ[variable], key.name)
        if layer.problems:
            problem = layer.problems[0].partition(": ")[2]
            raise ConfigError(f"The environment variable {variable} is wrong: {problem}.")
        prefix = key.setting.env_prefix
        if prefix:
            named = [name for name in os.environ if name.startswith(prefix)]
            entries = {name.removeprefix(prefix).lower(): os.environ[name] for name in named}
            layer.add(key, entries or None, key.name)
    return Layer(layer.values)


def private_folder(home: Path, workspace: Path, thread: str | None) -> Path:
    """Return the folder of our own files of a thread, which is outside of its workspace.

    If the home folder is in the workspace, the user's state folder is used instead. If both are,
    the home folder is used, and `resolve_settings` warns. Runs without a thread share one for each
    workspace, so that files named in their conversations can be read later.
    """
    name = Path("threads", safe_name(thread)) if thread else Path("runs", safe_name(str(workspace)))
    outside = (place for place in private_places(home) if not place.is_relative_to(workspace))
    return next(outside, home) / name


def private_folders(home: Path, thread: str) -> list[Path]:
    """Return where a thread's private folder may be, for any workspace."""
    return [place / "threads" / safe_name(thread) for place in private_places(home)]


def private_places(home: Path) -> list[Path]:
    return [home, state_folder() / hashlib.sha256(os.fsencode(home)).hexdigest()[:16]]


def state_folder() -> Path:
    """Return the folder of our own files of the user, outside of every home folder."""
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    return state.resolve() / "openmanus"


def safe_name(thread: str) -> str:
    """Turn a thread's id into the name of a folder; no two threads share one."""
    name = re.sub(r"[^\w.-]+", "_", thread).strip("._")[:80]
    if name == thread:
        return name
    return f"{name or 'thread'}-{hashlib.sha256(thread.encode()).hexdigest()[:8]}"


_ACCEPTED = (
    'Give a JSON schema such as {"type": "object", "properties": {...}}, the form that OpenAI\'s '
    'API takes, {"type": "json_schema", "json_schema": {"schema": {...}}}, or the class of a '
    "pydantic model."
)
_WRAPPING = {"type", "name", "description", "strict", "schema"}
"""The keys around a schema in that form, or in the one of OpenAI's newer API."""


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
        raise _wrong(f"is neither a dict nor a model, but {given!r:.60}")
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


def _retired_engines(layers: Sequence[Layer]) -> Iterator[str]:
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
    """Choose the model; an error also names files that are not trusted yet."""
    try:
        return main_model(context, layers)
    except ConfigError as error:
        trust_warnings = [warning for warning in warnings if "openmanus trust" in warning]
        raise ConfigError(" ".join([str(error), *trust_warnings])) from error


def _validated(context: Context) -> Context:
    # LangGraph's server keeps wrong values (`max_steps="many"`), so a Context is checked here.
    checked: dict[str, Any] = {}
    problems: list[str] = []
    for each in dataclasses.fields(Context):
        value = getattr(context, each.name)
        if value is None:
            continue
        try:
            checked[each.name] = _context_adapter(each.name).validate_python(value)
        except ValidationError as error:
            found = error.errors(include_url=False, include_input=False)
            problems += [f"{each.name}: {item['msg']}" for item in found]
    if problems:
        raise ConfigError(f"The run's settings are wrong: {'; '.join(problems)}.")
    return dataclasses.replace(context, **checked)


@cache
def _context_adapter(name: str) -> TypeAdapter[Any]:
    """Return the validator of a field of `Context`. Most runs set few: none is built for all."""
    types: dict[str, Any] = {each.name: each.type for each in dataclasses.fields(Context)}
    return TypeAdapter(types[name])


def _protected(
    home: Path, workspace: Path, profile: str | None, layers: Sequence[Layer]
) -> tuple[Path, ...]:
    """Return what tools must not reach: configuration, keys, and a browser's logins."""
    paths = [home, config_home(), *(Path(name).absolute() for name in KEY_FILES)]
    paths += [layer.path for layer in layers if layer.path is not None]
    paths += [Path(profile).expanduser().absolute()] if profile else []
    paths += [workspace.absolute() / name for name in (*KEY_FILES, homes.HOME)]
    return tuple(dict.fromkeys(path.resolve() for path in paths))
