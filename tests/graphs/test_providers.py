"""Anthropic, Google, OpenAI's Responses API: whole runs against servers that speak as they do."""

import asyncio
import base64
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from pydantic import SecretStr

from openmanus_graph import build_manus_graph
from openmanus_graph.backends.models.build import close_models, prepare_model
from openmanus_graph.state.model_settings import ModelSettings
from tests.support import anthropic_wire, google_wire, responses_wire
from tests.support.graphs import Ran, add, calls, run_graph, scripted
from tests.support.openai_script import Reply
from tests.support.openai_server import OpenAIServer
from tests.support.wire_server import WireReply, WireServer

pytestmark = pytest.mark.slow

ARGS = {"a": 1, "b": 2}
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
)
THINKING = {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 4000}
STATELESS = {
    "use_responses_api": True,
    "store": False,
    "include": ["reasoning.encrypted_content"],
    "reasoning": {"effort": "low", "summary": "auto"},
}


@dataclass(frozen=True)
class Wire:
    """One provider's protocol."""

    module: ModuleType
    spec: str
    options: dict[str, Any]
    call: Callable[[int], WireReply]
    """A reply with a thought, a text and two calls, by the number of its step."""
    say: Callable[[str], WireReply]

    def server(self, *script: WireReply) -> WireServer:
        return WireServer(script, self.module.complaint, self.module.error_of)

    async def model(self, server: WireServer) -> Any:
        address = f"{server.address}/v1" if self.module is responses_wire else server.address
        return await prepare_model(
            ModelSettings(self.spec, base_url=address, api_key=SecretStr("k"), options=self.options)
        )


ANTHROPIC = Wire(
    anthropic_wire,
    "anthropic:claude-sonnet-4-6",
    THINKING,
    lambda step: anthropic_wire.message(
        anthropic_wire.thinking(),
        anthropic_wire.text("I add."),
        anthropic_wire.tool_use("add", ARGS, f"toolu_{step}a"),
        anthropic_wire.tool_use("add", {"a": 3, "b": 4}, f"toolu_{step}b"),
    ),
    lambda said: anthropic_wire.message(anthropic_wire.text(said)),
)
GOOGLE = Wire(
    google_wire,
    "google:gemini-3-flash",
    {},
    lambda step: google_wire.reply(
        google_wire.thought("I should add."),
        google_wire.text("I add."),
        google_wire.call("add", ARGS, google_wire.SIGNATURE),
        google_wire.call("add", {"a": 3, "b": 4}),
    ),
    lambda said: google_wire.reply(google_wire.text(said)),
)
RESPONSES = Wire(
    responses_wire,
    "openai:gpt-5-mini",
    STATELESS,
    lambda step: responses_wire.response(
        responses_wire.reasoning(f"rs_{step}"),
        responses_wire.message("I add.", f"msg_{step}"),
        responses_wire.function_call("add", ARGS, 2 * step),
        responses_wire.function_call("add", {"a": 3, "b": 4}, 2 * step + 1),
    ),
    lambda said: responses_wire.response(
        responses_wire.reasoning("rs_9"), responses_wire.message(said, "msg_9")
    ),
)
WIRES = {"anthropic": ANTHROPIC, "google": GOOGLE, "responses": RESPONSES}
every_wire = pytest.mark.parametrize("wire", WIRES.values(), ids=WIRES)


async def run_on(wire: Wire, *script: WireReply, **context: Any) -> tuple[Ran, WireServer]:
    with wire.server(*script) as server:
        model = await wire.model(server)
        context.setdefault("model_options", {"max_retries": 0})
        ran = await run_graph(build_manus_graph(tools=[add]), model=model, **context)
        await close_models()
    return ran, server


@every_wire
async def test_a_task_with_thoughts_and_calls_is_done(wire: Wire) -> None:
    ran, server = await run_on(wire, wire.call(1), wire.call(2), wire.say("3 and 7"))
    assert ran.values["answer"] == "3 and 7"
    assert ran.results() == ["3", "7"] * 2
    assert len(server.requests) == 3, "no request was refused"
    usage = ran.values["usage"]
    cached = 70 if wire is ANTHROPIC else 60
    assert (usage["input_tokens"], usage["cached_tokens"]) == (300, 3 * cached)
    assert usage["output_tokens"] > 0
    tokens = "".join(event["text"] for event in ran.events if event["type"] == "token")
    assert tokens == "I add.I add.3 and 7", "thoughts are not text"


