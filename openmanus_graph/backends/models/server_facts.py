"""Asks a model's server what it says about itself: its kind, the model's window, size and sight."""

import asyncio
import contextlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

import aiohttp

from openmanus_graph.backends.models.endpoint import environment_proxy, tls_context
from openmanus_graph.backends.models.spec import api_key, base_url, parse_spec
from openmanus_graph.errors import ConfigError
from openmanus_graph.state.addresses import PORTS
from openmanus_graph.state.json_values import as_list, as_object
from openmanus_graph.state.model_settings import ModelSettings

ServerKind = Literal["llama.cpp", "ollama", "lmstudio", "vllm", "sglang", "tgi", "openrouter", ""]
OLLAMA_ADDRESS = "http://127.0.0.1:11434"
TIMEOUT_S = 2.0
_MAX_BYTES = 8 << 20
_OPENROUTER = "openrouter.ai"
_BIG = re.compile(
    r"(^|\.)(openai|anthropic|googleapis|azure|amazonaws|aliyuncs|deepseek|groq|mistral|x|together"
    r"|fireworks|moonshot)\.(com|ai|xyz)$"
)
"""Hosts of providers whose models are known by name."""
_PATHS: Mapping[str, Mapping[str, str]] = {
    "llamacpp": {"props": "/props"},
    "library": {"ps": "/api/ps", "show": "/api/show"},
    "vllm": {},
    "sglang": {"sglang": "/get_server_info"},
}
"""What else is asked, by the owner of a model as servers list it: Ollama's is `library`."""
_OTHER_PATHS = {
    "props": "/props",
    "ps": "/api/ps",
    "studio": "/api/v0/models",
    "sglang": "/get_server_info",
    "tgi": "/info",
}
_ANSWERS: Mapping[ServerKind, tuple[str, str, str, str]] = {
    "llama.cpp": (
        "props.default_generation_settings",
        "props.default_generation_settings.n_ctx model.meta.n_ctx",
        "model.meta.n_params",
        "props.modalities.vision",
    ),
    "ollama": (
        "ps.models",
        "running.context_length show.parameters",
        "show.details.parameter_size",
        "show.capabilities",
    ),
    "lmstudio": ("loaded.type", "loaded.loaded_context_length", "", "loaded.type"),
    "sglang": ("sglang.max_req_input_len", "sglang.max_req_input_len", "", ""),
    "tgi": ("tgi.max_total_tokens", "tgi.max_total_tokens", "", ""),
    "vllm": ("model.max_model_len", "model.max_model_len", "", ""),
    "openrouter": (
        "model.architecture",
        "model.context_length",
        "",
        "model.architecture.input_modalities",
    ),
    "": ("", "model.context_length model.meta.n_ctx", "model.meta.n_params", ""),
}
"""By kind, the paths of fields in the answers: one that only this kind has, the window, the number
of parameters, and whether the model sees."""
_NUMBER = re.compile(r"^(?:num_ctx\s+)?(\d{1,9}(?:\.\d{1,9})?)([KMBT]?)\s*$", re.MULTILINE)
"""What Ollama writes as text: the line of the window in its parameters, or `1.5B`."""
_UNITS = {"": 1, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
_LARGER: Mapping[ServerKind, str] = {
    "ollama": "Start Ollama with OLLAMA_CONTEXT_LENGTH=16384, or set num_ctx in a Modelfile: its "
    "/v1 address ignores such options.",
    "lmstudio": "Load the model with a larger context length in LM Studio.",
    "llama.cpp": "Start llama-server with a larger -c, and with --no-context-shift.",
}


@dataclass(frozen=True)
class ServerFacts:
    """What a server reports; None: it does not say."""

    answers: bool = False
    kind: ServerKind = ""
    window: int | None = None
    """Tokens that one request and its reply may have, as the server is set now."""
    parameters: int | None = None
    sees_images: bool | None = None


def larger_window(kind: ServerKind) -> str:
    return _LARGER.get(kind, "Start the server with a larger context.")


def address_of(settings: ModelSettings) -> str | None:
    """Return the address of a model's server if it can report facts and is not a big provider's."""
    if not isinstance(settings.model, str):
        return None
    spec = parse_spec(settings.model)
    if spec.provider.name == "ollama":
        return settings.base_url or OLLAMA_ADDRESS
    address = base_url(spec, settings) or ""
    host = urlsplit(address).hostname or ""
    return address if host and not _BIG.search(host) else None


async def facts_of(settings: ModelSettings) -> ServerFacts:
    """Ask the server of a model, unless it is a big provider's. Never raises."""
    try:
        address = address_of(settings)
        if address is None or not isinstance(settings.model, str):
            return ServerFacts()
        spec = parse_spec(settings.model)
        return await ask_server(address, spec.name, api_key(spec, settings))
    except ConfigError:
        return ServerFacts()


async def ask_server(address: str, model: str, key: str | None = None) -> ServerFacts:
    """Ask a server about itself. Waits two seconds at most, and never raises.

    The key is sent to this server only; redirects are not followed.
    """
    address = address.rstrip("/")
    root = address.removesuffix("/v1")
    try:
        parts = urlsplit(address)
        host, port = parts.hostname or "", parts.port or PORTS[parts.scheme]
        async with aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=TIMEOUT_S / 2),
            connector=aiohttp.TCPConnector(ssl=await asyncio.to_thread(tls_context)),
            proxy=environment_proxy(parts.scheme, host, port),
            headers={"Authorization": f"Bearer {key}"} if key else {},
        ) as session:
            reported = {"models": await _ask(session, f"{root}/v1/models", model)}
            owner = next((_at(one, "owned_by") for one in _entries(reported["models"])), None)
            paths = _PATHS.get(str(owner), _OTHER_PATHS)
            if reported["models"] and host != _OPENROUTER:
                asking = (_ask(session, root + path, model) for path in paths.values())
                reported |= zip(paths, await asyncio.gather(*asking), strict=True)
    except (ConfigError, ValueError, KeyError, OSError):  # the address, or the certificates
        return ServerFacts()
    return _read(model, reported)


