"""Names models as `PROVIDER:NAME`, and says what each provider needs: its key and its address."""

import os
import re
from collections.abc import Hashable
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from openmanus_graph.config.entry_points import installed, load
from openmanus_graph.errors import ConfigError
from openmanus_graph.state.addresses import is_web_address
from openmanus_graph.state.model_settings import ModelSettings


@dataclass(frozen=True)
class Provider:
    name: str
    """Also the name of our extra that installs its package."""
    key_variables: tuple[str, ...] = ()
    """Environment variables that hold its key, the usual one first."""
    base_url: str | None = None
    """Address of a provider that speaks OpenAI's protocol; it needs no other package."""
    package: str | None = None
    """Module of LangChain's client, for a provider with its own protocol."""
    client: str = ""
    """Name of the class in `package`."""
    url_argument: str = "base_url"
    takes_key: bool = True
    """False: it works without a key, or finds its credentials by itself."""


_BEDROCK, _OLLAMA = ("langchain_aws", "ChatBedrockConverse"), ("langchain_ollama", "ChatOllama")
PROVIDERS = {
    provider.name: provider
    for provider in (
        Provider("openai", ("OPENAI_API_KEY",), "https://api.openai.com/v1"),
        Provider("azure", ("AZURE_OPENAI_API_KEY", "OPENAI_API_KEY")),
        Provider("anthropic", ("ANTHROPIC_API_KEY",), None, "langchain_anthropic", "ChatAnthropic"),
        Provider(
            "google",
            ("GOOGLE_API_KEY", "GEMINI_API_KEY"),
            package="langchain_google_genai",
            client="ChatGoogleGenerativeAI",
        ),
        Provider("bedrock", (), None, *_BEDROCK, url_argument="endpoint_url", takes_key=False),
        Provider("ollama", (), None, *_OLLAMA, takes_key=False),
        Provider("deepseek", ("DEEPSEEK_API_KEY",), "https://api.deepseek.com"),
        Provider("openrouter", ("OPENROUTER_API_KEY",), "https://openrouter.ai/api/v1"),
        Provider("groq", ("GROQ_API_KEY",), "https://api.groq.com/openai/v1"),
        Provider("mistralai", ("MISTRAL_API_KEY",), "https://api.mistral.ai/v1"),
        Provider("xai", ("XAI_API_KEY",), "https://api.x.ai/v1"),
        Provider("together", ("TOGETHER_API_KEY",), "https://api.together.xyz/v1"),
        Provider("fireworks", ("FIREWORKS_API_KEY",), "https://api.fireworks.ai/inference/v1"),
        Provider("moonshot", ("MOONSHOT_API_KEY",), "https://api.moonshot.ai/v1"),
    )
}
RECORDED = Provider(
    "demo", package="openmanus_graph.demo", client="recorded_model", takes_key=False
)
"""Plays the recorded model of the demo; it is not offered for work."""
ALIASES = {
    "azure_openai": "azure",
    "google_genai": "google",
    "gemini": "google",
    "bedrock_converse": "bedrock",
    "aws": "bedrock",
    "mistral": "mistralai",
    "grok": "xai",
    "claude": "anthropic",
}
"""Other names people know the providers by, LangChain's among them."""
EXAMPLES = {
    "openai": "gpt-5-mini",
    "anthropic": "claude-sonnet-5",
    "google": "gemini-2.5-pro",
    "deepseek": "deepseek-chat",
    "openrouter": "openai/gpt-5-mini",
    "groq": "openai/gpt-oss-120b",
    "mistralai": "mistral-medium-latest",
    "xai": "grok-4",
    "moonshot": "kimi-k2-0905-preview",
    "ollama": "qwen3",
}
"""A model's name to begin with, by provider."""
_LIKELY_PROVIDERS = (
    (r"claude", "anthropic"),
    (r"gemini", "google"),
    (r"deepseek-(chat|reasoner)$", "deepseek"),
    (r"[\w.-]+/", "openrouter"),
    (r"(llama|qwen|phi|gemma|mistral)[\w.-]*:", "ollama"),
)
_PROVIDER_OF_CLIENT = {
    "AzureChatOpenAI": "azure",
    "ChatOpenAI": "openai",
    "OpenAICompatibleModel": "openai",
    "ChatAnthropic": "anthropic",
    "ChatGoogleGenerativeAI": "google",
    "ChatBedrockConverse": "bedrock",
    "ChatOllama": "ollama",
    "ChatDeepSeek": "deepseek",
    "ChatGroq": "groq",
    "ChatMistralAI": "mistralai",
    "ChatXAI": "xai",
    "ChatOpenRouter": "openrouter",
    "ChatTogether": "together",
    "ChatFireworks": "fireworks",
}
"""LangChain's own clients, and ours."""


def provider_names() -> list[str]:
    """Return the names of all providers: ours, then those of installed packages."""
    return [*dict.fromkeys([*PROVIDERS, *(point.name for point in installed("providers"))])]


def find_provider(name: str) -> Provider | None:
    """Return a provider by its name or alias, None if there is none.

    ConfigError: the package that adds it is broken.
    """
    name = ALIASES.get(name, name)
    if name == RECORDED.name:
        return RECORDED
    if name not in PROVIDERS and name in (added := installed("providers")).names:
        loaded: Provider = load(added[name], "provider")
        return replace(loaded, name=name)
    return PROVIDERS.get(name)


