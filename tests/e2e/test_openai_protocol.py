"""OpenAI's own client against the server: agents are models, a conversation is a thread."""

import base64
import json
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import openai
import pytest
from openai import AsyncOpenAI

from tests.support.graphs import own_words
from tests.support.limits import BACKSTOP_S
from tests.support.openai_script import Call, Reply
from tests.support.openai_server import OpenAIServer
from tests.support.serving import Served

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
PICTURE = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
WRITE = Reply(text="I write it.", calls=(Call("bash", {"command": "echo hi > a.txt"}),))
ASK = Reply(calls=(Call("ask_human", {"inquire": "Which colour?"}),))
WAIT = Reply(calls=(Call("bash", {"command": "sleep 60"}),))


def user(content: Any) -> Any:
    return {"role": "user", "content": content}


def said(text: str) -> Any:
    return {"role": "assistant", "content": text}


@asynccontextmanager
async def client_of(served: Served, token: str = "") -> AsyncGenerator[AsyncOpenAI]:
    """The SDK as people set it up: address and key, and nothing else but a time limit."""
    async with AsyncOpenAI(
        base_url=f"{served.url}/v1", api_key=token or served.token, timeout=BACKSTOP_S
    ) as client:
        yield client


async def threads_of(served: Served) -> list[dict[str, Any]]:
    async with served.http() as http:
        found: list[dict[str, Any]] = (await http.get("/app/api/threads")).json()["threads"]
        return found


async def newest_threads(served: Served) -> set[str]:
    """The ids of the newest threads. The server lists at most 50 of them, other tests' included."""
    return {thread["id"] for thread in await threads_of(served)}


async def test_agents_are_models(served: Served) -> None:
    async with client_of(served) as client:
        models = [model.id async for model in client.models.list()]
        assert {"manus", "browser", "swe", "planning"} <= set(models)
        assert (await client.models.retrieve("manus")).owned_by == "openmanus"
        with pytest.raises(openai.NotFoundError, match="no model 'nobody'"):
            await client.models.retrieve("nobody")


@pytest.mark.slow
async def test_an_answer_with_its_files_and_the_conversation_goes_on_in_its_thread(
    served: Served, served_model: OpenAIServer
) -> None:
    served_model.add(WRITE, Reply(text="Written."), Reply(text="Yes, hi."))
    before = await newest_threads(served)
    async with client_of(served) as client:
        messages: list[Any] = [{"role": "system", "content": "Be brief."}, user("Write a.txt.")]
        first = await client.chat.completions.create(model="manus", messages=messages)
        choice = first.choices[0]
        assert choice.finish_reason == "stop"
        assert choice.message.content is not None
        assert choice.message.content.startswith("Written.\n\n- [a.txt](http")
        assert first.usage is not None
        assert first.usage.total_tokens == 240
        (file,) = (choice.message.model_extra or {})["artifacts"]
        async with httpx.AsyncClient() as bare:  # the link needs no token
            assert (await bare.get(file["url"])).text == "hi\n"
        messages += [said(f" {choice.message.content}\n"), user("Is it there?")]
        second = await client.chat.completions.create(model="manus", messages=messages)
        assert second.choices[0].message.content == "Yes, hi."
        sent = served_model.requests[-1].messages
        assert [own_words(one["content"]) for one in sent if one["role"] == "user"] == [
            "Instructions for this conversation:\nBe brief.\n\nWrite a.txt.",
            "Is it there?",
        ]
        assert any(one["role"] == "tool" for one in sent)  # it is the thread, not what was sent
        assert len(await newest_threads(served) - before) == 1


@pytest.mark.slow
async def test_a_conversation_that_no_thread_knows_brings_its_past_along(
    served: Served, served_model: OpenAIServer
) -> None:
    served_model.add(Reply(text="Blue."), Reply(text="Red."))
    messages = [user("What is the sky?"), said("It is there."), user("Its colour?")]
    before = await newest_threads(served)
    async with client_of(served) as client:
        for colour in ("Blue.", "Red."):  # asked again for another answer: a thread of its own
            again = await client.chat.completions.create(model="manus", messages=messages)
            assert again.choices[0].message.content == colour
            sent = served_model.requests[-1].messages
            said_so_far = [(one["role"], own_words(one["content"])) for one in sent[1:]]
            assert said_so_far[:3] == [
                ("user", "What is the sky?"),
                ("assistant", "It is there."),
                ("user", "Its colour?"),
            ]
    assert len(await newest_threads(served) - before) == 2


