"""The OpenAI-compatible client against a real local server, streaming and not."""

import asyncio
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import openai
import pytest
from blockbuster import blockbuster_ctx
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.messages.tool import tool_call
from langchain_openai import ChatOpenAI
from langchain_openai.data._profiles import _PROFILES  # pyright: ignore[reportPrivateUsage]
from pydantic import SecretStr

from openmanus_graph.backends.models.build import (
    build_openai_client,
    build_unshared_model,
    close_models,
    prepare_model,
)
from openmanus_graph.backends.models.chunks import merged_message
from openmanus_graph.backends.models.dialects import known_dialect
from openmanus_graph.backends.models.failures import FailureKind, classify
from openmanus_graph.backends.models.openai_compatible import OpenAICompatibleModel, wire_message
from openmanus_graph.backends.models.spec import parse_spec
from openmanus_graph.conversation.caches import MessageCache
from openmanus_graph.state.model_settings import ModelSettings
from tests.support.openai_script import Call, Fault, Reply
from tests.support.openai_server import OpenAIServer

MODES = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
ASKED: list[BaseMessage] = [SystemMessage("Be brief."), HumanMessage("Hello?")]


@pytest.fixture
async def server() -> AsyncIterator[OpenAIServer]:
    with OpenAIServer(strict=True) as running:
        yield running
        await close_models()


async def model_at(server: OpenAIServer, name: str = "m", **options: Any) -> BaseChatModel:
    settings = ModelSettings(f"openai:{name}", base_url=server.base_url, options=options)
    return await prepare_model(settings)


async def ask(
    server: OpenAIServer, reply: Reply, *, stream: bool, model: BaseChatModel | None = None
) -> AIMessage:
    server.add(reply)
    return await ask_again(model or await model_at(server), ASKED, stream=stream)


async def ask_again(
    model: BaseChatModel, messages: list[BaseMessage], *, stream: bool, **options: Any
) -> AIMessage:
    if not stream:
        return await model.ainvoke(messages, **options)
    return merged_message([chunk async for chunk in model.astream(messages, **options)])


@MODES
async def test_text_usage_and_reason_arrive(server: OpenAIServer, stream: bool) -> None:
    message = await ask(server, Reply(text="Hello, wörld!\u2028Next"), stream=stream)
    assert message.content == "Hello, wörld!\u2028Next"
    assert message.response_metadata["finish_reason"] == "stop"
    assert message.response_metadata["model_name"] == "m"
    assert message.usage_metadata is not None
    assert message.usage_metadata["input_tokens"] == 100
    assert message.usage_metadata.get("input_token_details") == {"cache_read": 40}