@dataclass(frozen=True)
class ModelSpec:
    """A parsed `PROVIDER:NAME`."""

    provider: Provider
    name: str

    def __str__(self) -> str:
        return f"{self.provider.name}:{self.name}"


def parse_spec(text: str) -> ModelSpec:
    """Parse `PROVIDER:NAME`; the name may hold `:` and `/` itself.

    ConfigError: the provider is missing or unknown, or the name is empty.
    """
    prefix, colon, name = text.strip().partition(":")
    key, name = prefix.strip().lower(), name.strip()
    provider = find_provider(key)
    if provider is not None and name:
        return ModelSpec(provider, name)
    if provider is not None:
        raise ConfigError(
            f"The model {text!r} has no name. Write {provider.name}:NAME, for example "
            f"{provider.name}:{EXAMPLES.get(provider.name, 'NAME')}."
        )
    known = ", ".join(provider_names())
    if not key:
        raise ConfigError(f"No model is set. Write PROVIDER:NAME; providers: {known}.")
    name = text.strip()
    makers = (maker for start, maker in _LIKELY_PROVIDERS if re.match(start, name.lower()))
    fault = f"has the unknown provider {prefix!r}" if colon else "has no provider"
    likely = f"{next(makers, 'openai')}:{name}"
    raise ConfigError(
        f"The model {text!r} {fault}. Write PROVIDER:NAME, perhaps {likely}; "
        f"providers: {known}. Any other server that speaks OpenAI's protocol is openai:NAME with "
        "its address as base URL."
    )


def provider_of(settings: ModelSettings) -> str:
    if isinstance(settings.model, str):
        return parse_spec(settings.model).provider.name
    names = (_PROVIDER_OF_CLIENT.get(cls.__name__) for cls in type(settings.model).__mro__)
    return next(filter(None, names), "")


def wire_provider(name: str) -> str:
    """Return whose protocol a provider speaks: its own, or OpenAI's.

    LangChain's names of providers are understood too. An unknown name is returned unchanged.
    ConfigError: the package that brings the provider is broken.
    """
    provider = find_provider(name)
    if provider is None or provider.package is not None:
        return ALIASES.get(name, name)
    return "openai"


def model_name(settings: ModelSettings) -> str:
    """Return a model's name for people: `PROVIDER:NAME`, or what the instance calls itself."""
    if isinstance(settings.model, str):
        return settings.model
    given = (getattr(settings.model, name, None) for name in ("model_name", "model", "model_id"))
    return next((one for one in given if isinstance(one, str)), type(settings.model).__name__)


def plain_name(settings: ModelSettings) -> str:
    name = model_name(settings)
    return name.partition(":")[2] if isinstance(settings.model, str) else name


def model_key(settings: ModelSettings) -> Hashable:
    """Return what distinguishes a model at its server from others, while an instance lives."""
    is_named = isinstance(settings.model, str)
    return (settings.model, settings.base_url) if is_named else id(settings.model)


def api_key(spec: ModelSpec, settings: ModelSettings) -> str | None:
    """Return the key: of the settings, the provider's variable, the stored one, else a dummy.

    ConfigError: the provider needs a key and there is none, or it cannot be a key.
    """
    provider = spec.provider
    given, stored = (
        "" if key is None else key.get_secret_value()
        for key in (settings.api_key, settings.stored_key)
    )
    values = (given, *(os.environ.get(name, "") for name in provider.key_variables), stored)
    key = next((value.strip() for value in values if value.strip()), None)
    if key is not None:
        if not (key.isascii() and key.isprintable()):
            raise ConfigError(
                f"The key of the model {spec} holds characters that no key has (a dash or quote "
                "of a word processor, or a line break). Copy it again."
            )
        return key
    if not provider.takes_key:
        return None
    if is_other_server(spec, settings):
        return "none"  # local servers need none, but the SDK insists on one
    names = " or ".join(provider.key_variables)
    raise ConfigError(
        f"No key for the model {spec}. Run openmanus init, or set the environment variable "
        f"{names}, or api_key in the configuration file. A server of your own needs no key: give "
        "its address as base URL."
    )


def base_url(spec: ModelSpec, settings: ModelSettings) -> str | None:
    """Return the address: the settings', else the provider's own.

    ConfigError: it is not a web address.
    """
    given = settings.base_url
    if not given:
        return spec.provider.base_url
    if not is_web_address(given):
        raise ConfigError(
            f"The base URL {given!r} of the model {spec} is not a web address. Write it like "
            "http://127.0.0.1:8000/v1."
        )
    # People copy the whole address from documentation; the client adds this part itself.
    return given.strip().rstrip("/").removesuffix("/chat/completions")


def is_other_server(spec: ModelSpec, settings: ModelSettings) -> bool:
    """Return True if an OpenAI-compatible model is asked at a server other than its provider's."""
    usual = spec.provider.base_url
    if usual is None or not settings.base_url:
        return False
    return urlsplit(settings.base_url).hostname != urlsplit(usual).hostname
