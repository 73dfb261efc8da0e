"""A model that is ready to be asked: its client and all that is known of it.

It is computed once per run and handed down, so that no later step reads the settings again.
"""

import asyncio
import hashlib
import math
import re
import time
import weakref
from collections.abc import Hashable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Literal

from langchain_core.language_models import BaseChatModel

from openmanus_graph.backends.models import dialects, server_facts, spec
from openmanus_graph.backends.models.build import prepare_model
from openmanus_graph.backends.models.prices import CallUsage, Prices, cost_usd, find_price, is_local
from openmanus_graph.config.files import config_home
from openmanus_graph.state.model_settings import ModelSettings

CallForm = Literal["native", "text", "constrained"]
SMALL_WINDOW = 8192
"""Tokens; fewer are little for an agent."""
UNKNOWN_WINDOW = 128_000
UNKNOWN_LOCAL_WINDOW = 32_000
"""Local servers are often started with less than the model could take."""
# By the name without any vendor prefix; the first match counts. Profiles and prices come before.
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
_SIZES = re.compile(r"(?<![\dx.])(\d{1,3}(?:\.\d{1,2})?)b(?![a-z\d])")
_SMALL = 8e9
MOST_ODD_REPLIES = 2
"""So many odd replies make a model of unknown size, at a person's own server, count as small."""
_ASK_AGAIN_S = 10.0
"""After which a server is asked again that did not answer, or has not loaded the model yet."""
_facts: dict[tuple[str, str | None], tuple[server_facts.ServerFacts, float]] = {}
_dialects: dict[tuple[Path, str, str], dialects.LearntDialect] = {}
_dialects_of_instances: dict[int, dialects.LearntDialect] = {}


@dataclass
class Observations:
    """What a run has seen of a model and its server."""

    odd_replies: int = 0
    """Replies in a row that wrote code or half a call in the place of a call."""
    shown_window: int | None = None
    """Tokens that the server reads of a longer request, which it cuts without a word."""
    largest_request: tuple[int, int] = (0, 0)
    """Tokens of the largest request: as estimated, and as the server reported them."""


@dataclass(frozen=True, eq=False)
class ResolvedModel:
    settings: ModelSettings
    client: BaseChatModel
    dialect: dialects.LearntDialect
    """What its server accepts; it may learn during the run."""
    facts: server_facts.ServerFacts = server_facts.ServerFacts()
    observed: Observations = field(default_factory=Observations)

    @cached_property
    def name(self) -> str:
        """For people: `PROVIDER:NAME`, or what an instance calls itself."""
        return spec.model_name(self.settings)

    @cached_property
    def plain_name(self) -> str:
        return spec.plain_name(self.settings)

    @cached_property
    def key(self) -> Hashable:
        """Distinguishes the model at its server from others, while an instance lives."""
        return spec.model_key(self.settings)

    @cached_property
    def provider(self) -> str:
        """One of `spec.PROVIDERS`; empty if it is not known."""
        return spec.provider_of(self.settings)

    @cached_property
    def wire(self) -> str:
        """Whose protocol it speaks, as `wire_provider` names it."""
        return spec.wire_provider(self.provider)

    @cached_property
    def server_address(self) -> str | None:
        """Of a server that can report facts; None for a big provider's model or an instance."""
        return server_facts.address_of(self.settings)

    @property
    def window(self) -> int:
        """How many tokens one request may hold."""
        if self.settings.context_window:
            known = self.settings.context_window
        elif tokens := self.facts.window or self._profile.get("max_input_tokens"):
            known = int(tokens)
        elif is_local(self.settings.base_url) or self.name.startswith("ollama:"):
            known = UNKNOWN_LOCAL_WINDOW
        else:
            known = _window_by_name(self._bare_name)
        return min(known, self.observed.shown_window or known)

    @property
    def small_window(self) -> str:
        """A warning for the person if the window is little for an agent; else empty."""
        reported = self.facts.window
        if not reported or reported >= SMALL_WINDOW or self.settings.context_window:
            return ""
        return (
            f"The server of {self.name} takes {reported:,} tokens, which is little for an agent. "
            f"{server_facts.larger_window(self.facts.kind)}"
        )

    @property
    def sees_images(self) -> bool:
        """Whether pictures can be sent; an unknown model counts as text only."""
        for known in (self.settings.vision, self.facts.sees_images):
            if known is not None:
                return known
        if "image_inputs" in self._profile:
            return bool(self._profile["image_inputs"])
        name = self._bare_name
        return _TEXT_ONLY.search(name) is None and _VISION.search(name) is not None

    @property
    def media(self) -> Set[str]:
        """Which of `audio` and `video` can be sent; none to an unknown model."""
        if self.settings.takes_media is not None:
            return set(self.settings.takes_media)
        if "audio_inputs" in self._profile:
            return {kind for kind in _MEDIA if self._profile.get(f"{kind}_inputs")}
        return {kind for kind, pattern in _MEDIA.items() if pattern.search(self._bare_name)}

    @property
    def is_small(self) -> bool:
        """Whether it is asked as small models are: shorter, and step by step."""
        if self.settings.profile != "auto":
            return self.settings.profile == "small"
        named = [float(size) * 1e9 for size in _SIZES.findall(self._bare_name)]
        if size := self.facts.parameters or max(named, default=0):
            return size < _SMALL
        return self.server_address is not None and self.observed.odd_replies >= MOST_ODD_REPLIES

    def note_reply(self, *, odd: bool) -> None:
        """Count odd replies, which models write that are too small for native calls."""
        if odd:
            self.observed.odd_replies += 1
        elif self.observed.odd_replies < MOST_ODD_REPLIES:
            self.observed.odd_replies = 0

    def call_form(self, dialect: dialects.Dialect) -> CallForm:
        """Return how it is asked for calls, in a dialect."""
        wanted = self.settings.tool_calling
        if wanted in ("native", "text"):
            return wanted
        may = self.is_small and self.wire in ("openai", "ollama")
        return "constrained" if dialect.constrains and (may or wanted != "auto") else dialect.tools

    def cost_usd(self, used: CallUsage, prices: Prices | None) -> float | None:
        """Return the dollars of a call; None if they are not known."""
        address = self.settings.base_url
        return cost_usd(self.plain_name, self.provider, used, prices, base_url=address)

    def is_free(self, prices: Prices | None) -> bool:
        """Return True if it is known to cost nothing, as on this machine."""
        million = CallUsage(input_tokens=10**6, cached_tokens=0, output_tokens=10**6)
        return self.cost_usd(million, prices) == 0

    @property
    def parameters(self) -> set[str]:
        """Names of the parameters that its client sends with each request."""
        own: Any = getattr(self.client, "sent_parameters", None)
        if own is not None:
            return set(own)
        given = {name for name, value in vars(self.client).items() if value is not None}
        return given | set(getattr(self.client, "model_kwargs", None) or ())

    def bound(
        self, tools: Sequence[dict[str, Any]], options: Mapping[str, Any], dialect: dialects.Dialect
    ) -> Any:
        """Return the client with a request's tools and options, in a dialect.

        NotImplementedError: it takes no tools.
        """
        client: Any = self.client
        if isinstance(getattr(client, "dialect", None), dialects.Dialect):  # ours, which applies it
            options = {**options, "dialect": dialect}
        elif left_out := dialect.parameters:
            update: dict[str, Any] = {name: None for name in left_out if name in vars(client)}
            if kwargs := getattr(client, "model_kwargs", None):
                update["model_kwargs"] = {k: v for k, v in kwargs.items() if k not in left_out}
            client = client.model_copy(update=update)
            options = {key: one for key, one in options.items() if key not in left_out}
        if tools:
            return client.bind_tools(tools, **options)
        return client.bind(**options) if options else client

    @property
    def _profile(self) -> Mapping[str, Any]:
        return self.client.profile or {}

    @property
    def _bare_name(self) -> str:
        return self.plain_name.lower().rpartition("/")[2]


