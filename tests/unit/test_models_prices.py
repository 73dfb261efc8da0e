import subprocess
import sys
from typing import Any

import pytest
from genai_prices.data_snapshot import get_snapshot
from langchain_core.language_models import BaseChatModel, FakeListChatModel
from langchain_core.language_models.model_profile import ModelProfile
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.messages.ai import InputTokenDetails, UsageMetadata

from openmanus_graph.backends.models.build import build_unshared_model
from openmanus_graph.backends.models.prices import (
    CallUsage,
    cost_usd,
    find_price,
    is_local,
    usage_of,
)
from openmanus_graph.backends.models.resolved import instance_model
from openmanus_graph.backends.models.spec import provider_of
from openmanus_graph.config.model import find_local_server
from openmanus_graph.model_calls.projection import with_cache_marks
from openmanus_graph.state.model_settings import ModelSettings
from tests.support.openai_server import OpenAIServer

MILLION = CallUsage(input_tokens=1_000_000, cached_tokens=0, output_tokens=0)


@pytest.mark.parametrize(
    ("model", "provider"),
    [
        ("gemini:gemini-2.5-pro", "google"),
        ("openrouter:openai/gpt-4o:free", "openrouter"),
        (FakeListChatModel(responses=[]), ""),
    ],
)
def test_knows_whose_model_it_is(model: str | BaseChatModel, provider: str) -> None:
    assert provider_of(ModelSettings(model)) == provider


def test_an_instance_is_known_by_its_class() -> None:
    assert provider_of(ModelSettings(build_unshared_model(at("openai:m")))) == "openai"


def test_cached_tokens_are_cheaper() -> None:
    fresh = cost_usd("gpt-4o", "openai", MILLION)
    cached = cost_usd("gpt-4o", "openai", CallUsage(1_000_000, 1_000_000, 0))
    assert fresh == pytest.approx(2.5)
    assert cached == pytest.approx(1.25)


@pytest.mark.parametrize(
    ("name", "provider", "base_url"),
    [
        ("gpt-4o", "azure", None),
        ("claude-sonnet-4-5", "anthropic", None),
        ("gemini-2.5-pro", "google", None),
        ("mistral-large-latest", "mistralai", None),
        ("grok-4", "xai", None),
        ("deepseek-chat", "deepseek", None),
        ("anthropic/claude-sonnet-4.5", "openrouter", None),
        ("anthropic.claude-3-5-sonnet-20240620-v1:0", "bedrock", None),
        ("deepseek-chat", "openai", "https://api.deepseek.com/v1"),
        ("openai/gpt-4o", "openai", "https://openrouter.ai/api/v1"),
        ("gpt-4o", "openai", "https://llm.company.test/v1"),
        ("openai/gpt-4o", "openai", "http://127.0.0.1:4000/v1"),
    ],
)
def test_knows_the_price(name: str, provider: str, base_url: str | None) -> None:
    cost = cost_usd(name, provider, MILLION, base_url=base_url)
    assert cost is not None
    assert 0 < cost < 40


@pytest.mark.parametrize(
    ("name", "provider", "base_url", "cost"),
    [
        ("my-finetune", "openai", None, None),
        ("deepseek-ai/DeepSeek-V3", "openai", "https://gpu.company.test/v1", None),
        ("llama3.2:3b", "openai", "http://127.0.0.1:11434/v1", 0),
        ("llama3.2:3b", "ollama", None, 0),
        ("anything", "", None, None),
    ],
)
def test_what_nobody_knows_is_none_and_ones_own_machine_is_free(
    name: str, provider: str, base_url: str | None, cost: float | None
) -> None:
    assert cost_usd(name, provider, MILLION, base_url=base_url) == cost


def test_the_list_is_the_one_that_an_app_around_us_uses() -> None:
    entry = find_price("gpt-4o-mini", "openai")
    assert entry is not None
    assert any(entry[0] is known for known in get_snapshot().providers)