@MODES
async def test_the_messages_on_the_wire_are_the_right_ones(
    server: OpenAIServer, stream: bool
) -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    call = {"name": "bash", "args": {"command": "ls"}, "id": "c1", "type": "tool_call"}
    history: list[BaseMessage] = [
        SystemMessage([{"type": "text", "text": "One."}, {"type": "text", "text": "Two."}]),
        HumanMessage("List."),
        AIMessage("", tool_calls=[call]),  # pyright: ignore[reportArgumentType]  # as TypedDict
        ToolMessage([{"type": "text", "text": "a.txt"}, picture], tool_call_id="c1"),
        HumanMessage([{"type": "text", "text": "Seen?"}, picture]),
    ]
    server.add(Reply(text="Yes."))
    await ask_again(await model_at(server), history, stream=stream)
    assert server.requests[0].messages == [
        {"role": "system", "content": "One.\n\nTwo."},
        {"role": "user", "content": "List."},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {
                    "id": "c1",
                    "type": "function",
                    "function": {"name": "bash", "arguments": '{"command": "ls"}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "a.txt\n\n(picture left out)"},
        {"role": "user", "content": [{"type": "text", "text": "Seen?"}, picture]},
    ]
    assert server.requests[0].body["stream"] is stream
    assert server.requests[0].body.get("stream_options") == (
        {"include_usage": True} if stream else None
    )


@MODES
async def test_several_tool_calls_arrive_whole(server: OpenAIServer, stream: bool) -> None:
    calls = (Call("bash", {"command": "echo 'ä\n'"}), Call("python_execute", {"code": "1"}))
    message = await ask(server, Reply(text="I will.", calls=calls), stream=stream)
    assert [(c["name"], c["args"], c["id"]) for c in message.tool_calls] == [
        ("bash", {"command": "echo 'ä\n'"}, "call_1_0"),
        ("python_execute", {"code": "1"}, "call_1_1"),
    ]
    assert message.content == "I will."


@MODES
@pytest.mark.parametrize(
    "reply",
    [
        Reply(calls=(Call("a", {"x": 1}, index=0), Call("b", {"y": 2}, index=0))),
        Reply(calls=(Call("a", {"x": 1}, index=None), Call("b", {"y": 2}, index=None))),
        Reply(calls=(Call("a", {"x": 1}, id=None), Call("b", {"y": 2}, id=None))),
        Reply(calls=(Call("a", {"x": 1}, id=""), Call("b", {"y": 2}, id=""))),
        Reply(calls=(Call("a", {"x": 1}, id="same"), Call("b", {"y": 2}, id="same"))),
        Reply(calls=(Call("a", {"x": 1}), Call("b", {"y": 2})), repeat_names=True, piece_size=2),
        Reply(calls=(Call("a", {"x": 1}, as_object=True), Call("b", {"y": 2}, as_object=True))),
        Reply(calls=(Call("a", {"x": 1}), Call("b", {"y": 2})), further_choices=2),
    ],
    ids=["index 0", "no index", "no id", "empty id", "same id", "repeated", "object", "choices"],
)
async def test_calls_survive_what_servers_get_wrong(
    server: OpenAIServer, reply: Reply, stream: bool
) -> None:
    message = await ask(server, reply, stream=stream)
    assert [(call["name"], call["args"]) for call in message.tool_calls] == [
        ("a", {"x": 1}),
        ("b", {"y": 2}),
    ]


@MODES
@pytest.mark.parametrize("args", ['{"code": "print(1', "[1, 2]", "ls -la", '"text"'])
async def test_arguments_that_are_no_object_are_an_invalid_call(
    server: OpenAIServer, args: str, stream: bool
) -> None:
    reply = Reply(calls=(Call("bash", args),), finish_reason="length")
    message = await ask(server, reply, stream=stream)
    assert message.tool_calls == []
    assert [call["args"] for call in message.invalid_tool_calls] == [args]
    assert message.response_metadata["finish_reason"] == "length"


@MODES
@pytest.mark.parametrize("args", ["", "null", "{}"])
async def test_no_arguments_are_an_empty_object(
    server: OpenAIServer, args: str, stream: bool
) -> None:
    message = await ask(server, Reply(calls=(Call("terminate", args),)), stream=stream)
    assert [call["args"] for call in message.tool_calls] == [{}]


@MODES
@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
async def test_reasoning_is_kept_and_sent_back_with_tool_calls(
    server: OpenAIServer, field: str, stream: bool
) -> None:
    model = await model_at(server, "deepseek-v4")
    thinking = Reply(
        reasoning="I should look first.", reasoning_field=field, calls=(Call("bash", {}),)
    )
    first = await ask(server, thinking, stream=stream, model=model)
    assert first.additional_kwargs["reasoning_content"] == "I should look first."
    server.add(Reply(text="Done."))
    result = ToolMessage("x", tool_call_id=str(first.tool_calls[0]["id"]))
    last = await ask_again(model, [*ASKED, first, result], stream=stream)
    assert server.requests[1].messages[2][field] == "I should look first."
    server.add(Reply(text="Bye."))
    last.additional_kwargs["reasoning_content"] = "An answer's reasoning is not wanted."
    await ask_again(model, [*ASKED, last, HumanMessage("And?")], stream=stream)
    assert "reasoning" not in str(server.requests[2].messages)


@MODES
async def test_reasoning_is_not_sent_to_models_that_do_not_want_it(
    server: OpenAIServer, stream: bool
) -> None:
    call = Reply(reasoning="Hm.", calls=(Call("bash", {}),))
    first = await ask(server, call, stream=stream)
    server.add(Reply(text="Done."))
    result = ToolMessage("x", tool_call_id=str(first.tool_calls[0]["id"]))
    await ask_again(await model_at(server), [*ASKED, first, result], stream=stream)
    assert "reasoning_content" not in server.requests[1].messages[2]


async def test_a_running_usage_is_counted_once(server: OpenAIServer) -> None:
    message = await ask(server, Reply(text="x" * 50, usage_everywhere=True), stream=True)
    assert message.usage_metadata is not None
    assert message.usage_metadata["total_tokens"] == 120


@MODES
async def test_a_server_without_usage_is_answered_for(server: OpenAIServer, stream: bool) -> None:
    message = await ask(server, Reply(text="Hi", usage=None), stream=stream)
    assert message.usage_metadata is None


@pytest.mark.parametrize("fault", ["plain_json", "wrong_content_type", "no_done"])
@MODES
async def test_harmless_faults_are_understood(
    server: OpenAIServer, fault: Fault, stream: bool
) -> None:
    reply = Reply(text="Hello", calls=(Call("a", {"x": 1}),), fault=fault)
    message = await ask(server, reply, stream=stream)
    assert (message.content, message.tool_calls[0]["args"]) == ("Hello", {"x": 1})
    assert message.usage_metadata is not None


FAULTS: list[tuple[Fault, FailureKind]] = [
    ("reset", "retry"),
    ("reset_mid", "retry"),
    ("cut", "retry"),
    ("truncated", "retry"),
    ("error_inside", "retry"),
    ("no_choices", "retry"),
    ("null_choices", "retry"),
    ("broken_json", "retry"),
    ("html", "page"),
]


@MODES
@pytest.mark.parametrize(("fault", "kind"), FAULTS)
async def test_a_broken_reply_is_a_failure_never_an_empty_answer(
    server: OpenAIServer, fault: Fault, kind: FailureKind, stream: bool
) -> None:
    with pytest.raises(Exception) as raised:  # noqa: PT011  # the classifier is what is asserted
        await ask(server, Reply(text="Hello there", fault=fault), stream=stream)
    failure = classify(raised.value)
    assert failure is not None
    assert failure.kind == kind


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"message": "overloaded", "code": 503}, "retry"),
        ({"message": "Provider returned error", "code": 429}, "retry"),
        ({"message": "Invalid key", "code": 401}, "auth"),
        ({"message": "maximum context length is 8192", "type": "invalid"}, "context_length"),
        ("something went wrong", "retry"),
    ],
)
@pytest.mark.parametrize("fault", ["error_inside", "error_mid"])
async def test_an_error_inside_a_success_means_what_it_says(
    server: OpenAIServer, error: object, kind: FailureKind, fault: Fault
) -> None:
    with pytest.raises(Exception) as raised:  # noqa: PT011  # the classifier is what is asserted
        await ask(server, Reply(text="Hello there", fault=fault, error=error), stream=True)
    failure = classify(raised.value)
    assert failure is not None
    assert failure.kind == kind