async def test_half_a_character_in_a_text_is_marked(
    served: Served, served_model: OpenAIServer
) -> None:
    served_model.add(Reply(text="Seen."))
    body = {"model": "manus", "messages": [user("cut \ud83d"), said("\ud83d"), user("off \ud83d")]}
    async with served.http() as http:
        headers = {"Content-Type": "application/json"}
        answer = await http.post("/v1/chat/completions", content=json.dumps(body), headers=headers)
    assert answer.json()["choices"][0]["message"]["content"] == "Seen."
    assert own_words(served_model.requests[-1].body["messages"][-1]["content"]) == "off \ufffd"


async def test_a_stream_tells_what_the_agent_does_and_then_its_answer(
    served: Served, served_model: OpenAIServer
) -> None:
    served_model.add(WRITE, Reply(text="Written."))
    async with client_of(served) as client:
        stream = await client.chat.completions.create(
            model="manus",
            messages=[user("Write.")],
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = [chunk async for chunk in stream]
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    thoughts = [(delta.model_extra or {}).get("reasoning_content") for delta in deltas]
    assert [text for text in thoughts if text] == ["I write it.\n\n", "Runs bash.\n\n"]
    content = "".join(delta.content or "" for delta in deltas)
    assert content.startswith("Written.\n\n- [a.txt](http")
    reasons = [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices]
    assert reasons == [None] * (len(reasons) - 1) + ["stop"]
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.prompt_tokens_details is not None
    assert chunks[-1].usage.prompt_tokens_details.cached_tokens == 80


@pytest.mark.slow
async def test_a_question_is_an_answer_and_the_next_message_answers_it(
    served: Served, served_model: OpenAIServer
) -> None:
    served_model.add(ASK, Reply(text="Painted blue."))
    async with client_of(served) as client:
        messages = [user("Paint it.")]
        first = await client.chat.completions.create(model="manus", messages=messages)
        assert first.choices[0].message.content == "Which colour?"
        messages += [said("Which colour?"), user("Blue")]
        second = await client.chat.completions.create(model="manus", messages=messages)
        assert second.choices[0].message.content == "Painted blue."
    answers = [
        one["content"] for one in served_model.requests[-1].messages if one["role"] == "tool"
    ]
    assert answers == ["Blue"]


async def test_pictures_and_files_come_into_the_workspace(
    served: Served, served_model: OpenAIServer
) -> None:
    served_model.add(Reply(text="A dot."))
    data = f"data:text/csv;base64,{base64.b64encode(b'a,b').decode()}"
    parts = [
        {"type": "text", "text": "Look."},
        {"type": "image_url", "image_url": {"url": PICTURE}},
        {"type": "file", "file": {"filename": "../t.csv", "file_data": data}},
    ]
    async with client_of(served) as client:
        await client.chat.completions.create(model="manus", messages=[user(parts)])
    newest = (await threads_of(served))[0]["id"]
    async with served.http() as http:
        listed = (await http.get(f"/app/api/threads/{newest}/files")).json()["files"]
    assert {file["path"] for file in listed} >= {"image-2.png", "t.csv"}
    content = next(
        one["content"] for one in served_model.requests[-1].messages if one["role"] == "user"
    )
    assert own_words(content).startswith("Look.\n\nFiles in the workspace: image-2.png, t.csv")
    assert "[1 picture(s) not shown: this model does not see.]" in content


async def test_an_answer_by_a_schema(served: Served, served_model: OpenAIServer) -> None:
    schema: dict[str, object] = {
        "type": "object",
        "properties": {"sum": {"type": "integer"}},
        "required": ["sum"],
        "additionalProperties": False,
    }
    served_model.add(Reply(text='{"sum": 5}'))
    async with client_of(served) as client:
        found = await client.chat.completions.create(
            model="manus",
            messages=[user("2 and 3?")],
            response_format={"type": "json_schema", "json_schema": {"name": "s", "schema": schema}},
        )
    assert found.choices[0].message.content == '{"sum": 5}'


CLIENTS_TOOL: Any = {  # the SDK wants its own TypedDict
    "type": "function", "function": {"name": "f", "parameters": {}}
}  # fmt: skip
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"messages": []}, "last message must be the user's"),
    ({"messages": [user("  ")]}, "is empty"),
    ({"messages": [user("Hi"), said("Ho")]}, "last message must be the user's"),
    ({"messages": [{"role": "tool", "tool_call_id": "1", "content": "x"}]}, "role 'tool'"),
    ({"messages": [user([{"type": "image_url", "image_url": {"url": "http://x/y.png"}}])]},
     "does not fetch addresses"),
    ({"messages": [user([{"type": "image_url", "image_url": {"url": "data:x/y;base64,!"}}])]},
     "not base64"),
    ({"messages": [user([{"type": "file", "file": {"file_id": "file-1"}}])]}, "data URL"),
    ({"messages": [user("Hi")], "n": 2}, "Leave out n"),
    ({"messages": [user("Hi")], "response_format": {"type": "json_object"}}, "json_schema"),
    ({"messages": [user("Hi")], "tools": [CLIENTS_TOOL], "tool_choice": "required"},
     "calls its own tools"),
]  # fmt: skip


