"""Chooses the model of a run, and stores models and keys that `openmanus init` or the page ask for.

A server of this machine is used if none is configured. Keys are in `credentials.json`, which only
the user can read, or in the keyring if the package `keyring` works. A key goes only to the server
that it was given for.
"""

import asyncio
import contextlib
import http.client
import json
import os
import re
import stat
import tomllib
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args
from urllib.parse import urlsplit

from pydantic import SecretStr

from openmanus_graph.config.files import Layer, changed_object, config_home, read_object, write_file
from openmanus_graph.errors import ConfigError
from openmanus_graph.state.addresses import is_loopback
from openmanus_graph.state.context import Context, ModelRole
from openmanus_graph.state.json_values import as_list, as_object
from openmanus_graph.state.model_settings import LlmKeys, ModelSettings, ProfileKeys

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

MAIN_USE: Mapping[str, Any] = {
    "tool_calling": "auto",
    "profile": "auto",
    "effort": None,
    "takes_media": None,
    "requests_per_minute": None,
    "tokens_per_minute": None,
}
"""Keys of `[llm]` that apply to the main model of any provider, and their defaults."""
API_TYPES = {"": "openai", "openai": "openai", "azure": "azure", "aws": "bedrock"}
_OF_ONE_MODEL = ("vision", "context_window", "takes_media", "tool_calling", "profile", "effort")
USUAL_PORTS = (11434, 1234, 8000, 8080, 9931)
"""Ollama, LM Studio, vLLM, llama.cpp now and later; the first that lists a chat model is taken."""
LOCAL_PORTS_VARIABLE = "OPENMANUS_LOCAL_PORTS"
"""Names other ports, separated by commas; empty: none are asked."""

_NOT_FOR_CHAT = ("embed", "bge-", "e5-", "gte-", "minilm", "rerank", "whisper", "tts", "ocr")


def main_model(context: Context, layers: Sequence[Layer]) -> ModelSettings:
    """Choose the main model and how to reach it. ConfigError says what to set."""
    use = {name: _first_value(f"llm.{name}", layers) or usual for name, usual in MAIN_USE.items()}
    if context.model is not None and not isinstance(context.model, str):
        return ModelSettings(context.model, options=context.model_options or {}, **use)
    # A file's model may be a plain name, as OpenManus writes it; its `api_type` is the provider.
    spec: str | None = first(map(_named_model, layers))
    provider = spec.partition(":")[0].strip().lower() if spec else "openai"
    files = [layer for layer in layers if layer.path is not None]
    layer = first(file for file in files if _is_of(file.llm, provider))
    section = (layer.llm if layer else None) or LlmKeys()
    base_url = context.base_url
    if base_url is None and provider == "openai":
        base_url = os.environ.get("OPENAI_BASE_URL") or None
    base_url = base_url or first(_base_url(file, provider) for file in files)
    # A file's key goes to that file's own server, never to another.
    own = layer is not None and base_url == _base_url(layer, provider)
    key: SecretStr | None = section.api_key if own else None
    if provider == "openai" and os.environ.get("OPENAI_API_KEY"):
        key = SecretStr(os.environ["OPENAI_API_KEY"])
    stored = stored_key(provider, base_url)
    if provider == "openai" and base_url is None and key is None and stored is None:
        spec, base_url = _local_model(spec)
    if spec is None:
        raise ConfigError(
            "No model is set. Run openmanus init, give --model PROVIDER:NAME, or set "
            "OPENMANUS_MODEL (for example openai:gpt-5-mini)."
        )
    return ModelSettings(
        model=spec,
        base_url=base_url,
        api_key=key,
        stored_key=stored,
        api_version=section.api_version,
        options={
            **_llm_options(section),
            **(context.model_options or _first_value("model_options", layers) or {}),
        },
        vision=section.sees_images,
        context_window=section.context_window,
        **use,
    )


