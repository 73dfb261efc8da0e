"""What is known of a model, computed once per run and model and handed down to who needs it."""

import asyncio
import contextlib
import json
import math
import re
import time
import weakref
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Literal, cast
from urllib.parse import urlsplit

import aiohttp
from langchain_core.language_models import BaseChatModel

from openmanus_graph.backends.models.build import model_name, prepare_model
from openmanus_graph.backends.models.dialects import Dialect, known_dialect
from openmanus_graph.backends.models.endpoint import (
    api_key,
    base_url,
    environment_proxy,
    tls_context,
)
from openmanus_graph.backends.models.learnt import LearntDialect, server_name
from openmanus_graph.backends.models.prices import find_price, is_local, name_query
from openmanus_graph.backends.models.spec import parse_spec, provider_of, wire_provider
from openmanus_graph.config.files import config_home
from openmanus_graph.errors import ConfigError
from openmanus_graph.state.addresses import PORTS
from openmanus_graph.state.model_settings import ModelSettings

ServerKind = Literal["llama.cpp", "ollama", "lmstudio", "vllm", "sglang", "tgi", "openrouter", ""]
OLLAMA_ADDRESS = "http://127.0.0.1:11434"
TIMEOUT_S = 2.0
SMALL_WINDOW = 8192
"""Tokens; fewer are little for an agent."""
_MOST_BYTES = 8 << 20
_OPENROUTER = "openrouter.ai"
_BIG = re.compile(
    r"(^|\.)(openai|anthropic|googleapis|azure|amazonaws|aliyuncs|deepseek|groq|mistral|x|together"
    r"|fireworks|moonshot)\.(com|ai|xyz)$"
)
"""Hosts of providers whose models are known by name."""
_PATHS = {
    "llamacpp": {"props": "/props"},
    "library": {"ps": "/api/ps", "show": "/api/show"},
    "vllm": {},
    "sglang": {"sglang": "/get_server_info"},
}
"""What else is asked, by the owner of a model as servers list it: of Ollama's it is `library`."""
_OTHER_PATHS = {
    "props": "/props",
    "ps": "/api/ps",
    "studio": "/api/v0/models",
    "sglang": "/get_server_info",
    "tgi": "/info",
}
_TOLD: Mapping[ServerKind, tuple[str, str, str, str]] = {
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
"""Where an answer tells by which kind of server it is; the window; parameters; whether it sees."""
_NUMBER = re.compile(r"^(?:num_ctx\s+)?(\d{1,9}(?:\.\d{1,9})?)([KMBT]?)\s*$", re.MULTILINE)
"""What Ollama writes as text: the line of the window in its parameters, or `1.5B`."""
_STAYS: Any = {"allow_redirects": False}
_UNITS = {"": 1, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
_LARGER: Mapping[ServerKind, str] = {
    "ollama": "Start Ollama with OLLAMA_CONTEXT_LENGTH=16384, or set num_ctx in a Modelfile: its "
    "/v1 address ignores such options.",
    "lmstudio": "Load the model with a larger context length in LM Studio.",
    "llama.cpp": "Start llama-server with a larger -c, and with --no-context-shift.",
}


@dataclass(frozen=True)
class ServerFacts:
    """What a server tells; None: it does not."""

    answers: bool = False
    kind: ServerKind = ""
    window: int | None = None
    """Tokens that one request and its reply may have, as the server is set now."""
    parameters: int | None = None
    """Of the model."""
    sees_images: bool | None = None


def address_of(settings: ModelSettings) -> str | None:
    """Return the address of a model's server if that can tell facts, and not a big provider's."""
    if not isinstance(settings.model, str):
        return None
    spec = parse_spec(settings.model)
    if spec.provider.name == "ollama":
        return settings.base_url or OLLAMA_ADDRESS
    address = base_url(spec, settings) or ""
    host = urlsplit(address).hostname or ""
    return address if host and not _BIG.search(host) else None


def larger_window(kind: ServerKind) -> str:
    """Say how a server is given a larger window."""
    return _LARGER.get(kind, "Start the server with a larger context.")


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
    """Ask a server what it tells. Waits two seconds at most for it, and never raises.

    Args:
        address: Its base URL, with or without `/v1`.
        model: Name of the model there.
        key: Sent to this server only; it is not followed elsewhere.
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
    """Return what an address answers, as JSON; None if it is none."""
    if url.endswith("/api/show"):
        asking = session.post(url, json={"model": model}, **_STAYS)
    else:
        asking = session.get(url, **_STAYS)
    try:
        async with asking as answer:
            if answer.status == 200:
                await answer.content.readexactly(_MOST_BYTES)
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
    kind: ServerKind = next(one for one in _TOLD if _at(reported, _TOLD[one][0]) is not None)
    window, parameters, sees = (
        [value for path in paths.split() if (value := _at(reported, path)) is not None]
        for paths in _TOLD[kind][1:]
    )
    return ServerFacts(
        answers,
        kind,
        next(filter(None, map(_number, window)), None),
        next(filter(None, map(_number, parameters)), None),
        next((_sees(value) for value in sees), None),
    )


def _at(value: Any, path: str) -> Any:
    """Return what stands at a path of keys, parted by dots; None if nothing does."""
    for key in filter(None, path.split(".")):
        value = cast("dict[str, Any]", value).get(key) if isinstance(value, dict) else None
    return value


def _entries(listed: Any) -> Sequence[Any]:
    found = _at(listed, "data") or _at(listed, "models")
    return cast("list[Any]", found) if isinstance(found, list) else ()


def _entry(listed: Any, model: str) -> Any:
    """Return what a list of models says of one of them."""
    names = (model, f"{model}:latest")
    return next(
        (e for e in _entries(listed) if _at(e, "id") in names or _at(e, "name") in names), None
    )


def _number(value: Any) -> int | None:
    if isinstance(value, str) and (found := _NUMBER.search(value)):
        value = round(float(found[1]) * _UNITS[found[2]])
    return value if isinstance(value, int) and value is not True and value > 0 else None


def _sees(value: Any) -> bool:
    kinds = cast("list[Any]", value) if isinstance(value, list) else [value]
    return any(kind in (True, "vlm", "vision", "image") for kind in kinds)


UNKNOWN_WINDOW = 128_000
UNKNOWN_LOCAL_WINDOW = 32_000
"""Local servers are often started with less than the model could take."""

# By the name behind any vendor prefix, the first match counts; profiles and prices go before.
_WINDOWS = (
    (r"gpt-4\.1|gemini|llama-?4", 1_000_000),
    (r"gpt-[5-9]", 272_000),
    (r"kimi-k2|qwen3-(coder|max)", 256_000),
    (r"claude|o[1-9](-|$)", 200_000),
    (r"gpt-3\.5", 16_000),
    (r"gpt-4(-0613|$)|llama-?3(:|-8b|-70b|$)|gemma-?2", 8_000),
    (r"gpt-4|deepseek|qwen|llama-?3|mistral|mixtral|grok|glm|gpt-oss|gemma|command", 128_000),
)
_TEXT_ONLY = re.compile(
    r"o1-(mini|preview)|o3-mini|gpt-oss|gpt-4-0|gpt-4$|gpt-3|kimi-k2-|gemma-?3.?1b"
)
_VISION = re.compile(
    r"gpt-4o|gpt-4\.\d|gpt-4-turbo|gpt-4-vision|gpt-[5-9]|chatgpt-4o|(^|/)o[1-9](-|$)"
    r"|claude-(3|[4-9]|opus|sonnet|haiku)|gemini|gemma-?[34]|pixtral|llava|vision|multimodal|omni"
    r"|\bvl\b|-vl|vl-|\dvl|internvl|minicpm-v|moondream|llama-?4|glm-[\d.]+v|kimi-k2\.5|grok-4"
    r"|mistral-(small|medium|large)-(3|latest|25)|phi-.*vision|step-\d.*v|qvq"
)
_MEDIA = {
    "audio": re.compile(r"gemini|audio|omni|voxtral|gemma-?3n"),
    "video": re.compile(r"gemini|omni|qwen.*vl"),
}
CallForm = Literal["native", "text", "constrained"]
"""How a model is asked for calls."""
_SIZES = re.compile(r"(?<![\dx.])(\d{1,3}(?:\.\d{1,2})?)b(?![a-z\d])")
MOST_ODD_REPLIES = 2
"""From which on a model of unknown size, at a server of one's own, counts as small."""
_SMALL = 8e9
"""Parameters; models below that are small."""
_ASK_AGAIN_S = 10.0
"""After which a server is asked again that did not answer, or has not loaded the model yet."""
_facts: dict[tuple[str, str | None], tuple[ServerFacts, float]] = {}
"""What servers told, and when, on the monotonic clock."""
_dialects: dict[tuple[Path, str, str], LearntDialect] = {}
_dialects_of_instances: dict[int, tuple[weakref.ref[BaseChatModel], LearntDialect]] = {}


@dataclass(frozen=True, eq=False)
class ResolvedModel:
    """One model that is ready to be asked."""

    settings: ModelSettings
    client: BaseChatModel
    dialect: LearntDialect
    """What its server takes; grows while the run goes on."""
    facts: ServerFacts = ServerFacts()
    """What its server tells of it."""
    odd_replies: list[None] = field(default_factory=list[None])
    """One for each reply in a row that wrote code or half a call in the place of a call."""

    @cached_property
    def name(self) -> str:
        """For people: `PROVIDER:NAME`, or what an instance calls itself."""
        return model_name(self.settings)

    @cached_property
    def plain_name(self) -> str:
        """Without the provider."""
        name, given = self.name, self.settings.model
        return name.partition(":")[2] if isinstance(given, str) else name

    @cached_property
    def provider(self) -> str:
        """One of `spec.PROVIDERS`; empty if it is not known."""
        return provider_of(self.settings)

    @cached_property
    def wire(self) -> str:
        """Whose protocol it speaks, as `wire_provider` names it."""
        return wire_provider(self.provider)

    @property
    def window(self) -> int:
        """How many tokens one request may hold."""
        if self.settings.context_window:
            return self.settings.context_window
        if tokens := self.facts.window or self._profile.get("max_input_tokens"):
            return int(tokens)
        if is_local(self.settings.base_url) or self.name.startswith("ollama:"):
            return UNKNOWN_LOCAL_WINDOW
        return _window_by_name(self._bare_name)

    @property
    def small_window(self) -> str:
        """What to tell the person of a window that is little for an agent; nothing of others."""
        reported = self.facts.window
        if not reported or reported >= SMALL_WINDOW or self.settings.context_window:
            return ""
        return (
            f"The server of {self.name} takes {reported:,} tokens, which is little for an agent. "
            f"{larger_window(self.facts.kind)}"
        )

    @property
    def sees_images(self) -> bool:
        """Whether pictures can be sent; an unknown model counts as text only."""
        reported = self.settings.vision, self.facts.sees_images
        if (sees := next((one for one in reported if one is not None), None)) is not None:
            return sees
        if "image_inputs" in self._profile:
            return bool(self._profile["image_inputs"])
        name = self._bare_name
        return _TEXT_ONLY.search(name) is None and _VISION.search(name) is not None

    @property
    def media(self) -> Set[str]:
        """What it takes of `audio` and `video`; of an unknown one nothing is known."""
        if self.settings.takes_media is not None:
            return set(self.settings.takes_media)
        if "audio_inputs" in self._profile:
            return {kind for kind in ("audio", "video") if self._profile.get(f"{kind}_inputs")}
        return {kind for kind, pattern in _MEDIA.items() if pattern.search(self._bare_name)}

    @property
    def is_small(self) -> bool:
        """Whether it is asked as small models are: shorter, and step by step."""
        if self.settings.profile != "auto":
            return self.settings.profile == "small"
        named = [float(size) * 1e9 for size in _SIZES.findall(self._bare_name)]
        if size := self.facts.parameters or max(named, default=0):
            return size < _SMALL
        own = address_of(self.settings) is not None
        return own and len(self.odd_replies) >= MOST_ODD_REPLIES

    def note_reply(self, *, odd: bool) -> None:
        """Count replies that a model writes which is too small for native calls."""
        if odd:
            self.odd_replies.append(None)
        elif len(self.odd_replies) < MOST_ODD_REPLIES:
            self.odd_replies.clear()

    def call_form(self, dialect: Dialect) -> CallForm:
        """Return how it is asked for calls, in a dialect."""
        wanted = self.settings.tool_calling
        if wanted in ("native", "text"):
            return wanted
        may = self.is_small and self.wire in ("openai", "ollama")
        return "constrained" if dialect.constrains and (may or wanted != "auto") else dialect.tools

    @property
    def _profile(self) -> Mapping[str, Any]:
        return self.client.profile or {}

    @property
    def _bare_name(self) -> str:
        return self.plain_name.lower().rpartition("/")[2]


async def resolve_model(settings: ModelSettings) -> ResolvedModel:
    """Return a model that is ready to be asked. Raises as `prepare_model`."""
    client = await prepare_model(settings)
    if not isinstance(settings.model, str):
        return instance_model(client, settings)
    server = server_name(provider_of(settings), settings.base_url)
    asked = settings.model, settings.base_url
    facts, since = _facts.get(asked, (ServerFacts(), -math.inf))
    lacks = not facts.answers or (facts.kind == "ollama" and not facts.window)
    if lacks and time.monotonic() - since > _ASK_AGAIN_S:
        facts = await facts_of(settings)
        _facts[asked] = facts, time.monotonic()
    key = config_home(), server, settings.model
    if key not in _dialects:
        dialect = LearntDialect(_known(client, settings), server, settings.model)
        await asyncio.to_thread(dialect.load)
        _dialects.setdefault(key, dialect)
    return ResolvedModel(settings, client, _dialects[key], facts)


def instance_model(client: BaseChatModel, settings: ModelSettings | None = None) -> ResolvedModel:
    """Return a model by its client; what is learnt about its server lives as long as that."""
    settings, key = settings or ModelSettings(client), id(client)
    if key not in _dialects_of_instances:
        gone = weakref.ref(client, lambda _: _dialects_of_instances.pop(key, None))
        _dialects_of_instances[key] = gone, LearntDialect(_known(client, settings))
    return ResolvedModel(settings, client, _dialects_of_instances[key][1])


def _known(client: BaseChatModel, settings: ModelSettings) -> Dialect:
    address = getattr(client, "base_url", None) or getattr(client, "openai_api_base", None)
    effort = getattr(client, "reasoning_effort", None)
    name = model_name(settings)
    plain = name.partition(":")[2] if isinstance(settings.model, str) else name
    wire = wire_provider(provider_of(settings))
    return known_dialect(wire, str(address) if address else None, plain, effort)


@lru_cache
def _window_by_name(name: str) -> int:
    entry = find_price(name_query(name))
    if entry is not None and entry.model.context_window:
        return entry.model.context_window
    return next((size for pattern, size in _WINDOWS if re.search(pattern, name)), UNKNOWN_WINDOW)
