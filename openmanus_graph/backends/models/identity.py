"""Whose model it is, for prices and cache marks."""

from openmanus_graph.backends.models.spec import parse_spec
from openmanus_graph.state.settings import ModelSettings

_BY_CLASS = {
    "AzureChatOpenAI": "azure",
    "ChatOpenAI": "openai",
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
"""LangChain's own clients."""


def provider_of(settings: ModelSettings) -> str:
    """Return the provider's name in `spec.PROVIDERS`, aliases resolved, or "" when unknown."""
    if isinstance(settings.model, str):
        return parse_spec(settings.model).provider.name
    names = (_BY_CLASS.get(cls.__name__) for cls in type(settings.model).__mro__)
    return next((name for name in names if name), "")