def _local_model(spec: str | None) -> tuple[str, str]:
    found = asyncio.run(find_local_server())
    if found is None:
        raise ConfigError(
            "There is no model to talk to: OPENAI_API_KEY is not set, no --base-url is given, and "
            "no local server (Ollama, LM Studio, vLLM, llama.cpp) answers on its usual port. "
            "Set one up with openmanus init, or set OPENAI_API_KEY, or give --model PROVIDER:NAME "
            "with that provider's key, or start a local server. `openmanus demo` needs none of "
            "them."
        )
    base_url, name = found
    return spec or f"openai:{name}", base_url


def other_models(context: Context, layers: Sequence[Layer], main: ModelSettings) -> dict[str, Any]:
    """Return `fallback`, `roles` and `vision` of `Settings`.

    A model is named by `PROVIDER:NAME`, by its profile, or is an instance. Raises ConfigError if
    there is no such profile.
    """
    profiles: dict[str, ProfileKeys] = {}
    for layer in reversed(layers):
        profiles |= layer.values.get("llm.profiles", {})

    def named(name: "str | BaseChatModel", key: str) -> ModelSettings:
        if not isinstance(name, str):
            return ModelSettings(name)
        if (profile := profiles.get(name)) is not None:
            renamed = {"model_options": "options", "sees_images": "vision"}
            fields = {renamed.get(key, key): value for key, value in vars(profile).items()}
            stored = stored_key(profile.model.partition(":")[0], profile.base_url)
            return ModelSettings(**fields, stored_key=stored)
        if ":" in name:
            return _in_addition(name, main)
        known = ", ".join(profiles) or "there are none"
        raise ConfigError(
            f"{key} names the model {name!r}, which is neither PROVIDER:NAME nor a table "
            f"[llm.profiles.{name}]; profiles: {known}."
        )

    fallback = context.fallback
    if fallback is None:
        fallback = _first_value("llm.fallback", layers) or ()
    roles = {
        role: (context.roles or {}).get(role) or _first_value(f"llm.roles.{role}", layers)
        for role in cast("tuple[ModelRole, ...]", get_args(ModelRole))
    }
    vision = context.vision_model or _first_value("vision_model", layers)
    return {
        "fallback": tuple(named(name, "[llm] fallback") for name in fallback),
        "roles": {
            role: named(name, f"[llm.roles] {role}")
            for role, name in roles.items()
            if name is not None
        },
        "vision": replace(named(vision, "vision_model"), vision=True)
        if vision is not None
        else _vision_section(layers),
    }


def _vision_section(layers: Sequence[Layer]) -> ModelSettings | None:
    """Return the model of `[llm.vision]`, if there is one."""
    section: LlmKeys | None = first(layer.llm_keys("llm.vision") for layer in layers)
    if section is None or section.model is None:
        return None
    return ModelSettings(
        model=f"{_provider(section)}:{section.model}",
        base_url=section.base_url,
        api_key=section.api_key,
        api_version=section.api_version,
        options=_llm_options(section),
        vision=True,
        context_window=section.context_window,
    )


def _in_addition(spec: str, main: ModelSettings) -> ModelSettings:
    """Return a model with server, key and rates, but no others, of one of the same provider."""
    provider = spec.partition(":")[0]
    if not isinstance(main.model, str) or provider != main.model.partition(":")[0]:
        return ModelSettings(spec, stored_key=stored_key(provider, None))
    own = ModelSettings(spec)
    return replace(main, model=spec, **{name: getattr(own, name) for name in _OF_ONE_MODEL})


def _named_model(layer: Layer) -> str | None:
    model: str | None = layer.values.get("model")
    if model is None and layer.llm is not None and layer.llm.model:
        return f"{_provider(layer.llm)}:{layer.llm.model}"
    return model


def _provider(section: LlmKeys) -> str:
    # Anything else OpenManus treats as an OpenAI-compatible server, "ollama" included.
    return API_TYPES.get(section.api_type.lower(), "openai")