@MODES
async def test_a_reply_that_a_filter_withheld_is_no_empty_answer(
    server: OpenAIServer, stream: bool
) -> None:
    with pytest.raises(Exception) as raised:  # noqa: PT011  # the classifier is what is asserted
        await ask(server, Reply(finish_reason="content_filter"), stream=stream)
    failure = classify(raised.value)
    assert failure is not None
    assert failure.kind == "withheld"


@MODES
async def test_an_empty_reply_is_reported_as_it_is(server: OpenAIServer, stream: bool) -> None:
    message = await ask(server, Reply(), stream=stream)
    assert (message.content, message.tool_calls) == ("", [])


async def test_retry_after_reaches_the_classifier(server: OpenAIServer) -> None:
    with pytest.raises(Exception) as raised:  # noqa: PT011  # the classifier is what is asserted
        await ask(server, Reply(status=429, headers={"Retry-After": "17"}), stream=True)
    failure = classify(raised.value)
    assert failure is not None
    assert (failure.kind, failure.retry_after_s) == ("retry", 17)
    assert len(server.requests) == 1, "the client must not retry by itself"


@MODES
@pytest.mark.parametrize(
    ("name", "written", "sent"),
    [
        ("m", "max_tokens", "max_tokens"),
        ("m", "max_completion_tokens", "max_completion_tokens"),
        ("openai/gpt-5", "max_tokens", "max_completion_tokens"),
    ],
)
async def test_the_token_limit_has_the_name_the_server_knows(
    server: OpenAIServer, stream: bool, name: str, written: str, sent: str
) -> None:
    model = await model_at(server, name, **{written: 9})
    server.add(Reply(text="a"))
    await ask_again(model, ASKED, stream=stream)
    limits = {key: one for key, one in server.requests[0].body.items() if key.startswith("max_")}
    assert limits == {sent: 9}


