"""Reasoning effort: each provider's parameter, or none."""

from pathlib import Path
from typing import Any

import pytest

from openmanus_graph.backends.models.build import build_unshared_model, prepare_model
from openmanus_graph.backends.models.effort import effort_options
from openmanus_graph.backends.models.spec import parse_spec
from openmanus_graph.config.resolve import resolve_settings
from openmanus_graph.state.context import Context
from openmanus_graph.state.model_settings import ModelSettings
from tests.support.openai_script import Reply
from tests.support.openai_server import OpenAIServer


@pytest.mark.parametrize(
    ("spec", "options"),
    [
        ("openai:gpt-5-mini", {"reasoning_effort": "low"}),
        ("openai:o3", {"reasoning_effort": "low"}),
        ("openai:gpt-4.1", {}),
        ("openai:gpt-5-chat-latest", {}),
        ("anthropic:claude-opus-4-5", {"output_config": {"effort": "low"}}),
        ("anthropic:claude-sonnet-5", {"output_config": {"effort": "low"}}),
        ("anthropic:claude-sonnet-4-5", {"thinking": {"type": "enabled", "budget_tokens": 2048},
                                         "max_tokens": 18432}),
        ("anthropic:claude-3-5-haiku-latest", {}),
        ("google:gemini-3-pro", {"thinking_config": {"thinking_level": "low"}}),
        ("google:gemini-2.5-pro", {"thinking_budget": 2048}),
        ("google:gemini-2.0-flash", {}),
        ("ollama:gpt-oss:20b", {"reasoning": "low"}),
        ("ollama:qwen3:8b", {"reasoning": False}),
        ("ollama:llama3.2", {}),
        ("openrouter:openai/gpt-5-mini", {"reasoning": {"effort": "low"}}),
        ("groq:openai/gpt-oss-120b", {"reasoning_effort": "low"}),
        ("bedrock:amazon.nova-pro-v1:0", {}),
    ],
)  # fmt: skip
def test_effort_is_each_providers_parameter(spec: str, options: dict[str, Any]) -> None:
    assert effort_options(parse_spec(spec), ModelSettings(spec, effort="low")) == options
    assert effort_options(parse_spec(spec), ModelSettings(spec)) == {}


@pytest.mark.parametrize("spec", ["openai:m", "openrouter:m"])
async def test_effort_is_sent_unless_an_option_says_otherwise(spec: str) -> None:
    sent: list[Any] = []
    for options in ({}, {"reasoning_effort": "none", "reasoning": {"effort": "none"}}):
        with OpenAIServer([Reply(text="Hi")]) as server:
            settings = ModelSettings(spec, base_url=server.base_url, effort="high", options=options)
            await (await prepare_model(settings)).ainvoke("hello")
            body = server.requests[0].body
            sent.append(body.get("reasoning_effort") or body["reasoning"]["effort"])
    assert sent == ["high", "none"]


def test_the_main_model_and_roles_have_an_effort_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    Path("openmanus.toml").write_text(
        'model = "openai:gpt-5"\n[llm]\neffort = "high"\n'
        '[llm.roles]\ncheck = "quick"\nplan = "openai:o3"\n'
        '[llm.profiles.quick]\nmodel = "openai:gpt-5-mini"\neffort = "low"\n'
    )
    settings = resolve_settings(Context(), "t")
    roles = settings.roles
    found = settings.main.effort, roles["check"].effort, roles["plan"].effort
    assert found == ("high", "low", None)
    assert resolve_settings(Context(effort="low"), "t").main.effort == "low"


def test_clients_with_another_effort_are_others() -> None:
    model: Any = build_unshared_model(
        ModelSettings("openai:gpt-5", base_url="http://127.0.0.1:1/v1", effort="low")
    )
    assert model.reasoning_effort == "low"