@pytest.mark.parametrize(("wish", "words"), REFUSED)
async def test_what_cannot_be_done_is_refused_in_words_and_once(
    served: Served, wish: dict[str, Any], words: str
) -> None:
    async with client_of(served) as client:
        with pytest.raises(openai.BadRequestError, match=words) as refused:
            await client.chat.completions.create(model="manus", **wish)
    assert refused.value.type == "invalid_request_error"


@pytest.mark.slow
async def test_tools_that_a_chat_client_always_sends_are_passed_over(
    served: Served, served_model: OpenAIServer
) -> None:
    served_model.add(Reply("Done."), Reply("Done again."))
    async with client_of(served) as client:
        for more in ({}, {"tool_choice": "auto"}):
            found = await client.chat.completions.create(
                model="manus", messages=[user("Hi")], tools=[CLIENTS_TOOL], extra_body=more
            )
            assert found.choices[0].message.content
    sent = [one["function"]["name"] for one in served_model.requests[-1].body["tools"]]
    assert "f" not in sent


async def test_an_unknown_model_and_a_wrong_token(served: Served) -> None:
    async with client_of(served) as client:
        with pytest.raises(openai.NotFoundError, match="Agents are models here") as refused:
            await client.chat.completions.create(model="gpt-5", messages=[user("Hi")])
        assert refused.value.code == "model_not_found"
        with pytest.raises(openai.NotFoundError):
            await client.responses.create(model="gpt-5", input="Hi")
    async with client_of(served, "wrong") as client:
        with pytest.raises(openai.AuthenticationError) as refused_token:
            await client.models.list()
        assert refused_token.value.type == "authentication_error"
        assert "openmanus serve" in str(refused_token.value)


async def test_a_failed_run_is_an_error_and_is_not_repeated(
    served: Served, served_model: OpenAIServer
) -> None:
    served_model.add(Reply(status=401, error={"error": {"message": "no such key"}}))
    async with client_of(served) as client:
        with pytest.raises(openai.InternalServerError, match="no such key"):
            await client.chat.completions.create(model="manus", messages=[user("Hi")])
    assert len(served_model.requests) == 1


async def test_who_hangs_up_in_mid_stream_cancels_the_run(
    served: Served, served_model: OpenAIServer
) -> None:
    served_model.add(WAIT)
    async with client_of(served) as client:
        stream = await client.chat.completions.create(
            model="manus", messages=[user("Wait.")], stream=True
        )
        async for chunk in stream:
            if "Runs bash" in str(chunk.choices[0].delta.model_extra):
                break
        await stream.close()
    await status_becomes(served, "cancelled")


@pytest.mark.slow
async def test_who_hangs_up_while_waiting_cancels_the_run(
    served: Served, served_model: OpenAIServer
) -> None:
    served_model.add(WAIT)
    async with client_of(served) as client:
        with pytest.raises(openai.APITimeoutError):
            await client.with_options(max_retries=0, timeout=5).chat.completions.create(
                model="manus", messages=[user("Wait.")]
            )
    await status_becomes(served, "cancelled")


def without_tickets(text: str) -> str:
    """Return a text without the tickets in files' addresses, which change every second."""
    return re.sub(r"/app/files/[^/]+/", "/app/files/TICKET/", text)