def test_the_list_is_not_loaded_before_a_model_is_looked_for() -> None:
    program = (
        "import sys, openmanus_graph.backends.models.prices; "
        "import openmanus_graph.backends.models.build; "
        "print([name for name in sys.modules if name.startswith('genai_prices')])"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.stdout == "[]\n", ran.stderr


def test_the_persons_own_prices_go_first() -> None:
    usage = CallUsage(input_tokens=1_000_000, cached_tokens=400_000, output_tokens=100_000)
    own = {"m": {"input": 1.0, "cached": 0.1, "output": 10.0}, "openai:n": {"input": 2.0}}
    assert cost_usd("m", "openai", usage, own) == pytest.approx(0.6 + 0.04 + 1.0)
    assert cost_usd("n", "openai", usage, own) == pytest.approx(2.0)


def test_what_the_provider_charged_is_taken() -> None:
    message = AIMessage(
        "x",
        response_metadata={"cost_usd": 0.5},
        usage_metadata=UsageMetadata(input_tokens=10, output_tokens=1, total_tokens=11),
    )
    assert cost_usd("openai/gpt-4o", "openrouter", usage_of(message)) == 0.5


def test_reported_usage_is_read_with_its_cached_tokens() -> None:
    message = AIMessage(
        "x",
        usage_metadata=UsageMetadata(
            input_tokens=100,
            output_tokens=7,
            total_tokens=107,
            input_token_details=InputTokenDetails(cache_read=60, cache_creation=30),
        ),
    )
    assert usage_of(message) == CallUsage(100, 60, 7, written_tokens=30)


def test_usage_that_was_not_reported_is_estimated() -> None:
    tool = {"type": "function", "function": {"name": "bash", "description": "run" * 400}}
    request = [SystemMessage("s" * 400), HumanMessage("h" * 400)]
    usage = usage_of(AIMessage("a" * 400), request)
    assert usage.estimated
    assert 200 <= usage.input_tokens <= 230
    assert 100 <= usage.output_tokens <= 115
    assert usage_of(AIMessage("a"), request, [tool]).input_tokens > usage.input_tokens + 300


@pytest.mark.parametrize(
    ("url", "local"),
    [
        ("http://localhost:1234/v1", True),
        ("http://127.0.0.1:8000", True),
        ("http://[::1]:8000/v1", True),
        ("https://api.openai.com/v1", False),
        (None, False),
    ],
)
def test_knows_this_machine(url: str | None, local: bool) -> None:
    assert is_local(url) is local


def at(spec: str | BaseChatModel, base_url: str = "https://models.test/v1") -> ModelSettings:
    return ModelSettings(spec, base_url=base_url)


@pytest.mark.parametrize(
    ("spec", "tokens"),
    [
        ("openai:gpt-4o", 128_000),
        ("openai:openai/gpt-4.1", 1_000_000),
        ("openai:anthropic/claude-sonnet-4-5", 200_000),
        ("openai:nobody-knows", 128_000),
    ],
)
def test_knows_how_much_a_request_may_hold(spec: str, tokens: int) -> None:
    window = instance_model(build_unshared_model(at(spec)), at(spec)).window
    assert tokens * 0.9 <= window <= tokens * 1.1


def test_an_unknown_local_model_is_taken_for_small() -> None:
    settings = at("openai:nobody-knows", "http://127.0.0.1:9/v1")
    assert instance_model(build_unshared_model(settings), settings).window == 32_000


def test_the_persons_own_word_goes_first() -> None:
    settings = ModelSettings(
        "openai:gpt-4o", base_url="http://127.0.0.1:9/v1", context_window=5000, vision=False
    )
    model = build_unshared_model(settings)
    assert instance_model(model, settings).window == 5000
    assert not instance_model(model, settings).sees_images


def test_an_instances_profile_is_believed() -> None:
    profile = ModelProfile(max_input_tokens=777, image_inputs=True)
    model = FakeListChatModel(responses=[], profile=profile)
    assert instance_model(model, at(model)).window == 777
    assert instance_model(model, at(model)).sees_images


@pytest.mark.parametrize(
    ("spec", "sees"),
    [
        ("openai:gpt-4o", True),
        ("openai:openai/gpt-5-mini", True),
        ("openai:claude-3-7-sonnet-20250219", True),
        ("openai:anthropic/claude-opus-4", True),
        ("openai:google/gemini-2.5-flash", True),
        ("openai:qwen2.5vl:7b", True),
        ("openai:Qwen/Qwen3-VL-8B", True),
        ("openai:llama3.2-vision", True),
        ("openai:gemma3:12b", True),
        ("openai:o3", True),
        ("openai:o3-mini", False),
        ("openai:deepseek-chat", False),
        ("openai:qwen3:8b", False),
        ("openai:gpt-oss:20b", False),
        ("openai:llama3.2:3b", False),
        ("openai:nobody-knows", False),
    ],
)
def test_knows_who_sees(spec: str, sees: bool) -> None:
    assert instance_model(build_unshared_model(at(spec)), at(spec)).sees_images is sees


async def test_finds_the_first_server_with_a_chat_model(monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        OpenAIServer(models=["nomic-embed-text", "bge-m3"]) as embedder,
        OpenAIServer(models=["text-embedding-3", "qwen3:8b"]) as second,
        OpenAIServer(models=["llama"]) as third,
    ):
        dead = 9
        ports = f"{dead},{embedder.port}"
        monkeypatch.setenv("OPENMANUS_LOCAL_PORTS", f"{ports},{second.port},{third.port}")
        assert await find_local_server() == (f"http://127.0.0.1:{second.port}/v1", "qwen3:8b")
        monkeypatch.setenv("OPENMANUS_LOCAL_PORTS", ports)
        assert await find_local_server() is None


def test_anthropic_gets_marks_at_both_ends_and_the_request_stays() -> None:
    request = [SystemMessage("s"), HumanMessage("h"), AIMessage("a"), HumanMessage("steering")]
    marked = with_cache_marks(request, "anthropic", "claude-sonnet-4-5", stable=3)
    mark = {"type": "ephemeral"}
    assert marked[0].content == [{"type": "text", "text": "s", "cache_control": mark}]
    assert marked[2].content == [{"type": "text", "text": "a", "cache_control": mark}]
    assert [message.content for message in (marked[1], marked[3])] == ["h", "steering"]
    assert [message.content for message in request] == ["s", "h", "a", "steering"]


def test_bedrock_gets_cache_points() -> None:
    request = [SystemMessage("s"), ToolMessage("r", tool_call_id="c")]
    point = {"cachePoint": {"type": "default"}}
    marked = with_cache_marks(request, "bedrock", "us.anthropic.claude-sonnet-4-v1:0")
    assert marked[1].content == [{"type": "text", "text": "r"}, point]
    nova = with_cache_marks(request, "bedrock", "amazon.nova-pro-v1:0")
    assert (nova[0].content, nova[1].content) == ([{"type": "text", "text": "s"}, point], "r")


@pytest.mark.parametrize("provider", ["openai", "google", "deepseek", "ollama"])
def test_others_get_no_marks(provider: str) -> None:
    request = [SystemMessage("s"), HumanMessage("h")]
    assert with_cache_marks(request, provider, "m") == request


@pytest.mark.parametrize(
    ("model", "base_url", "prices", "free"),
    [
        ("openai:qwen3", "http://127.0.0.1:1/v1", None, True),
        ("ollama:qwen3", None, None, True),
        ("openai:qwen3", "http://127.0.0.1:1/v1", {"qwen3": {"output": 0.1}}, False),
        ("openai:qwen3", "http://gpu-box:1/v1", None, False),  # not known
        ("openai:qwen3", "http://gpu-box:1/v1", {"qwen3": {"input": 0, "output": 0}}, True),
        ("openai:gpt-5-mini", None, None, False),
        ("openai:gpt-5-mini", "http://127.0.0.1:1/v1", None, False),  # a proxy
    ],
)
def test_what_is_known_to_cost_nothing(
    model: str, base_url: str | None, prices: Any, free: bool
) -> None:
    client, settings = FakeListChatModel(responses=[]), ModelSettings(model, base_url)
    assert instance_model(client, settings).is_free(prices) == free