@every_wire
async def test_the_conversation_is_sent_back_as_it_came(wire: Wire) -> None:
    _, server = await run_on(wire, wire.call(1), wire.call(2), wire.say("done"))
    key = {"anthropic_wire": "messages", "google_wire": "contents", "responses_wire": "input"}
    name = key[wire.module.__name__.rpartition(".")[2]]
    second, third = (without_marks(body[name]) for body in server.bodies[1:])
    assert third[: len(second)] == second, "the prefix stays as it is"
    sent = str(third)
    signature = getattr(wire.module, "SIGNATURE", None) or responses_wire.ENCRYPTED
    assert sent.count(signature) == 2


def without_marks(value: Any) -> Any:
    """Return messages without cache marks, which move on and are on blocks: a text is one, too."""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        kept = {key: without_marks(each) for key, each in fields.items() if key != "cache_control"}
        return kept["text"] if kept.keys() == {"type", "text"} else kept
    if not isinstance(value, list):
        return value
    parts = [without_marks(each) for each in cast("list[Any]", value)]
    return parts[0] if len(parts) == 1 and isinstance(parts[0], str) else parts


@every_wire
async def test_a_text_that_the_length_limit_cut_goes_on(wire: Wire) -> None:
    cut = {
        ANTHROPIC.spec: anthropic_wire.message(
            anthropic_wire.text("The answer "), stop_reason="max_tokens"
        ),
        GOOGLE.spec: google_wire.reply(google_wire.text("The answer "), finish_reason="MAX_TOKENS"),
        RESPONSES.spec: responses_wire.response(
            responses_wire.message("The answer "), incomplete="max_output_tokens"
        ),
    }[wire.spec]
    ran, _ = await run_on(wire, cut, wire.say("is 3."))
    assert ran.values["answer"] == "The answer is 3."


OVERLOADED = {
    ANTHROPIC.spec: WireReply(
        status=529, error={"type": "error", "error": {"type": "overloaded_error", "message": "O"}}
    ),
    GOOGLE.spec: WireReply(
        status=503,
        error=google_wire.error_of("The model is overloaded.", 503, "UNAVAILABLE"),
    ),
    RESPONSES.spec: WireReply(status=503, error=responses_wire.error_of("overloaded")),
}


@every_wire
async def test_an_overloaded_service_is_asked_again_and_then_another_model(wire: Wire) -> None:
    refusals = [OVERLOADED[wire.spec]] * 2
    ran, server = await run_on(wire, *refusals, fallback=(scripted("from another"),))
    assert ran.values["answer"] == "from another"
    assert len(server.requests) == 1, "its own client does not repeat it"
    said = [event["text"] for event in ran.events if event["type"] == "notice"]
    assert any("is asked instead" in text for text in said)


@pytest.mark.parametrize(
    ("wire", "status", "error", "said"),
    [
        (ANTHROPIC, 401, {"type": "authentication_error", "message": "invalid x-api-key"}, "key"),
        (ANTHROPIC, 404, {"type": "not_found_error", "message": "model: claude-x"}, "name"),
        (
            ANTHROPIC, 400,
            {"type": "invalid_request_error", "message": "Your credit balance is too low"},
            "no credit",
        ),
        (
            ANTHROPIC, 400,
            {"type": "invalid_request_error", "message": "prompt is too long: 3 tokens > 2"},
            "longer than the model takes",
        ),
        (GOOGLE, 400, google_wire.error_of("API key not valid.")["error"], "Check the key"),
        (GOOGLE, 404, google_wire.error_of("models/x is not found", 404, "NOT_FOUND")["error"],
         "name"),
        (RESPONSES, 429, {"message": "You exceeded your current quota", "code":
                          "insufficient_quota", "type": "insufficient_quota"}, "no credit"),
    ],
)  # fmt: skip
async def test_refusals_are_understood(
    wire: Wire, status: int, error: dict[str, Any], said: str
) -> None:
    body = {"type": "error", "error": error} if wire is ANTHROPIC else {"error": error}
    ran, server = await run_on(wire, *[WireReply(status=status, error=body)] * 3)
    assert ran.values["status"] == "failed"
    assert said in ran.values["answer"]
    assert len(server.requests) == (2 if "longer" in said else 1), "without a retry"


