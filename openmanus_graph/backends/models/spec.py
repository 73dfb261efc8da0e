"""Which model: `PROVIDER:NAME`, and what each provider needs."""

import re
from dataclasses import dataclass

from openmanus_graph.errors import ConfigError
from openmanus_graph.state.model_settings import ModelSettings


@dataclass(frozen=True)
class Provider:
    """How one provider is reached."""

    name: str
    """Also the name of our extra that installs its package."""
    key_variables: tuple[str, ...] = ()
    """Environment variables that hold its key, the usual one first."""
    base_url: str | None = None
    """Address of a provider that speaks OpenAI's protocol; it needs no package of its own."""
    package: str | None = None
    """Module of LangChain's client, for a provider with a protocol of its own."""
    client: str = ""
    """Name of the class in `package`."""
    key_argument: str | None = "api_key"
    """Argument of the class that takes the key. None: it takes none."""
    url_argument: str = "base_url"
    takes_key: bool = True
    """False: it works without a key, or finds its credentials by itself."""


PROVIDERS = {
    provider.name: provider
    for provider in (
        Provider("openai", ("OPENAI_API_KEY",), base_url="https://api.openai.com/v1"),
        Provider("azure", ("AZURE_OPENAI_API_KEY", "OPENAI_API_KEY")),
        Provider(
            "anthropic",
            ("ANTHROPIC_API_KEY",),
            package="langchain_anthropic",
            client="ChatAnthropic",
        ),
        Provider(
            "google",
            ("GOOGLE_API_KEY", "GEMINI_API_KEY"),
            package="langchain_google_genai",
            client="ChatGoogleGenerativeAI",
        ),
        Provider(
            "bedrock",
            package="langchain_aws",
            client="ChatBedrockConverse",
            key_argument=None,
            url_argument="endpoint_url",
            takes_key=False,
        ),
        Provider(
            "ollama",
            package="langchain_ollama",
            client="ChatOllama",
            key_argument=None,
            takes_key=False,
        ),
        Provider("deepseek", ("DEEPSEEK_API_KEY",), base_url="https://api.deepseek.com"),
        Provider("openrouter", ("OPENROUTER_API_KEY",), base_url="https://openrouter.ai/api/v1"),
        Provider("groq", ("GROQ_API_KEY",), base_url="https://api.groq.com/openai/v1"),
        Provider("mistralai", ("MISTRAL_API_KEY",), base_url="https://api.mistral.ai/v1"),
        Provider("xai", ("XAI_API_KEY",), base_url="https://api.x.ai/v1"),
        Provider("together", ("TOGETHER_API_KEY",), base_url="https://api.together.xyz/v1"),
        Provider(
            "fireworks", ("FIREWORKS_API_KEY",), base_url="https://api.fireworks.ai/inference/v1"
        ),
        Provider("moonshot", ("MOONSHOT_API_KEY",), base_url="https://api.moonshot.ai/v1"),
    )
}

RECORDED = Provider(
    "demo",
    package="openmanus_graph.demo.recorded",
    client="recorded_model",
    key_argument=None,
    takes_key=False,
)
"""Plays the model of the demo, which is recorded; nobody chooses it for work."""

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

_LIKELY_PROVIDERS = (
    (r"claude", "anthropic"),
    (r"gemini", "google"),
    (r"deepseek-(chat|reasoner)$", "deepseek"),
    (r"[\w.-]+/", "openrouter"),
    (r"(llama|qwen|phi|gemma|mistral)[\w.-]*:", "ollama"),
)


@dataclass(frozen=True)
class ModelSpec:
    """A parsed `PROVIDER:NAME`."""

    provider: Provider
    name: str

    def __str__(self) -> str:
        return f"{self.provider.name}:{self.name}"


def parse_spec(text: str) -> ModelSpec:
    """Parse `PROVIDER:NAME`; the name may hold `:` and `/` itself.

    Raises:
        ConfigError: The provider is missing or unknown, or the name is empty.
    """
    prefix, colon, name = text.strip().partition(":")
    key = prefix.strip().lower()
    provider = RECORDED if key == RECORDED.name else PROVIDERS.get(ALIASES.get(key, key))
    name = name.strip()
    if provider is not None and name:
        return ModelSpec(provider, name)
    known = ", ".join(PROVIDERS)
    if provider is not None:
        raise ConfigError(
            f"The model {text!r} lacks a name. Write {provider.name}:NAME, for example "
            f"{provider.name}:{EXAMPLES.get(provider.name, 'NAME')}."
        )
    if not prefix.strip():
        raise ConfigError(f"No model is named. Write PROVIDER:NAME; providers: {known}.")
    name = text.strip()
    likely = next(
        (maker for pattern, maker in _LIKELY_PROVIDERS if re.match(pattern, name.lower())), "openai"
    )
    fault = f"has the unknown provider {prefix!r}" if colon else "lacks its provider"
    raise ConfigError(
        f"The model {text!r} {fault}. Write PROVIDER:NAME, perhaps "
        f"{likely}:{name}; providers: {known}. Any other server "
        "that speaks OpenAI's protocol is openai:NAME with its address as base URL."
    )


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


def provider_of(settings: ModelSettings) -> str:
    """Return the provider's name in `spec.PROVIDERS`, aliases resolved, or "" when unknown."""
    if isinstance(settings.model, str):
        return parse_spec(settings.model).provider.name
    names = (_PROVIDER_OF_CLIENT.get(cls.__name__) for cls in type(settings.model).__mro__)
    return next((name for name in names if name), "")


def wire_provider(name: str) -> str:
    """Return whose protocol a provider speaks: its own, or OpenAI's.

    Args:
        name: One of `PROVIDERS`, or LangChain's name of it. Any other is returned as it is.
    """
    name = ALIASES.get(name, name)
    provider = PROVIDERS.get(name)
    return "openai" if provider is not None and provider.package is None else name