async def _ask(session: aiohttp.ClientSession, url: str, model: str) -> Any:
    """Return the JSON at an address; None if there is none."""
    method, body = ("POST", {"model": model}) if url.endswith("/api/show") else ("GET", None)
    try:
        async with session.request(method, url, json=body, allow_redirects=False) as answer:
            if answer.status == 200:
                await answer.content.readexactly(_MAX_BYTES)
    except asyncio.IncompleteReadError as whole:
        with contextlib.suppress(ValueError, RecursionError):
            return json.loads(whole.partial)
    except (aiohttp.ClientError, TimeoutError, ValueError, OSError):
        pass
    return None


def _read(model: str, reported: dict[str, Any]) -> ServerFacts:
    answers = any(reported.values())
    for name, where in (("model", "models"), ("running", "ps"), ("loaded", "studio")):
        reported[name] = _entry(reported.get(where), model)
    listed = _entries(reported["models"])
    if reported["model"] is None and len(listed) == 1:
        reported["model"] = listed[0]  # such a server answers to any name
    kind: ServerKind = next(one for one in _ANSWERS if _at(reported, _ANSWERS[one][0]) is not None)
    window, parameters, sees = (
        [value for path in paths.split() if (value := _at(reported, path)) is not None]
        for paths in _ANSWERS[kind][1:]
    )
    return ServerFacts(
        answers,
        kind,
        next(filter(None, map(_number, window)), None),
        next(filter(None, map(_number, parameters)), None),
        next(map(_sees, sees), None),
    )


def _at(value: Any, path: str) -> Any:
    for key in filter(None, path.split(".")):
        value = as_object(value).get(key)
    return value


def _entries(listed: Any) -> Sequence[Any]:
    return as_list(_at(listed, "data") or _at(listed, "models"))


def _entry(listed: Any, model: str) -> Any:
    names = (model, f"{model}:latest")
    entries = (e for e in _entries(listed) if _at(e, "id") in names or _at(e, "name") in names)
    return next(entries, None)


def _number(value: Any) -> int | None:
    if isinstance(value, str) and (found := _NUMBER.search(value)):
        value = round(float(found[1]) * _UNITS[found[2]])
    return value if isinstance(value, int) and value is not True and value > 0 else None


def _sees(value: Any) -> bool:
    kinds = as_list(value) if isinstance(value, list) else [value]
    return any(kind in (True, "vlm", "vision", "image") for kind in kinds)
