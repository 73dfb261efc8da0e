"""Merge what the caller passed over environment, files and defaults.

Order: options (the `Context`) > environment > `./openmanus.toml` or `Context.config` >
the person's `config.toml` > OpenManus's `config/config.toml` > defaults.
"""

import dataclasses
import hashlib
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

from langgraph.runtime import Runtime
from pydantic import TypeAdapter, ValidationError

from openmanus_graph.config.browser import browser_settings
from openmanus_graph.config.files import OLD_CONFIG, Layer, is_foreign, read_layer
from openmanus_graph.config.mcp import mcp_servers
from openmanus_graph.config.model import first, main_model, vision_model
from openmanus_graph.config.policy import policy_mode, policy_rules
from openmanus_graph.config.search import search_settings
from openmanus_graph.config.trust import (
    config_home,
    is_trusted,
    risky_settings,
    without_risks,
)
from openmanus_graph.config.web import allowed_hosts, web_settings
from openmanus_graph.errors import ConfigError
from openmanus_graph.outcome import ResponseFormat
from openmanus_graph.settings import MAX_COST_USD, ModelSettings, SandboxSettings, Settings
from openmanus_graph.state.context import Context

WORKING_FOLDER_FILES = ("openmanus.toml", "mcp.json", OLD_CONFIG, "config/mcp.json")
"""Most important first; those of OpenManus come after the person's own."""
KEY_FILES = (".env", *WORKING_FOLDER_FILES)
HOME = ".openmanus"
MAX_INSTRUCTIONS_CHARS = 20_000
POSITIVE = (
    "max_steps",
    "max_cost_usd",
    "max_total_tokens",
    "timeout_s",
    "max_parallel_steps",
    "step_timeout_s",
)


def resolve_context(runtime: Runtime[Any], thread: str) -> Settings:
    """Merge a run's context into settings. Blocks: call it off the event loop.

    Inside another app's graph the runtime carries that app's context; ours then counts as unset.

    Args:
        runtime: The node's runtime.
        thread: Names the default workspace.

    Raises:
        ConfigError: A value is wrong, and which.
    """
    context = runtime.context if isinstance(runtime.context, Context) else Context()
    return resolve_settings(context, thread)


def resolve_settings(context: Context, thread: str, *, without_model: bool = False) -> Settings:
    """Merge a context into settings. Blocks. ConfigError as `resolve_context`.

    Args:
        context: What the caller passed.
        thread: Names the default workspace.
        without_model: No model is needed, so none has to be set.
    """
    context = _validated(context)
    layers, warnings = read_layers(context.config)
    pick = _Picker(context, layers)
    home = openmanus_home()
    workspace = Path(pick("workspace") or Path("workspace") / safe_name(thread)).expanduser()
    sandbox = _sandbox(context, layers)
    servers, odd_servers = mcp_servers(context, layers)
    main = ModelSettings("") if without_model else _main_model(context, layers, warnings)
    search, odd = search_settings(context, layers)
    browser, odd_browser = browser_settings(context, layers)
    protected = [home, config_home(), *(Path(name).absolute() for name in KEY_FILES)]
    protected += [layer.path for layer in layers]
    if browser.profile:
        protected.append(Path(browser.profile).expanduser().absolute())
    protected += [workspace.absolute() / name for name in (*KEY_FILES, HOME)]
    # OpenManus's `max_input_tokens` is a budget of the whole process, not a context limit.
    token_limits = (layer.config.max_total_tokens or layer.llm.max_input_tokens for layer in layers)
    token_limit = context.max_total_tokens or first(token_limits)
    return Settings(
        main=main,
        vision=None if without_model else vision_model(context, layers, main),
        workspace=workspace.resolve(),
        home=home,
        protected=tuple(dict.fromkeys(path.resolve() for path in protected)),
        sandbox=sandbox,
        max_steps=pick("max_steps", 20),
        max_steps_set=pick("max_steps") is not None,
        max_cost_usd=pick("max_cost_usd", MAX_COST_USD),
        max_total_tokens=token_limit,
        timeout_s=pick("timeout_s"),
        max_parallel_steps=pick("max_parallel_steps", 4),
        step_timeout_s=pick("step_timeout_s", 3600.0),
        review_plan=pick("review_plan", False),
        policy=policy_mode(context, layers),
        rules=policy_rules(context, layers),
        allow_hosts=allowed_hosts(pick("allow_hosts", ())),
        web=web_settings(context, layers),
        tools=pick("tools"),
        mcp_servers=servers,
        prompts=pick("prompts", {}),
        browser=browser,
        search=search,
        prices=first(layer.config.prices for layer in layers) or {},
        response_format=_plain_format(context.response_format),
        instructions=_instructions(),
        warnings=(*warnings, *odd, *odd_browser, *odd_servers),
    )


def openmanus_home() -> Path:
    """Return the folder of threads, checkpoints and ledger: `OPENMANUS_HOME` or `./.openmanus`."""
    return Path(os.environ.get("OPENMANUS_HOME") or HOME).expanduser().resolve()