@pytest.mark.parametrize(
    ("name", "sent"),
    [
        ("gpt-4o", True),
        ("gpt-5-chat-latest", True),
        ("o1", False),
        ("o3-mini", False),
        ("o4-mini-2025-04-16", False),
        ("openai/gpt-5.2", False),
        ("olmo-7b", True),
    ],
)
async def test_reasoning_models_get_no_temperature(
    server: OpenAIServer, name: str, sent: bool
) -> None:
    server.add(Reply(text="a"))
    await ask_again(await model_at(server, name, temperature=0.2), ASKED, stream=False)
    assert ("temperature" in server.requests[0].body) is sent


@MODES
@pytest.mark.parametrize("fault", ["no_choices", "null_choices", "error_inside"])
async def test_langchains_own_client_is_understood_when_it_fails(
    server: OpenAIServer, fault: Fault, stream: bool
) -> None:
    async with openai.DefaultAsyncHttpxClient() as http:
        model = ChatOpenAI(
            model="m",
            base_url=server.base_url,
            api_key=SecretStr("k"),
            max_retries=0,
            http_async_client=http,
        )
        with pytest.raises(Exception) as raised:  # noqa: PT011  # the classifier is asserted
            await ask(server, Reply(fault=fault), stream=stream, model=model)
    failure = classify(raised.value)
    assert failure is not None
    assert failure.kind == "retry"


async def test_asking_does_not_block_the_event_loop(server: OpenAIServer) -> None:
    settings = ModelSettings("openai:fresh", base_url=server.base_url)
    server.add(Reply(text="one"), Reply(text="two"))
    with blockbuster_ctx("openmanus_graph"):
        model = await prepare_model(settings)
        assert (await ask_again(model, ASKED, stream=True)).content == "one"
        assert (await ask_again(model, ASKED, stream=False)).content == "two"


async def test_connections_are_used_again(server: OpenAIServer) -> None:
    for _ in range(3):
        await ask(server, Reply(text="Hello"), stream=True)
    assert server.connections == 1


async def test_breaking_off_a_stream_leaves_the_client_usable(server: OpenAIServer) -> None:
    model = await model_at(server)
    server.add(Reply(text="a long answer " * 20))
    stream = model.astream(ASKED)
    await anext(stream)
    await cast("Any", stream).aclose()  # astream is an async generator
    assert (await ask(server, Reply(text="Hello"), stream=True)).content == "Hello"


async def test_structured_output_works(server: OpenAIServer) -> None:
    schema = {"title": "Answer", "type": "object", "properties": {"n": {"type": "integer"}}}
    server.add(Reply(calls=(Call("Answer", {"n": 3}),)))
    structured = (await model_at(server)).with_structured_output(schema)
    assert await structured.ainvoke(ASKED) == {"n": 3}
    assert server.requests[0].body["tool_choice"] == "required"


def test_openai_itself_gets_its_own_roles_and_others_do_not() -> None:
    official = known_dialect("openai", "https://api.openai.com/v1", "gpt-4o")
    assert wire_message(SystemMessage("x"), official)["role"] == "system"
    o_model = known_dialect("openai", "https://api.openai.com/v1", "o3")
    assert wire_message(SystemMessage("x"), o_model)["role"] == "developer"
    other = known_dialect("openai", "http://127.0.0.1:1/v1", "o3")
    assert wire_message(SystemMessage("x"), other)["role"] == "system"


async def test_broken_arguments_and_names_in_the_history_are_made_acceptable(
    server: OpenAIServer,
) -> None:
    broken = AIMessage(
        "",
        invalid_tool_calls=[
            {
                "name": "run it!",
                "args": '{"a": ',
                "id": "c1",
                "error": "",
                "type": "invalid_tool_call",
            }
        ],
    )
    server.add(Reply(text="ok"))
    history = [*ASKED, broken, ToolMessage("Not JSON.", tool_call_id="c1")]
    assert (await ask_again(await model_at(server), history, stream=False)).content == "ok"
    function = server.requests[0].messages[2]["tool_calls"][0]["function"]
    assert function == {"name": "run_it_", "arguments": '{"not_a_json_object": "{\\"a\\": "}'}