def _llm_options(section: LlmKeys) -> dict[str, Any]:
    options = {"max_tokens": section.max_tokens, "temperature": section.temperature}
    return {key: value for key, value in options.items() if value is not None}


def _first_value(key: str, layers: Sequence[Layer]) -> Any:
    return first(layer.values.get(key) for layer in layers)


def first(values: Iterable[Any]) -> Any:
    return next((value for value in values if value is not None), None)


def _is_of(section: LlmKeys | None, provider: str) -> bool:
    """Return True if a section is for this provider, or for any."""
    if section is None:
        return False
    named = section.model or section.base_url or section.api_key or section.api_type
    return not named or _provider(section) == provider


def _base_url(layer: Layer, provider: str) -> str | None:
    own = (layer.values.get("model") or "openai").partition(":")[0].strip().lower()
    if "base_url" in layer.values and own == provider:
        return cast("str", layer.values["base_url"])
    return layer.llm.base_url if layer.llm is not None and _is_of(layer.llm, provider) else None


def local_ports() -> Sequence[int]:
    """Return the ports of this machine that may have a model server. ConfigError: wrong."""
    named = os.environ.get(LOCAL_PORTS_VARIABLE)
    if named is None:
        return USUAL_PORTS
    ports = [one.strip() for one in named.split(",") if one.strip()]
    if not all(one.isdecimal() and 0 < int(one) < 65536 for one in ports):
        raise ConfigError(
            f"{LOCAL_PORTS_VARIABLE} is {named!r}, which is not a list of ports. Write them "
            "separated by commas (11434,8080), or leave it empty to look for no server."
        )
    return [int(one) for one in ports]


async def find_local_server() -> tuple[str, str] | None:
    """Ask all `local_ports` at once; return the base URL and the first chat model, or None.

    ConfigError: the variable that names the ports is wrong.
    """
    addresses = [f"http://127.0.0.1:{port}/v1" for port in local_ports()]
    asked = (asyncio.to_thread(listed_models, address) for address in addresses)
    listed = zip(addresses, await asyncio.gather(*asked), strict=True)
    return next(((address, models[0]) for address, models in listed if models), None)


def listed_models(base_url: str, key: str = "", timeout_s: float = 1.0) -> list[str] | None:
    """Return the chat models that a server of OpenAI's protocol lists. Blocks.

    An empty list if it lists none, without a key for example; None if nobody answers.
    """
    parts = urlsplit(base_url)
    if parts.scheme not in ("http", "https"):
        return None
    # Proxy variables must not send a question about this machine elsewhere.
    direct = [urllib.request.ProxyHandler({})] if is_loopback(parts.hostname or "") else []
    opener = urllib.request.build_opener(*direct)
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    request = urllib.request.Request(f"{base_url.rstrip('/')}/models", headers=headers)
    try:
        with opener.open(request, timeout=timeout_s) as answer:
            listed = as_object(json.load(answer))
    except (urllib.error.HTTPError, ValueError, RecursionError):
        return []
    except (OSError, http.client.HTTPException):
        return None
    names = (as_object(entry).get("id") for entry in as_list(listed.get("data")))
    texts = [name for name in names if isinstance(name, str)]
    return [one for one in texts if not any(part in one.lower() for part in _NOT_FOR_CHAT)]


KEYS_FILE, CONFIG_FILE = "credentials.json", "config.toml"
SERVICE = "openmanus"
_TABLE = re.compile(r"^\s*\[", re.MULTILINE)


def stored_key(provider: str, base_url: str | None) -> SecretStr | None:
    """Return the key that was stored for a provider at this address. Blocks."""
    name = _server_name(provider, base_url)
    entry = _entries().get(name, {})
    key = _key_of(name, entry)
    return SecretStr(key) if key else None


def stored_keys() -> list[str]:
    found = (_key_of(name, entry) for name, entry in _entries().items())
    return [key for key in found if isinstance(key, str)]


