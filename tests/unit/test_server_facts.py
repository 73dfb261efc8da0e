"""What servers tell of themselves is read, whatever else they answer."""

import asyncio
import copy
import random
from collections.abc import Iterator
from typing import Any, cast

import pytest

from openmanus_graph.backends.models import resolved
from openmanus_graph.backends.models.build import close_models
from openmanus_graph.backends.models.resolved import resolve_model
from openmanus_graph.backends.models.server_facts import (
    ServerFacts,
    address_of,
    ask_server,
    facts_of,
)
from openmanus_graph.state.model_settings import ModelSettings
from tests.support import server_facts as served
from tests.support.limits import BACKSTOP_S
from tests.support.local_http import LocalServer, SilentHandler
from tests.support.openai_server import OpenAIServer
from tests.support.server_facts import MODEL


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer() as server:
        yield server


def without(facts: dict[str, Any], path: str) -> dict[str, Any]:
    return {key: value for key, value in facts.items() if key != path}


NOT_LOADED = {**served.LM_STUDIO, "/api/v0/models": {"data": [{"id": MODEL, "type": "llm"}]}}


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (served.LLAMA_CPP, ServerFacts(True, "llama.cpp", 4096, 1543714304, False)),
        (without(served.LLAMA_CPP, "/props"), ServerFacts(True, "", 8192, 1543714304, None)),
        (served.OLLAMA, ServerFacts(True, "ollama", 4096, 1_500_000_000, True)),
        (
            {**served.OLLAMA, "/api/ps": {"models": []}},
            ServerFacts(True, "ollama", 16384, 1_500_000_000, True),
        ),
        (
            {**served.OLLAMA, "/api/ps": {"models": []}, "/api/show": {"capabilities": []}},
            ServerFacts(True, "ollama", None, None, False),
        ),
        (served.LM_STUDIO, ServerFacts(True, "lmstudio", 4096, None, True)),
        (NOT_LOADED, ServerFacts(True, "lmstudio", None, None, False)),
        (served.VLLM, ServerFacts(True, "vllm", 8192)),
        (served.SGLANG, ServerFacts(True, "sglang", 8186)),
        (served.TGI, ServerFacts(True, "tgi", 4096)),
        (served.OPENROUTER, ServerFacts(True, "openrouter", 131072, None, True)),
        ({}, ServerFacts(True)),
    ],
)
async def test_each_kind_of_server_is_read(
    server: OpenAIServer, facts: dict[str, Any], expected: ServerFacts
) -> None:
    server.facts.update(facts)
    assert await ask_server(server.base_url, MODEL) == expected
    assert await ask_server(server.base_url.removesuffix("/v1") + "/", MODEL) == expected


async def test_hostile_answers_tell_nothing(server: OpenAIServer) -> None:
    odd: list[Any] = [None, True, -1, "x", [], {}, [[]], {"data": 3}, {"models": [None]}, 1e999]
    chance = random.Random(7)

    def spoilt(value: Any) -> Any:
        if chance.random() < 0.2:
            return chance.choice(odd)
        if isinstance(value, dict):
            return {key: spoilt(one) for key, one in cast("dict[str, Any]", value).items()}
        return [*map(spoilt, cast("list[Any]", value))] if isinstance(value, list) else value

    for kind in (
        served.LLAMA_CPP,
        served.OLLAMA,
        served.LM_STUDIO,
        served.SGLANG,
        served.OPENROUTER,
    ) * 6:
        server.facts = {path: spoilt(copy.deepcopy(facts)) for path, facts in kind.items()}
        found = await ask_server(server.base_url, MODEL)
        assert found.window is None or found.window > 0


class _Odd(SilentHandler):
    """Sends questions on to another server, with no, broken or endless answers for others."""

    elsewhere = ""

    def do_GET(self) -> None:
        if self.path == "/props":
            self.send_response(307)
            self.send_header("Location", f"{self.elsewhere}/props")
            self.end_headers()
        elif self.path == "/api/ps":
            self.rfile.read(1)  # never comes
        elif self.path == "/info":
            self.send_response(200)
            self.end_headers()
            while True:
                self.wfile.write(b" " * 65536)
        else:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"[" * 100_000)

    do_POST = do_GET


async def test_a_server_is_asked_for_two_seconds_and_sends_nobody_elsewhere(
    server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.facts.update(served.LLAMA_CPP)
    monkeypatch.setattr(_Odd, "elsewhere", server.base_url.removesuffix("/v1"))
    odd = LocalServer(_Odd)
    odd.begin()
    try:
        async with asyncio.timeout(BACKSTOP_S):  # else it would read without end
            found = await ask_server(odd.url, MODEL, "key")
    finally:
        odd.end()
    assert found == ServerFacts()
    assert server.asked == []
    assert await ask_server(odd.url, MODEL) == ServerFacts(), "nobody is there any more"


async def test_a_server_is_asked_again_until_it_tells_its_window(
    server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resolved, "_ASK_AGAIN_S", 0.0)
    settings = ModelSettings(f"openai:{MODEL}", server.base_url)
    server.facts.update(
        {**served.OLLAMA, "/api/ps": {"models": []}, "/api/show": {"capabilities": []}}
    )
    assert (await resolve_model(settings)).facts.window is None, "it has not loaded the model"
    server.facts.update(served.OLLAMA)
    assert (await resolve_model(settings)).facts.window == 4096
    asked = len(server.asked)
    assert (await resolve_model(settings)).facts.window == 4096
    assert len(server.asked) == asked, "now it is known"
    await close_models()


async def test_the_key_goes_to_the_server_itself(server: OpenAIServer) -> None:
    settings = ModelSettings(f"openai:{MODEL}", server.base_url)
    server.facts.update(served.VLLM)
    assert (await facts_of(settings)).window == 8192
    assert {key for _, key in server.asked} == {"Bearer none"}


@pytest.mark.parametrize(
    ("model", "base_url", "asked"),
    [
        ("openai:gpt-5", None, False),
        ("openai:gpt-5", "https://api.openai.com/v1/", False),
        ("openai:x", "https://me.openai.azure.com/v1", False),
        ("groq:x", None, False),
        ("openai:x", "https://api.groq.com/openai/v1", False),
        ("anthropic:claude", None, False),
        ("anthropic:claude", "https://api.anthropic.com", False),
        ("openai:x", "http://127.0.0.1:8080/v1", True),
        ("openai:x", "http://gpu-box:8000/v1", True),
        ("openai:x", "https://models.example.org/v1", True),
        ("openai:x", "https://notopenai.com.example.org/v1", True),
        ("openrouter:x/y", None, True),
        ("ollama:qwen3", None, True),
    ],
)
def test_big_providers_are_not_asked(model: str, base_url: str | None, asked: bool) -> None:
    assert (address_of(ModelSettings(model, base_url)) is not None) == asked


async def test_what_cannot_be_asked_is_no_error() -> None:
    for address in ("ftp://x", "nothing", "http://127.0.0.1:1/v1", "http://[::1", "http://x:99999"):
        assert await ask_server(address, MODEL) == ServerFacts()
    assert await facts_of(ModelSettings("openai:x", "no address")) == ServerFacts()