async def test_texts_that_are_no_text_can_be_sent(server: OpenAIServer) -> None:
    server.add(Reply(text="ok"))
    history = [HumanMessage("caf\udce9"), HumanMessage([{"type": "text", "text": "\ud83d"}])]
    assert (await ask_again(await model_at(server), [*history], stream=True)).content == "ok"
    assert [m["content"] for m in server.requests[0].messages] == ["caf?", "?"]


def test_a_message_is_serialised_once_and_forgotten_with_it() -> None:
    made: list[BaseMessage] = []

    def make(message: BaseMessage) -> bytes:
        made.append(message)
        return message.text.encode()

    cache = MessageCache[bytes]()
    message = HumanMessage("one")
    assert cache.get(message, make) is cache.get(message, make)
    assert len(made) == 1
    message.content = "two"
    assert cache.get(message, make) == b"two"
    made.clear()
    del message
    assert len(cache) == 0


async def test_providers_fields_are_returned_with_the_calls(server: OpenAIServer) -> None:
    model = await model_at(server, "gemini-3-pro")
    extra = {"google": {"thought_signature": "sig"}}
    message = AIMessage(
        "",
        tool_calls=[{"name": "a", "args": {}, "id": "c1", "type": "tool_call"}],
        additional_kwargs={
            "tool_call_extras": {"c1": {"extra_content": extra}},
            "reasoning_details": [{"type": "reasoning.encrypted", "data": "x"}],
        },
    )
    server.add(Reply(text="ok"))
    await ask_again(model, [*ASKED, message, ToolMessage("r", tool_call_id="c1")], stream=True)
    sent = server.requests[0].messages[2]
    assert sent["tool_calls"][0]["extra_content"] == extra
    assert sent["reasoning_details"] == [{"type": "reasoning.encrypted", "data": "x"}]


def test_the_last_chunk_alone_makes_a_message() -> None:
    chunk = AIMessageChunk(content="hi", chunk_position="last")
    assert merged_message([chunk]).content == "hi"


def langchains_form(message: BaseMessage) -> Any:
    """Return what LangChain's own client sends, as far as it is not `null`."""
    client = ChatOpenAI(model="gpt-4o", api_key=SecretStr("k"), use_responses_api=False)
    payload: Any = client._get_request_payload([message])  # pyright: ignore
    (form,) = payload["messages"]
    return {**form, "content": form["content"] or ""}


TEXT = {"type": "text", "text": "Seen?"}
BLOCKS: dict[str, dict[str, Any]] = {
    "picture": {"type": "image", "base64": "AAAA", "mime_type": "image/png"},
    "older picture": {
        "type": "image", "source_type": "base64", "data": "AA", "mime_type": "image/png",
    },
    "address": {"type": "image", "url": "https://a.test/b.png"},
    "sound": {"type": "audio", "base64": "AAAA", "mime_type": "audio/wav"},
    "file": {
        "type": "file", "base64": "AA", "mime_type": "application/pdf", "filename": "a.pdf",
    },
    "Anthropic's picture": {
        "type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA"},
    },
    "Anthropic's address": {
        "type": "image", "source": {"type": "url", "url": "https://a.test/b.png"},
    },
    "OpenAI's own": {"type": "image_url", "image_url": {"url": "https://a.test/b.png"}},
    "thought": {"type": "thinking", "thinking": "hm", "signature": "s"},
}  # fmt: skip
MESSAGES: dict[str, BaseMessage] = {
    "named": HumanMessage("text", name="ann"),
    "answer": AIMessage("done", name="coder"),
    "call": AIMessage(
        [TEXT, BLOCKS["thought"], {"type": "tool_use", "id": "c1", "name": "bash", "input": {}}],
        tool_calls=[tool_call(name="bash", args={"command": "ls ä"}, id="c1")],
    ),
    "voice": AIMessage("", additional_kwargs={"audio": {"id": "audio_1", "data": "AAAA"}}),
    "result": ToolMessage("result", tool_call_id="c1", name="bash"),
    "role": ChatMessage(content="hello", role="critic"),
    **{name: HumanMessage([TEXT, block]) for name, block in BLOCKS.items()},
}


@pytest.mark.parametrize("message", MESSAGES.values(), ids=MESSAGES)
def test_a_message_is_sent_as_langchains_client_sends_it(message: BaseMessage) -> None:
    theirs = langchains_form(message)
    ours = wire_message(message, known_dialect("openai", "https://api.openai.com/v1", "gpt-4o"))
    if isinstance(ours["content"], str) and theirs["content"] != ours["content"]:
        theirs["content"] = theirs["content"][0]["text"]  # blocks of text alone are joined
    assert ours == theirs