def store_key(provider: str, base_url: str | None, key: str) -> str:
    """Store a key, and return where, in words. Blocks. ConfigError if it cannot be stored."""
    name = _server_name(provider, base_url)
    _from_keyring.cache_clear()
    in_keyring = _from_keyring(name, key) == key
    _from_keyring.cache_clear()
    path = config_home() / KEYS_FILE
    with changed_object(path, mode=0o600) as entries:
        entries[name] = {"keyring": True} if in_keyring else {"key": key}
    return "the system's keyring" if in_keyring else f"{path} (only you can read it)"


def store_model(spec: str, base_url: str | None, window: int | None = None) -> Path:
    """Write the model into the user's configuration, and keep the rest of it. Blocks.

    `spec` is `PROVIDER:NAME`. `window` is the number of tokens of one request; None removes the
    value that was set for another model. Raises ConfigError if the file is not TOML, or cannot be
    written.
    """
    path = config_home() / CONFIG_FILE
    try:
        text = path.read_text("utf-8") if path.exists() else ""
        changed = with_values(text, {"model": spec, "base_url": base_url})
        changed = with_values(changed, {"context_window": window}, "llm")
        mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o644
    except (OSError, ValueError, RecursionError) as error:  # ValueError: no TOML, no UTF-8
        raise ConfigError(
            f"{path} cannot be changed: {error}. Write model = {json.dumps(spec)} into it."
        ) from error
    write_file(path, changed, mode=mode)
    return path


def with_values(text: str, values: Mapping[str, str | int | None], table: str = "") -> str:
    """Return a TOML text with these values at its top level, or in a table; None removes one.

    Everything else in it is kept, comments too. Raises ValueError if it is not TOML, or not
    understood: a key over several lines, for example.
    """
    wanted = tomllib.loads(text)
    known: dict[str, Any] = wanted.get(table, {}) if table else wanted
    if not any(values.values()) and not known.keys() & values.keys():
        return text
    head, rest = "", text
    if table:
        begins = re.search(rf"^[ \t]*\[{table}\][^\n]*\n?", text, re.MULTILINE)
        head = text[: begins.end()] if begins else f"{text.rstrip()}\n\n[{table}]\n"
        rest = text[begins.end() :] if begins else ""
    end = match.start() if (match := _TABLE.search(rest)) else len(rest)
    keys = rest[:end]
    for key in values:
        keys = re.sub(rf"^[ \t]*(?:{key}|\"{key}\")[ \t]*=.*\n?", "", keys, flags=re.MULTILINE)
    lines = [f"{key} = {json.dumps(v, ensure_ascii=False)}\n" for key, v in values.items() if v]
    changed = f"{head}{''.join(lines)}{keys}{rest[end:]}"
    kept = {key: value for key, value in known.items() if key not in values}
    kept |= {key: value for key, value in values.items() if value}
    wanted = {**wanted, table: kept} if table else kept
    if tomllib.loads(changed) != wanted:
        where = f"its table [{table}]" if table else "its beginning"
        raise ValueError(f"{where} is not understood")
    return changed


def _server_name(provider: str, base_url: str | None) -> str:
    """Name the server that a key was given for: it is never sent to another one."""
    return f"{provider} {base_url}" if base_url else provider


def _entries() -> dict[str, dict[str, Any]]:
    entries = read_object(config_home() / KEYS_FILE)
    return {name: entry for name, entry in entries.items() if isinstance(entry, dict)}


def _key_of(name: str, entry: Mapping[str, Any]) -> Any:
    return _from_keyring(name) if entry.get("keyring") else entry.get("key")


@lru_cache
def _from_keyring(name: str, new: str | None = None) -> str | None:
    """Return a key of the system's keyring, first stored if it is `new`; None if none works."""
    if find_spec("keyring") is not None:
        keyring: Any = import_module("keyring")
        with contextlib.suppress(keyring.errors.KeyringError):
            if new is not None:
                keyring.set_password(SERVICE, name, new)
            return cast("str | None", keyring.get_password(SERVICE, name))
    return None
