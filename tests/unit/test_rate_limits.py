"""Requests and tokens per minute, by all agents of the process, or of many, together."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from langchain_core.messages import AIMessage

from openmanus_graph import Context, build_manus_graph
from openmanus_graph.backends.models.resolved import instance_model
from openmanus_graph.errors import ConfigError
from openmanus_graph.model_calls import sending
from openmanus_graph.model_calls.fitting import Fitter
from openmanus_graph.model_calls.recorder import ProviderRequest
from openmanus_graph.model_calls.sending import LONGEST_PAUSE_S, RateLimit, Sender
from openmanus_graph.runtime.limits import RunStopping
from openmanus_graph.state.addresses import RedisUrl
from openmanus_graph.state.model_settings import ModelSettings
from tests.support.aegra import redis
from tests.support.graphs import run_graph, scripted
from tests.unit.test_models_failures import status_error

Pause = Callable[[float], Awaitable[object]]


@pytest.fixture(autouse=True)
def fresh_limits() -> Iterator[None]:
    yield
    minute_passes()


def minute_passes() -> None:
    """Forget what was counted, as the passing of time does."""
    sending._own_storage.cache_clear()  # pyright: ignore[reportPrivateUsage]


class Waits:
    """Records notices and pauses; each pause lets a minute pass."""

    def __init__(self) -> None:
        self.pauses: list[float] = []
        self.notices: list[str] = []

    async def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        minute_passes()

    def emit(self, event: dict[str, Any]) -> None:
        if event["type"] == "notice":
            self.notices.append(event["text"])


async def take(waits: Waits, tokens: int = 1, **limits: Any) -> None:
    limit = RateLimit.of(ModelSettings("openai:m", base_url="http://a.test", **limits), waits.emit)
    assert limit is not None
    await limit.wait(tokens, "openai:m", waits.pause)


def test_without_a_limit_nothing_is_counted() -> None:
    assert RateLimit.of(ModelSettings("openai:m"), Waits().emit) is None


async def test_requests_over_the_limit_wait_and_say_so() -> None:
    waits = Waits()
    for _ in range(3):
        await take(waits, requests_per_minute=3)
    assert waits.pauses == []
    await take(waits, requests_per_minute=3)
    assert len(waits.pauses) == 1
    assert 0 < waits.pauses[0] <= LONGEST_PAUSE_S
    assert len(waits.notices) == 1
    assert waits.notices[0].startswith("openai:m is asked in about ")
    assert waits.notices[0].endswith("s: its rate limit.")


async def test_models_of_one_server_share_the_limit_and_others_do_not() -> None:
    waits = Waits()
    for name, address in (("m", "a"), ("n", "a"), ("m", "b")):
        model = ModelSettings(
            f"openai:{name}", base_url=f"http://{address}.test", requests_per_minute=1
        )
        limit = RateLimit.of(model, waits.emit)
        assert limit is not None
        await limit.wait(1, name, waits.pause)
    assert [text[0] for text in waits.notices] == ["n"]


async def test_tokens_count_too_and_what_a_reply_took_more_is_added() -> None:
    waits = Waits()
    await take(waits, 60, tokens_per_minute=100)
    await take(waits, 40, tokens_per_minute=100)
    assert waits.pauses == []
    await take(waits, 1, tokens_per_minute=100)
    assert len(waits.pauses) == 1
    minute_passes()
    model = ModelSettings("openai:m", base_url="http://a.test", tokens_per_minute=100)
    limit = RateLimit.of(model, waits.emit)
    assert limit is not None
    await take(waits, 10, tokens_per_minute=100)
    usage: Any = {"input_tokens": 80, "output_tokens": 15, "total_tokens": 95}
    await limit.count(AIMessage("", usage_metadata=usage), 10)
    await take(waits, 5, tokens_per_minute=100)
    assert len(waits.pauses) == 1
    await take(waits, 5, tokens_per_minute=100)
    assert len(waits.pauses) == 2


async def test_a_request_larger_than_the_limit_is_sent_by_itself() -> None:
    waits = Waits()
    await take(waits, 1000, tokens_per_minute=100)
    assert waits.pauses == []
    await take(waits, 1000, tokens_per_minute=100)
    assert len(waits.pauses) == 1


async def test_a_refused_token_limit_counts_no_request() -> None:
    waits = Waits()
    await take(waits, 100, tokens_per_minute=100, requests_per_minute=2)

    async def stop(seconds: float) -> None:
        raise RunStopping

    limit = RateLimit.of(
        ModelSettings(
            "openai:m", base_url="http://a.test", tokens_per_minute=100, requests_per_minute=2
        ),
        waits.emit,
    )
    assert limit is not None
    with pytest.raises(RunStopping):
        await limit.wait(1, "openai:m", stop)
    await take(waits, requests_per_minute=2)
    assert waits.pauses == []


def sender(waits: Waits, pause: Pause) -> Sender:
    return Sender("t", 1, waits.emit, pause, Fitter())


async def test_what_the_server_asks_to_wait_holds_for_all_agents() -> None:
    waits, others = Waits(), Waits()
    model = scripted(status_error(429, {"retry-after": "30"}), "done")
    chosen = ModelSettings(model, requests_per_minute=100)

    async def meanwhile(seconds: float) -> None:
        limit = RateLimit.of(chosen, others.emit)
        assert limit is not None
        await limit.wait(1, "the other", others.pause)

    request = ProviderRequest([AIMessage("x")], (), instance_model(model, chosen))
    reply = await sender(waits, meanwhile).send(request)
    assert reply.text == "done"
    assert others.notices == ["the other is asked in about 30 s: its server has asked to wait."]


async def test_a_wait_ends_with_the_run() -> None:
    waits = Waits()
    model = scripted("one", "two")
    chosen = ModelSettings(model, requests_per_minute=1)
    request = ProviderRequest([AIMessage("x")], (), instance_model(model, chosen))
    await sender(waits, waits.pause).send(request)

    async def stopping(seconds: float) -> None:
        raise RunStopping

    with pytest.raises(RunStopping):
        await sender(waits, stopping).send(request)
    waiting = asyncio.create_task(sender(waits, lambda _: asyncio.Event().wait()).send(request))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert len(model.requests) == 1


async def test_a_run_that_waits_too_long_ends_at_its_time_limit(tmp_path: Any) -> None:
    (tmp_path / "own.toml").write_text("[llm]\nrequests_per_minute = 1\n")
    model = scripted("one", "two")
    graph = build_manus_graph()
    context: dict[str, Any] = {"model": model, "timeout_s": 1.0}
    first = await run_with(graph, str(tmp_path / "own.toml"), context)
    second = await run_with(graph, str(tmp_path / "own.toml"), context)
    assert (first["answer"], second["stop_reason"]) == ("one", "timeout")
    assert len(model.requests) == 1


async def run_with(graph: Any, file: str, context: dict[str, Any]) -> dict[str, Any]:
    values: dict[str, Any] = await graph.ainvoke(
        {"messages": [("user", "go")]}, context=Context(config=file, workspace="work", **context)
    )
    return values


async def test_plain_runs_know_no_limit() -> None:
    ran = await run_graph(build_manus_graph(), "done")
    assert ran.values["answer"] == "done"
    assert sending._own_storage.cache_info().currsize == 0  # pyright: ignore[reportPrivateUsage]


@pytest.fixture(scope="module")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with redis(tmp_path_factory.mktemp("redis")) as address:
        yield address.replace("unix://", "redis+unix://")


def process_alike(url: str, waits: Waits) -> RateLimit:
    """Return a limit as another process has it: with a connection of its own."""
    sending._redis_storage.cache_clear()  # pyright: ignore[reportPrivateUsage]
    sending._asked_again_at.clear()  # pyright: ignore[reportPrivateUsage]
    model = ModelSettings("openai:m", base_url="http://a.test", requests_per_minute=2)
    limit = RateLimit.of(model, waits.emit, RedisUrl.parse(url))
    assert limit is not None
    return limit


async def test_processes_share_limits_and_what_a_server_asks_through_redis(redis_url: str) -> None:
    waits = Waits()

    async def stop(seconds: float) -> None:
        raise RunStopping

    for _ in range(2):
        await process_alike(redis_url, waits).wait(1, "m", stop)
    with pytest.raises(RunStopping):
        await process_alike(redis_url, waits).wait(1, "m", stop)
    assert waits.notices[0].endswith("s: its rate limit.")
    await process_alike(redis_url, waits).hold(40)
    await process_alike(redis_url, waits).hold(3)
    with pytest.raises(RunStopping):
        await process_alike(redis_url, waits).wait(1, "m", stop)
    assert waits.notices[1].endswith("s: its server has asked to wait.")


async def test_without_redis_each_process_counts_alone_and_says_so_without_the_password() -> None:
    waits = Waits()
    limit = process_alike("redis://me:hunter22@127.0.0.1:9/0", waits)
    await limit.hold(7)  # what fails first says so, whatever it is
    for _ in range(3):
        await limit.wait(1, "m", waits.pause)
    assert len(waits.pauses) == 2
    assert waits.notices[0].startswith("The rate limit cannot be shared: redis://127.0.0.1:9/0 (")
    assert "hunter22" not in str(waits.notices)
    assert len([text for text in waits.notices if "shared" in text]) == 1


@pytest.mark.parametrize("option", ["socket_timeout=soon", "unheard_of=1"])
async def test_an_option_that_redis_does_not_take_is_refused_and_not_shown(option: str) -> None:
    waits = Waits()
    limit = process_alike(f"redis://me:hunter22@127.0.0.1:9/0?{option}", waits)
    with pytest.raises(ConfigError, match="has an option that Redis's client does not") as raised:
        await limit.wait(1, "m", waits.pause)
    assert "hunter22" not in str(raised.value)


@pytest.mark.parametrize(
    "url",
    [
        "http://a.test",
        "redis://",
        "hunter22",
        "redis+unix://",
        "redis://:hunter22/x@a.test",
        "redis://:x@hunter22@a.test",
        "redis://a.test:hunter22",
        "redis://a.test:99999",
        "redis://[hunter22",
        "redis://a..test",
    ],
)
def test_what_is_no_address_of_redis_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(ConfigError, match="not an address of Redis") as raised:
        RedisUrl.parse(url)
    assert "hunter22" not in str(raised.value)