async def test_anthropics_stream_that_breaks_off_overloaded_is_repeated() -> None:
    broken = anthropic_wire.failing(
        "overloaded_error", "Overloaded", after=ANTHROPIC.say("Half an answer")
    )
    ran, server = await run_on(ANTHROPIC, broken, fallback=(scripted("whole"),))
    assert ran.values["answer"] == "whole"
    assert len(server.requests) == 1
    assert ran.kinds().count("think_start") == 2, "the tokens before are void"


async def test_anthropics_call_that_was_cut_is_not_run() -> None:
    half = anthropic_wire.message(
        anthropic_wire.thinking(),
        anthropic_wire.tool_use("add", '{"a": 1, "b'),
        stop_reason="max_tokens",
    )
    ran, server = await run_on(ANTHROPIC, half, ANTHROPIC.say("I stop."))
    assert "was cut off by its length limit" in ran.results()[0]
    assert len(server.requests) == 2, "and the conversation with it is taken"


async def test_anthropics_refusal_is_told() -> None:
    refused = anthropic_wire.message(anthropic_wire.text("I cannot"), stop_reason="refusal")
    ran, _ = await run_on(ANTHROPIC, refused)
    said = [event["text"] for event in ran.events if event["type"] == "notice"]
    assert any("the provider's content filter" in text for text in said)


async def test_a_refusal_of_openais_is_the_answer() -> None:
    refused = responses_wire.response(responses_wire.refusal("I cannot help with that."))
    ran, server = await run_on(RESPONSES, refused)
    assert ran.values["answer"] == "I cannot help with that."
    assert len(server.requests) == 1


@pytest.mark.parametrize("reason", ["MALFORMED_FUNCTION_CALL", "STOP"])
async def test_googles_empty_reply_is_asked_about(reason: str) -> None:
    empty = google_wire.reply(finish_reason=reason)
    ran, server = await run_on(GOOGLE, empty, GOOGLE.say("3"))
    assert ran.values["answer"] == "3"
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("words", "details"),
    [
        ("Quota exceeded. Please retry in 7.5s.", []),
        (
            "Quota exceeded.",
            [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "7.5s"}],
        ),
    ],
)
async def test_googles_wish_to_wait_is_kept(words: str, details: list[Any]) -> None:
    error = google_wire.error_of(words, 429, "RESOURCE_EXHAUSTED")
    error["error"]["details"] = details
    ran, server = await run_on(
        GOOGLE,
        WireReply(status=429, error=error),
        model_options={"max_retries": 1},
        timeout_s=2.0,
    )
    assert ran.values["stop_reason"] == "timeout", "the wait is longer than the run"
    said = [event["text"] for event in ran.events if event["type"] == "notice"]
    assert any("after 8 s" in text or "after 9 s" in text for text in said)
    assert len(server.requests) == 1


@every_wire
async def test_a_wait_that_the_service_asks_for_is_kept(wire: Wire) -> None:
    busy = WireReply(
        status=429, error=wire.module.error_of("Slow down."), headers={"Retry-After": "9"}
    )
    ran, server = await run_on(wire, busy, model_options={"max_retries": 1}, timeout_s=2.0)
    assert ran.values["stop_reason"] == "timeout", "the wait is longer than the run"
    assert len(server.requests) == 1, "its own client does not repeat it"


