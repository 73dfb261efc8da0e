import asyncio
import sys
from pathlib import Path
from typing import Any

import certifi
import pytest
from langchain_core.language_models import FakeListChatModel
from pydantic import SecretStr

from openmanus_graph.backends.models.build import close_models, prepare_model
from openmanus_graph.backends.models.endpoint import tls_context
from openmanus_graph.backends.models.resolved import cache_options
from openmanus_graph.backends.models.spec import model_name
from openmanus_graph.errors import ConfigError
from openmanus_graph.state.model_settings import ModelSettings
from tests.support.openai_script import Reply
from tests.support.openai_server import OpenAIServer

KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "AZURE_OPENAI_API_KEY", "DEEPSEEK_API_KEY")
PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*KEYS, *PROXIES, *(proxy.upper() for proxy in PROXIES)):
        monkeypatch.delenv(name, raising=False)
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("spec", "variable"),
    [("openai:gpt-5", "OPENAI_API_KEY"), ("deepseek:deepseek-chat", "DEEPSEEK_API_KEY")],
)
async def test_a_missing_key_is_named_at_once(spec: str, variable: str) -> None:
    with pytest.raises(ConfigError, match=f"No key for the model {spec}.*{variable}"):
        await prepare_model(ModelSettings(spec))


async def test_the_environments_key_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", " sk-environment \n")
    assert await key_sent(ModelSettings("openai:m")) == "Bearer sk-environment"


