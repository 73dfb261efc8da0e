import pytest

from openmanus_graph.backends.models.spec import parse_spec
from openmanus_graph.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "provider", "name"),
    [
        ("openai:gpt-5-mini", "openai", "gpt-5-mini"),
        (" OpenAI : gpt-5-mini ", "openai", "gpt-5-mini"),
        ("ollama:llama3.2:3b", "ollama", "llama3.2:3b"),
        ("openrouter:deepseek/deepseek-r1:free", "openrouter", "deepseek/deepseek-r1:free"),
        ("bedrock:anthropic.claude-3-5-sonnet-v1:0", "bedrock", "anthropic.claude-3-5-sonnet-v1:0"),
        ("google_genai:gemini-2.5-pro", "google", "gemini-2.5-pro"),
        ("azure_openai:my-deployment", "azure", "my-deployment"),
    ],
)
def test_parses_provider_and_name(text: str, provider: str, name: str) -> None:
    spec = parse_spec(text)
    assert (spec.provider.name, spec.name) == (provider, name)
    assert parse_spec(str(spec)) == spec


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("gpt-4o", "openai:gpt-4o"),
        ("claude-sonnet-4-5", "anthropic:claude-sonnet-4-5"),
        ("gemini-2.5-pro", "google:gemini-2.5-pro"),
        ("deepseek-chat", "deepseek:deepseek-chat"),
        ("meta-llama/llama-3.3-70b", "openrouter:meta-llama/llama-3.3-70b"),
        ("llama3.2:3b", "ollama:llama3.2:3b"),
    ],
)
def test_a_missing_provider_is_suggested(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match="PROVIDER:NAME") as error:
        parse_spec(text)
    assert said in str(error.value)


def test_an_unknown_provider_names_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="unknown provider 'opnai'.*openai, azure, anthropic"):
        parse_spec("opnai:gpt-4o")


@pytest.mark.parametrize("text", ["openai:", "openai", "", ":", ":gpt-4o", "  "])
def test_a_spec_without_a_name_or_provider_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_spec(text)