def safe_name(thread: str) -> str:
    """Turn a thread's id into the name of a folder; no two threads share one."""
    name = re.sub(r"[^\w.-]+", "_", thread).strip("._")[:80]
    if name == thread:
        return name
    return f"{name or 'thread'}-{hashlib.sha256(thread.encode()).hexdigest()[:8]}"


def read_layers(config: str | None) -> tuple[list[Layer], list[str]]:
    """Read the configuration files that exist, most important first, and what was odd.

    Risky settings of the working folder that the person has not trusted are left out.
    """
    folder = Path.cwd()
    if config is not None and not Path(config).is_file():
        raise ConfigError(f"There is no configuration file {config}. Check the path of --config.")
    own, servers, *old = [(folder / name, False) for name in WORKING_FOLDER_FILES]
    places = [
        (Path(config), True) if config else own,
        servers,
        (config_home() / "config.toml", True),
        (config_home() / "mcp.json", True),
        *(place for place in old if not is_foreign(place[0])),
    ]
    layers: list[Layer] = []
    warnings: list[str] = []
    for path, trusted in places:
        if not path.is_file():
            continue
        layer = read_layer(path)
        warnings += [f"{path}: {key} is not known here and was left out." for key in layer.unknown]
        if not trusted and risky_settings(layer) and not is_trusted(folder, layer):
            names = ", ".join(risky_settings(layer))
            warnings.append(
                f"{path} sets {names}: not used until you trust this folder (openmanus trust)."
            )
            layer = without_risks(layer)
        layers.append(layer)
    return layers, warnings


def _main_model(context: Context, layers: list[Layer], warnings: list[str]) -> ModelSettings:
    """Choose the model; if there is none, say as well that a file which is not trusted has one."""
    try:
        return main_model(context, layers)
    except ConfigError as error:
        waiting = [warning for warning in warnings if "openmanus trust" in warning]
        raise ConfigError(" ".join([str(error), *waiting])) from error


class _Picker:
    """Takes a setting from the first place that has it."""

    def __init__(self, context: Context, layers: Iterable[Layer]) -> None:
        self.sources = [context, *(layer.config for layer in layers)]

    def __call__(self, name: str, default: Any = None) -> Any:
        found = first(getattr(source, name, None) for source in self.sources)
        return default if found is None else found


def _validated(context: Context) -> Context:
    # The server keeps wrong values (`max_steps="many"`), so a Context is checked here.
    fields = {field.name: getattr(context, field.name) for field in dataclasses.fields(context)}
    try:
        checked = _CONTEXT.validate_python(fields)
    except ValidationError as error:
        problems = "; ".join(
            f"{item['loc'][0]}: {item['msg']}"
            for item in error.errors(include_url=False, include_input=False)
        )
        raise ConfigError(f"The run's settings are wrong: {problems}.") from error
    for name in POSITIVE:
        value = getattr(checked, name)
        if value is not None and not value > 0:
            raise ConfigError(f"{name} is {value}; it must be more than 0.")
    return checked


_CONTEXT = TypeAdapter(Context)


def _sandbox(context: Context, layers: list[Layer]) -> SandboxSettings:
    chosen: dict[str, Any] = {}
    for field in dataclasses.fields(SandboxSettings):
        value = first(getattr(layer.config.sandbox, field.name) for layer in layers)
        if value is not None:
            chosen[field.name] = value
    old_limit = first(layer.config.sandbox.memory_limit for layer in layers)
    if old_limit and "memory_mb" not in chosen:
        chosen["memory_mb"] = _megabytes(old_limit)
    if context.sandbox is not None:
        chosen["mode"] = context.sandbox
    if context.network is not None:
        chosen["network"] = context.network
    return SandboxSettings(**chosen)


def _megabytes(limit: str) -> int:
    match = re.fullmatch(r"(\d+)([mg])b?", limit.strip().lower())
    if match is None:
        raise ConfigError(f"[sandbox] memory_limit is {limit!r}; write it like 512m or 2g.")
    return int(match[1]) * (1024 if match[2] == "g" else 1)


def _plain_format(response_format: ResponseFormat | None) -> ResponseFormat | None:
    """Take the schema out of the wrapping that OpenAI's API wants around it."""
    if not isinstance(response_format, dict):
        return response_format
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import validator_for

    wrapped = cast("dict[str, Any]", response_format.get("json_schema") or response_format)
    schema: dict[str, Any] = wrapped["schema"] if "json_schema" in response_format else wrapped
    try:
        validator_for(schema).check_schema(schema)
    except SchemaError as error:
        raise ConfigError(f"response_format is no JSON schema: {error.message[:300]}") from error
    return schema


def _instructions() -> str:
    """Read the project's instructions for agents, if the working folder has them."""
    path = Path("AGENTS.md")
    # A cloned folder must not send files from elsewhere to the model, by a link.
    if not path.is_file() or not path.resolve().is_relative_to(Path.cwd().resolve()):
        return ""
    try:
        return path.read_text(encoding="utf-8", errors="replace")[:MAX_INSTRUCTIONS_CHARS]
    except OSError as error:
        raise ConfigError(f"{path.absolute()} cannot be read: {error.strerror}.") from error