async def test_the_settings_key_goes_before_the_environments(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-environment")
    settings = ModelSettings("openai:m", api_key=SecretStr("sk-settings"))
    assert await key_sent(settings) == "Bearer sk-settings"


async def test_a_server_of_ones_own_needs_no_key() -> None:
    assert await key_sent(ModelSettings("openai:m")) == "Bearer none"


async def key_sent(settings: ModelSettings) -> str:
    with OpenAIServer([Reply(text="Hi")]) as server:
        here = ModelSettings(settings.model, base_url=server.base_url, api_key=settings.api_key)
        await (await prepare_model(here)).ainvoke("Hello")
        await close_models()
        return server.requests[0].headers["authorization"]


async def test_a_proxy_is_used_and_no_proxy_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    with OpenAIServer([Reply(text="through the proxy"), Reply(text="directly")]) as server:
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{server.port}")
        model = await prepare_model(ModelSettings("openai:m", base_url="http://models.test/v1"))
        assert (await model.ainvoke("Hello")).content == "through the proxy"
        assert server.requests[0].path == "http://models.test/v1/chat/completions"
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        model = await prepare_model(ModelSettings("openai:m", base_url=server.base_url))
        assert (await model.ainvoke("Hello")).content == "directly"
        assert server.requests[1].path == "/v1/chat/completions"
        await close_models()


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"])
def test_authorities_of_the_environment_are_trusted(
    variable: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    one = certifi.contents().partition("-----END CERTIFICATE-----")
    bundle = tmp_path / "ca.pem"
    bundle.write_text(one[0] + one[1])
    monkeypatch.setenv(variable, str(bundle))
    context = tls_context()
    assert len(context.get_ca_certs()) == 1


@pytest.mark.parametrize("variable", ["ALL_PROXY", "OPENAI_PROXY"])
async def test_other_proxies_are_used(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with OpenAIServer([Reply(text="through the proxy")]) as server:
        monkeypatch.setenv(variable, f"http://127.0.0.1:{server.port}")
        model = await prepare_model(ModelSettings("openai:m", base_url="http://models.test/v1"))
        assert (await model.ainvoke("Hello")).content == "through the proxy"
        await close_models()


@pytest.mark.parametrize("address", ["127.0.0.1:8000", "htp://x/v1", "http://", "http://x:y/v1"])
async def test_a_base_url_that_is_none_is_reported(address: str) -> None:
    with pytest.raises(ConfigError, match="not a web address"):
        await prepare_model(ModelSettings("openai:m", base_url=address))


async def test_a_base_url_may_be_copied_whole() -> None:
    with OpenAIServer([Reply(text="Hi")]) as server:
        address = f"{server.base_url}/chat/completions/"
        await (await prepare_model(ModelSettings("openai:m", base_url=address))).ainvoke("Hello")
        await close_models()
        assert server.requests[0].path == "/v1/chat/completions"


async def test_a_base_url_may_hold_a_query() -> None:
    with OpenAIServer([Reply(text="Hi")]) as server:
        settings = ModelSettings(
            "openai:m",
            base_url=f"{server.base_url}?key=abc",
            options={"default_query": {"n": 1}, "default_headers": {"X-Number": 7}},
        )
        await (await prepare_model(settings)).ainvoke("Hello")
        await close_models()
        (request,) = server.requests
    assert request.path == "/v1/chat/completions?key=abc&n=1"
    assert request.headers["x-number"] == "7"


async def test_a_base_url_may_hold_a_login() -> None:
    with OpenAIServer([Reply(text="Hi")]) as server:
        address = server.base_url.replace("://", "://ann:p%40ss@")
        model: Any = await prepare_model(ModelSettings("openai:m", base_url=address))
        await model.ainvoke("Hello")
        await close_models()
        (request,) = server.requests
    assert request.headers["authorization"] == "Basic YW5uOnBAc3M="  # ann:p@ss
    assert "p%40ss" not in repr(model)


async def test_azure_takes_a_token_of_its_directory() -> None:
    with OpenAIServer([Reply(text="Hi")]) as server:
        settings = ModelSettings(
            "azure:my-gpt",
            base_url=f"http://127.0.0.1:{server.port}",
            api_key=SecretStr("k"),
            options={"azure_ad_token": "t"},
        )
        await (await prepare_model(settings)).ainvoke("Hello")
        await close_models()
        (request,) = server.requests
    assert request.headers["authorization"] == "Bearer t"
    assert "api-key" not in request.headers
    assert "azure_ad_token" not in request.body


async def test_the_organization_of_the_environment_is_told_to_openai_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_ORG_ID", "org-1")
    there: Any = await prepare_model(openais())
    assert there.headers["OpenAI-Organization"] == "org-1"
    other: Any = await prepare_model(openais(base_url="http://127.0.0.1:9/v1"))
    assert "OpenAI-Organization" not in other.headers
    asked = openais(base_url="http://127.0.0.1:9/v1", options={"organization": "org-2"})
    named: Any = await prepare_model(asked)
    assert named.headers["OpenAI-Organization"] == "org-2"


async def test_a_key_that_cannot_be_one_is_reported() -> None:
    with pytest.raises(ConfigError, match="Copy it again"):
        await prepare_model(ModelSettings("openai:m", api_key=SecretStr("sk—abc")))


async def test_a_missing_certificate_file_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/nowhere/ca.pem")
    with pytest.raises(ConfigError, match="REQUESTS_CA_BUNDLE names '/nowhere/ca.pem'"):
        await prepare_model(ModelSettings("openai:m", base_url="https://certified.test/v1"))


async def test_the_same_settings_share_a_client() -> None:
    settings = ModelSettings("openai:m", base_url="http://127.0.0.1:9/v1", options={"seed": 1})
    same = ModelSettings("openai:m", base_url="http://127.0.0.1:9/v1", options={"seed": 1})
    other = ModelSettings("openai:m", base_url="http://127.0.0.1:9/v1", options={"seed": 2})
    assert await prepare_model(settings) is await prepare_model(same)
    assert await prepare_model(settings) is not await prepare_model(other)


def test_event_loops_do_not_share_a_client() -> None:
    with OpenAIServer([Reply(text="one"), Reply(text="two")]) as server:
        settings = ModelSettings("openai:m", base_url=server.base_url)

        async def ask() -> object:
            answer = await (await prepare_model(settings)).ainvoke("Hello")
            await close_models()
            return answer.content

        assert [asyncio.run(ask()), asyncio.run(ask())] == ["one", "two"]


async def test_an_instance_is_used_as_it_is() -> None:
    model = FakeListChatModel(responses=["x"])
    assert await prepare_model(ModelSettings(model)) is model
    assert model_name(ModelSettings(model)) == "FakeListChatModel"
    assert model_name(ModelSettings("openai:gpt-5")) == "openai:gpt-5"


async def test_a_missing_package_is_named_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "langchain_anthropic", None)
    settings = ModelSettings("anthropic:claude-sonnet-4-5", api_key=SecretStr("k"))
    with pytest.raises(ConfigError, match=r'pip install "openmanus-graph\[anthropic\]"'):
        await prepare_model(settings)


async def test_options_that_are_not_accepted_are_named_without_the_key() -> None:
    settings = ModelSettings(
        "openai:m", api_key=SecretStr("sk-secret-key"), options={"temperature": "warm"}
    )
    with pytest.raises(ConfigError, match="temperature") as error:
        await prepare_model(settings)
    assert "sk-secret-key" not in str(error.value)


async def test_azure_needs_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_OPENAI_ENDPOINT", raising=False)
    settings = ModelSettings("azure:gpt-4o", api_key=SecretStr("k"))
    with pytest.raises(ConfigError, match="openai.azure.com"):
        await prepare_model(settings)


async def test_azure_asks_its_deployment() -> None:
    with OpenAIServer([Reply(text="Hi")]) as server:
        model: Any = await prepare_model(
            ModelSettings(
                "azure:my-gpt",
                base_url=f"http://127.0.0.1:{server.port}",
                api_key=SecretStr("k"),
                api_version="2025-01-01-preview",
            )
        )
        assert (await model.ainvoke("Hello")).content == "Hi"
        request = server.requests[0]
        await close_models()
    assert request.path == (
        "/openai/deployments/my-gpt/chat/completions?api-version=2025-01-01-preview"
    )
    assert request.headers["api-key"] == "k"


def openais(**fields: Any) -> ModelSettings:
    return ModelSettings("openai:gpt-5-mini", api_key=SecretStr("k"), **fields)


async def test_openai_is_sent_one_cache_key_per_thread() -> None:
    model = await prepare_model(openais())
    (key,) = cache_options(model, "my thread").values()
    assert cache_options(model, "my thread") == {"prompt_cache_key": key}
    assert cache_options(model, "another") != cache_options(model, "my thread")
    assert "my thread" not in key
    assert len(key) == 32


@pytest.mark.parametrize(
    "address",
    ["http://127.0.0.1:8000/v1", "https://openrouter.ai/api/v1", "https://api.openai.com.evil.org"],
)
async def test_other_servers_are_sent_no_cache_key(address: str) -> None:
    assert cache_options(await prepare_model(openais(base_url=address)), "t") == {}
    assert cache_options(FakeListChatModel(responses=[]), "t") == {}


@pytest.mark.filterwarnings("ignore:.*prompt_cache_key")
async def test_a_cache_key_that_the_person_set_stands() -> None:
    own = openais(options={"model_kwargs": {"prompt_cache_key": "mine"}})
    assert cache_options(await prepare_model(own), "t") == {}
    given = openais(options={"prompt_cache_key": "mine"})
    assert cache_options(await prepare_model(given), "t") == {}