@every_wire
async def test_a_picture_is_sent_as_the_protocol_has_it(wire: Wire) -> None:
    await asyncio.to_thread(Path("work").mkdir)
    await asyncio.to_thread(Path("work/red.png").write_bytes, PNG)
    task = HumanMessage("What is it?", additional_kwargs={"images": ["red.png"]})
    _, server = await run_on(wire, wire.say("Red."), task={"messages": [task]})
    data = base64.b64encode(PNG).decode()
    sent = {
        ANTHROPIC.spec: "'source': {'type': 'base64', 'media_type': 'image/png', "
        f"'data': '{data}'",
        GOOGLE.spec: f"'inlineData': {{'data': '{data}', 'mime_type': 'image/png'",
        RESPONSES.spec: f"'type': 'input_image', 'image_url': 'data:image/png;base64,{data}'",
    }[wire.spec]
    assert sent in str(server.bodies[0])


@pytest.mark.parametrize("kind", ["response.failed", "error"])
async def test_a_response_that_fails_in_the_stream_is_a_failure(kind: str) -> None:
    begun = responses_wire.response(responses_wire.message("Half"))
    error: dict[str, Any] = {"code": "server_error", "message": "The server had an error."}
    whole = {**begun.events[0]["response"], "status": "failed", "error": error}
    last = {"type": kind, "sequence_number": 99, "param": None}
    last |= error if kind == "error" else {"response": whole}
    broken = WireReply([*begun.events[:-2], last])
    ran, _ = await run_on(RESPONSES, broken, fallback=(scripted("from another"),))
    assert ran.values["answer"] == "from another"
    said = [event["text"] for event in ran.events if event["type"] == "notice"]
    assert any("The server had an error." in text for text in said)
    assert "ResponseError(" not in str(said)


def out_of_credit(wire: Wire) -> WireReply:
    return WireReply(status=402, error=wire.module.error_of("Your credit balance is too low"))


@every_wire
@pytest.mark.parametrize("before", WIRES.values(), ids=WIRES)
async def test_another_providers_model_goes_on_with_the_conversation(
    before: Wire, wire: Wire
) -> None:
    if wire is before:
        return
    options = {} if wire is ANTHROPIC else wire.options  # it wants thoughts of its own before calls
    later = Wire(wire.module, wire.spec, options, wire.call, wire.say)
    with before.server(before.call(1)) as first, later.server(later.say("3 and 7")) as second:
        main = await before.model(first)
        spare = await later.model(second)
        first.replies.append(out_of_credit(before))
        ran = await run_graph(
            build_manus_graph(tools=[add]),
            model=main,
            fallback=(spare,),
            model_options={"max_retries": 0},
        )
        await close_models()
    assert ran.values["answer"] == "3 and 7", ran.values
    assert "I add." in str(second.bodies[0])
    assert "I should add." not in str(second.bodies[0])


@every_wire
async def test_a_compatible_server_goes_on_with_the_conversation(wire: Wire) -> None:
    with (
        wire.server(
            wire.call(1), WireReply(status=402, error=wire.module.error_of("credit"))
        ) as one,
        OpenAIServer([Reply(text="3 and 7")], strict=True) as other,
    ):
        main = await wire.model(one)
        spare = await prepare_model(ModelSettings("openai:m", base_url=other.base_url))
        ran = await run_graph(
            build_manus_graph(tools=[add]),
            model=main,
            fallback=(spare,),
            model_options={"max_retries": 0},
        )
        await close_models()
    assert ran.values["answer"] == "3 and 7", ran.values
    assert other.requests[0].messages[2]["content"] == "I add."


@every_wire
async def test_a_compatible_servers_conversation_is_gone_on_with(wire: Wire) -> None:
    options = {} if wire is ANTHROPIC else wire.options
    later = Wire(wire.module, wire.spec, options, wire.call, wire.say)
    with later.server(later.say("3")) as server:
        spare = await later.model(server)
        reply = calls(("add", ARGS), text="I add.")
        first = scripted(
            AIMessage(
                "I add.",
                tool_calls=reply.tool_calls,
                response_metadata={"model_provider": "openai"},
                additional_kwargs={"reasoning_content": "I should add."},
            )
        )
        ran = await run_graph(build_manus_graph(tools=[add]), model=first, max_steps=1)
        ran = await run_graph(
            build_manus_graph(tools=[add]),
            task={"messages": [*ran.messages, HumanMessage("And now?")]},
            model=spare,
            model_options={"max_retries": 0},
        )
        await close_models()
    assert ran.values["answer"] == "3", ran.values