async def status_becomes(served: Served, status: str) -> None:
    newest = (await threads_of(served))[0]["id"]
    async with served.http() as http:
        seen = ""
        while seen != status:
            seen = (await http.get(f"/app/api/threads/{newest}")).json()["status"]


@pytest.mark.slow
async def test_a_response_and_the_next_on_its_thread(
    served: Served, served_model: OpenAIServer
) -> None:
    served_model.add(WRITE, Reply(text="Written."), Reply(text="Yes."))
    async with client_of(served) as client:
        first = await client.responses.create(
            model="manus", input="Write.", instructions="Be brief.", metadata={"who": "me"}
        )
        assert (first.status, first.metadata) == ("completed", {"who": "me"})
        assert first.output_text.startswith("Written.\n\n- [a.txt](http")
        assert [item.type for item in first.output] == ["reasoning", "reasoning", "message"]
        assert first.usage is not None
        assert first.usage.total_tokens == 240
        again = await client.responses.retrieve(first.id)
        assert without_tickets(again.model_dump_json()) == without_tickets(first.model_dump_json())
        second = await client.responses.create(
            model="manus", input="Is it there?", previous_response_id=first.id
        )
        assert second.output_text == "Yes."
        assert second.conversation == first.conversation
        with pytest.raises(openai.ConflictError, match=second.id):
            await client.responses.create(
                model="manus", input="And now?", previous_response_id=first.id
            )
        with pytest.raises(openai.NotFoundError, match="no response"):
            await client.responses.create(model="manus", input="x", previous_response_id="resp_1")


@pytest.mark.slow
async def test_a_conversation_is_a_thread(served: Served, served_model: OpenAIServer) -> None:
    served_model.add(ASK, Reply(text="Painted."))
    async with client_of(served) as client:
        conversation = await client.conversations.create()
        for said_by_me, answer in (("Paint.", "Which colour?"), ("Blue", "Painted.")):
            response = await client.responses.create(
                model="manus", conversation=conversation.id, input=said_by_me
            )
            assert response.output_text == answer
        thread = (await threads_of(served))[0]["id"]
        assert conversation.id == f"conv_{thread.replace('-', '')}"
        for wrong in ("conv_x", f"conv_{'0' * 32}"):
            with pytest.raises(openai.NotFoundError):
                await client.responses.create(model="manus", conversation=wrong, input="x")


@pytest.mark.slow
async def test_a_responses_stream_is_the_one_that_the_sdk_puts_together(
    served: Served, served_model: OpenAIServer
) -> None:
    served_model.add(WRITE, Reply(text="Written."))
    content: Any = [{"type": "input_text", "text": "Write."}]
    async with client_of(served) as client:
        async with client.responses.stream(model="manus", input=[user(content)]) as stream:
            kinds = [event.type async for event in stream]
            whole = await stream.get_final_response()
        assert kinds[:2] == ["response.created", "response.in_progress"]
        assert kinds[-1] == "response.completed"
        assert kinds.count("response.reasoning_summary_text.delta") == 2
        assert whole.output_text.startswith("Written.")
        stored = await client.responses.retrieve(whole.id)
        assert without_tickets(stored.output_text) == without_tickets(whole.output_text)


async def test_a_response_in_the_background_goes_on_and_is_cancelled(
    served: Served, served_model: OpenAIServer
) -> None:
    served_model.add(WAIT)
    async with client_of(served) as client:
        begun = await client.responses.create(model="manus", input="Wait.", background=True)
        assert begun.status == "in_progress"
        assert (await client.responses.retrieve(begun.id)).status == "in_progress"
        assert (await client.responses.cancel(begun.id)).status == "cancelled"
        assert (await client.responses.retrieve(begun.id)).status == "cancelled"


@pytest.mark.slow
async def test_a_failed_response_says_so(served: Served, served_model: OpenAIServer) -> None:
    refusal = Reply(status=401, error={"error": {"message": "no such key"}})
    served_model.add(refusal, refusal)
    async with client_of(served) as client:
        failed = await client.responses.create(model="manus", input="Hi")
        assert failed.status == "failed"
        assert failed.error is not None
        assert "no such key" in failed.error.message
        stream = await client.responses.create(model="manus", input="Hi", stream=True)
        assert [event.type async for event in stream][-1] == "response.failed"