@pytest.mark.parametrize("name", list(_PROFILES))
def test_models_of_openai_are_known_without_loading_langchains_client(name: str) -> None:
    key = SecretStr("k")
    theirs = ChatOpenAI(model=name, api_key=key)
    settings = ModelSettings(f"openai:{name}", api_key=key)
    client = build_openai_client(parse_spec(f"openai:{name}"), settings, "k")
    needs_responses = bool(theirs.use_responses_api) or name.startswith("gpt-6")
    assert type(client) is (ChatOpenAI if needs_responses else OpenAICompatibleModel)
    chat = ChatOpenAI(model=name, api_key=key, use_responses_api=needs_responses)
    assert client.profile == chat.profile


async def test_the_request_is_the_one_that_langchains_client_sends(server: OpenAIServer) -> None:
    given: dict[str, Any] = {
        "temperature": 0.5, "top_p": 0.9, "frequency_penalty": 0.1, "presence_penalty": 0.2,
        "seed": 7, "stop": ["END"], "n": 1, "logprobs": True, "top_logprobs": 2,
        "logit_bias": {"50256": -100}, "reasoning_effort": "low", "verbosity": "low",
        "service_tier": "flex", "store": False, "prompt_cache_options": {"mode": "implicit"},
        "extra_body": {"top_k": 5}, "model_kwargs": {"modalities": ["text"]},
        "default_headers": {"X-Title": "t"}, "default_query": {"v": "1"},
    }  # fmt: skip
    server.add(Reply(text="a"), Reply(text="b"))
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    async with openai.DefaultAsyncHttpxClient() as http:
        theirs = ChatOpenAI(
            **given,
            model="m",
            base_url=server.base_url,
            api_key=SecretStr("none"),
            stream_usage=True,
            http_async_client=http,
        )
        for model in (await model_at(server, **given), theirs):
            bound = model.bind_tools(tools, tool_choice="f", parallel_tool_calls=False)
            _ = [chunk async for chunk in bound.astream(ASKED)]
    ours, langchains = server.requests
    assert ours.body == langchains.body
    assert ours.path == langchains.path
    for name in ("authorization", "content-type", "x-title"):
        assert ours.headers[name] == langchains.headers[name]


async def test_unknown_options_are_parameters_and_the_clients_own_are_not(
    server: OpenAIServer,
) -> None:
    server.add(Reply(text="a"))
    model = await model_at(server, top_k=4, max_retries=9, api_key="sk-wrong")
    await ask_again(model, ASKED, stream=False)
    body = server.requests[0].body
    assert body["top_k"] == 4
    assert not {"max_retries", "api_key"} & set(body)


def test_a_model_can_be_asked_without_an_event_loop(server: OpenAIServer) -> None:
    server.add(Reply(text="one"), Reply(text="two"))
    settings = ModelSettings("openai:m", base_url=server.base_url)
    model = build_unshared_model(settings)
    assert [model.invoke("Hello").text for _ in range(2)] == ["one", "two"]


async def test_a_model_can_be_asked_by_blocking_code_in_an_event_loop(
    server: OpenAIServer,
) -> None:
    server.add(Reply(text="one"), Reply(text="two"))
    model = await model_at(server)
    assert model.invoke(ASKED).text == "one"
    assert (await model.ainvoke(ASKED)).text == "two"


@pytest.mark.slow
async def test_a_run_loads_neither_the_openai_sdk_nor_langchains_client(
    server: OpenAIServer, tmp_path: Path
) -> None:
    program = """
import asyncio, sys
from openmanus_graph import Context, build_manus_graph
context = Context(model="openai:m", base_url=sys.argv[1], workspace="work")
asked = {"messages": [{"role": "user", "content": "go"}]}
print(asyncio.run(build_manus_graph().ainvoke(asked, context=context))["answer"])
print([name for name in ("openai", "langchain_openai") if name in sys.modules])
"""
    server.add(Reply(text="Done."))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", program, server.base_url), cwd=tmp_path, stdout=PIPE, stderr=PIPE
    )
    out, err = await process.communicate()
    assert (out.decode().splitlines(), err) == (["Done.", "[]"], b"")