def cache_options(client: BaseChatModel, session_key: str) -> dict[str, str]:
    """Return the options that send all requests of a session to the same prompt cache.

    Only OpenAI's own service gets them, with a hash of the session's key: others that speak its
    protocol may refuse unknown options. A key that the person has set is kept.
    """
    root: Any = getattr(client, "root_async_client", client)  # LangChain's client has one
    address = getattr(root, "base_url", None)
    is_set = "prompt_cache_key" in getattr(client, "model_kwargs", {})
    if is_set or not address or not dialects.is_openai(str(address)):
        return {}
    digest = hashlib.sha256(f"openmanus {session_key}".encode()).hexdigest()
    return {"prompt_cache_key": digest[:32]}


async def resolve_model(settings: ModelSettings) -> ResolvedModel:
    client = await prepare_model(settings)
    if isinstance(settings.model, str):
        model = await _named_model(client, settings, settings.model)
    else:
        model = instance_model(client, settings)
    # The first look-up loads the list of prices.
    await asyncio.to_thread(model.cost_usd, CallUsage(1, 0, 0), None)
    return model


async def _named_model(client: BaseChatModel, settings: ModelSettings, name: str) -> ResolvedModel:
    asked = name, settings.base_url
    facts, since = _facts.get(asked, (server_facts.ServerFacts(), -math.inf))
    incomplete = not facts.answers or (facts.kind == "ollama" and not facts.window)
    if incomplete and time.monotonic() - since > _ASK_AGAIN_S:
        facts = await server_facts.facts_of(settings)
        _facts[asked] = facts, time.monotonic()
    server = dialects.server_name(spec.provider_of(settings), settings.base_url)
    key = config_home(), server, name
    if key not in _dialects:
        dialect = dialects.LearntDialect(_known(client, settings), server, name)
        await asyncio.to_thread(dialect.load)
        _dialects.setdefault(key, dialect)
    return ResolvedModel(settings, client, _dialects[key], facts)


def instance_model(client: BaseChatModel, settings: ModelSettings | None = None) -> ResolvedModel:
    """Return a model by its client; what is learnt about its server lives as long as that."""
    settings, key = settings or ModelSettings(client), id(client)
    if key not in _dialects_of_instances:
        _dialects_of_instances[key] = dialects.LearntDialect(_known(client, settings))
        weakref.finalize(client, _dialects_of_instances.pop, key, None)
    return ResolvedModel(settings, client, _dialects_of_instances[key])


def _known(client: BaseChatModel, settings: ModelSettings) -> dialects.Dialect:
    address = getattr(client, "base_url", None) or getattr(client, "openai_api_base", None)
    effort = getattr(client, "reasoning_effort", None)
    wire = spec.wire_provider(spec.provider_of(settings))
    return dialects.known_dialect(
        wire, str(address) if address else None, spec.plain_name(settings), effort
    )


@lru_cache
def _window_by_name(name: str) -> int:
    found = find_price(name)
    if found is not None and found[1].context_window:
        return found[1].context_window
    return next((size for pattern, size in _WINDOWS if re.search(pattern, name)), UNKNOWN_WINDOW)
