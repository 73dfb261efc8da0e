"""AG-UI's clients against the server: a conversation is a thread."""

import asyncio
import base64
import json
import os
import subprocess
import uuid
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from ag_ui.core import Event, EventType
from pydantic import TypeAdapter

from tests.support.cli import OPENMANUS
from tests.support.graphs import own_words
from tests.support.hermetic import installing
from tests.support.limits import BACKSTOP_S
from tests.support.openai_script import Call, Reply
from tests.support.openai_server import OpenAIServer
from tests.support.serving import Served

CLIENT = Path(__file__).parents[1] / "support" / "ag_ui_client.mjs"
NPM_CLIENT = "@ag-ui/client@1.0.0"
WRITE = Reply(text="I write it.", calls=(Call("bash", {"command": "echo hi > a.txt"}),))
ASK = Reply(calls=(Call("ask_human", {"inquire": "Which colour?"}),))
WAIT = Reply(calls=(Call("bash", {"command": "sleep 60"}),))
PAY = Reply(calls=(Call("send_invoice", {"customer": "7"}),))
EVENT: TypeAdapter[Any] = TypeAdapter(Event)


class Conversation:
    """What a client of AG-UI keeps: a name, and the messages so far."""

    def __init__(self, served: Served, agent: str = "manus", name: str = "") -> None:
        self.served, self.path = served, f"/ag-ui/{agent}"
        self.name = name or str(uuid.uuid4())
        self.messages: list[dict[str, Any]] = []

    @asynccontextmanager
    async def stream(self, **more: Any) -> AsyncGenerator[AsyncIterator[Any]]:
        """Start a run, and give its events, each checked against the protocol's types."""
        body = {"threadId": self.name, "runId": str(uuid.uuid4()), "messages": self.messages}
        async with (
            self.served.http() as http,
            http.stream("POST", self.path, json={**body, **more}) as answer,
        ):
            if answer.status_code != 200:
                raise RuntimeError((await answer.aread()).decode())
            yield events_of(answer)

    async def run(self, said: Any = None, **more: Any) -> list[Any]:
        """Run to the end, and return all events."""
        if said is not None:
            self.messages.append({"id": str(uuid.uuid4()), "role": "user", "content": said})
        async with self.stream(**more) as events:
            return [event async for event in events]

    async def answer(self, interrupt: Any, **entry: Any) -> list[Any]:
        """Answer a question."""
        return await self.run(resume=[{"interruptId": interrupt.id, **entry}])


async def events_of(answer: httpx.Response) -> AsyncGenerator[Any]:
    async for line in answer.aiter_lines():
        if line.startswith("data: "):
            yield EVENT.validate_json(line.removeprefix("data: "))


def kinds(events: list[Any]) -> list[str]:
    """Return the events' types; pieces of one text count once."""
    names = [event.type.value for event in events]
    return [one for one, before in zip(names, ["", *names], strict=False) if one != before]


def text_of(events: list[Any]) -> str:
    return "".join(one.delta for one in events if one.type == EventType.TEXT_MESSAGE_CONTENT)


def interrupts_of(events: list[Any]) -> list[Any]:
    assert events[-1].outcome.type == "interrupt"
    found: list[Any] = events[-1].outcome.interrupts
    return found


TEXT = ["TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"]
CALL = ["TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END"]


@pytest.mark.slow
async def test_texts_calls_and_results_come_as_they_happen_and_the_thread_goes_on(
    served: Served, served_model: OpenAIServer
) -> None:
    served_model.add(WRITE, Reply(text="Written."), Reply(text="Yes, hi."))
    conversation = Conversation(served)
    first = await conversation.run("Write a.txt.")
    assert kinds(first) == ["RUN_STARTED", *TEXT, *CALL, "TOOL_CALL_RESULT", *TEXT, "RUN_FINISHED"]
    assert first[0].thread_id == first[-1].thread_id == conversation.name
    assert first[0].protocol_version == "1.0"
    assert text_of(first) == "I write it.Written."
    (begun,) = [one for one in first if one.type == EventType.TOOL_CALL_START]
    (result,) = [one for one in first if one.type == EventType.TOOL_CALL_RESULT]
    assert (begun.tool_call_name, begun.tool_call_id) == ("bash", result.tool_call_id)
    assert begun.parent_message_id == first[1].message_id
    ended = first[-1]
    assert (ended.outcome.type, ended.result["answer"]) == ("success", "Written.")
    (file,) = ended.result["artifacts"]
    async with httpx.AsyncClient() as bare:  # the link needs no token
        assert (await bare.get(file["url"])).text == "hi\n"
    conversation.messages.append({"id": "a", "role": "assistant", "content": "Written."})
    assert text_of(await conversation.run("Is it there?")) == "Yes, hi."
    sent = served_model.requests[-1].messages
    assert [own_words(one["content"]) for one in sent if one["role"] == "user"] == [
        "Write a.txt.",
        "Is it there?",
    ]
    assert any(one["role"] == "tool" for one in sent)  # it is the thread, not what was sent
    async with served.http() as http:
        assert (await http.get(f"/app/api/threads/{conversation.name}")).status_code == 200


@pytest.mark.slow
async def test_a_conversation_of_any_name_that_began_elsewhere(
    served: Served, served_model: OpenAIServer
) -> None:
    served_model.add(Reply(text="Blue."), Reply(text="Still."))
    conversation = Conversation(served, name="my chat")
    conversation.path = "/ag-ui"
    conversation.messages = [
        {"id": "0", "role": "system", "content": "Be brief."},
        {"id": "1", "role": "user", "content": "What is the sky?"},
        {"id": "2", "role": "assistant", "content": "It is there."},
        {"id": "3", "role": "tool", "toolCallId": "x", "content": "of another agent"},
    ]
    context = [{"description": "Time zone", "value": "UTC"}]
    assert text_of(await conversation.run("Its colour?", context=context)) == "Blue."
    sent = served_model.requests[-1].messages[1:]
    said = [(one["role"], own_words(one["content"])) for one in sent]
    assert said[:3] == [
        ("user", "What is the sky?"),
        ("assistant", "It is there."),
        (
            "user",
            "Instructions for this conversation:\nBe brief.\n\nIts colour?\n\n"
            "The application says:\n- Time zone: UTC",
        ),
    ]
    assert text_of(await conversation.run("Sure?")) == "Still."
    assert len(served_model.requests[-1].messages) > len(said)


@pytest.mark.slow
async def test_a_question_interrupts_and_its_answer_resumes(
    served: Served, served_model: OpenAIServer
) -> None:
    served_model.add(ASK, Reply(text="Painted blue."))
    conversation = Conversation(served)
    asked = await conversation.run("Paint it.")
    (interrupt,) = interrupts_of(asked)
    assert (interrupt.reason, interrupt.message) == ("input_required", "Which colour?")
    assert interrupt.response_schema == {"type": "string"}
    with pytest.raises(RuntimeError, match="has no payload"):
        await conversation.answer(interrupt, status="resolved")
    resumed = await conversation.answer(interrupt, status="resolved", payload="Blue")
    assert text_of(resumed) == "Painted blue."
    (result,) = [one for one in resumed if one.type == EventType.TOOL_CALL_RESULT]
    (call,) = [one for one in asked if one.type == EventType.TOOL_CALL_START]
    assert (result.tool_call_id, result.content) == (call.tool_call_id, "Blue")
    with pytest.raises(RuntimeError, match="no open question"):
        await conversation.answer(interrupt, status="resolved", payload="Red")


ANSWERS: list[tuple[dict[str, Any], bool]] = [
    ({"status": "resolved", "payload": {"type": "approve"}}, True),
    ({"status": "resolved", "payload": {"approved": True}}, True),
    ({"status": "resolved", "payload": {"approved": False, "message": "Not now."}}, False),
    ({"status": "cancelled"}, False),
]


@pytest.fixture
def office(_served_page: tuple[Served, OpenAIServer]) -> tuple[Served, OpenAIServer]:
    """The server whose agent `clerk` sends invoices, and its model."""
    _served_page[1].begin_again()
    return _served_page


@pytest.mark.parametrize(("entry", "runs"), ANSWERS)
@pytest.mark.slow
async def test_an_approval_names_its_call_and_takes_the_usual_answers(
    office: tuple[Served, OpenAIServer], entry: dict[str, Any], runs: bool
) -> None:
    served, model = office
    model.add(PAY, Reply(text="Done."))
    conversation = Conversation(served, "clerk")
    asked = await conversation.run("Pay.")
    (interrupt,) = interrupts_of(asked)
    (call,) = [one for one in asked if one.type == EventType.TOOL_CALL_START]
    assert (interrupt.reason, interrupt.tool_call_id) == ("tool_call", call.tool_call_id)
    assert interrupt.metadata["calls"][0]["args"] == {"customer": "7"}
    assert "approve" in interrupt.response_schema["properties"]["type"]["enum"]
    resumed = await conversation.answer(interrupt, **entry)
    (result,) = [one for one in resumed if one.type == EventType.TOOL_CALL_RESULT]
    assert ("sent 1.0 to 7" in result.content) == runs
    assert resumed[-1].outcome.type == "success"


async def test_who_hangs_up_in_mid_stream_cancels_the_run(
    served: Served, served_model: OpenAIServer
) -> None:
    served_model.add(WAIT)
    conversation = Conversation(served)
    conversation.messages = [{"id": "1", "role": "user", "content": "Wait."}]
    async with conversation.stream() as events:
        async for event in events:
            if event.type == EventType.TOOL_CALL_END:
                break
    async with served.http() as http:
        seen = ""
        while seen != "cancelled":
            seen = (await http.get(f"/app/api/threads/{conversation.name}")).json()["status"]


async def test_a_run_that_somebody_stops_ends_as_cancelled(
    served: Served, served_model: OpenAIServer
) -> None:
    served_model.add(WAIT)
    conversation = Conversation(served)
    conversation.messages = [{"id": "1", "role": "user", "content": "Wait."}]
    seen = list[Any]()
    async with conversation.stream() as events, served.http() as http:
        async for event in events:
            seen.append(event)
            if event.type == EventType.TOOL_CALL_END:
                await http.post(f"/app/api/threads/{conversation.name}/stop")
    assert seen[-1].outcome.type == "cancelled"


async def test_a_failed_run_is_an_error(served: Served, served_model: OpenAIServer) -> None:
    served_model.add(Reply(status=401, error={"error": {"message": "no such key"}}))
    ended = (await Conversation(served).run("Hi"))[-1]
    assert ended.type == EventType.RUN_ERROR
    assert "no such key" in ended.message


def image(**source: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": "Look."}, {"type": "image", "source": source}]


async def test_files_come_into_the_workspace(served: Served, served_model: OpenAIServer) -> None:
    served_model.add(Reply(text="Seen."))
    data = base64.b64encode(b"a,b").decode()
    document = {"type": "document", "source": {"type": "data", "value": data,
                                               "mimeType": "text/csv"}}  # fmt: skip
    conversation = Conversation(served)
    await conversation.run([{"type": "text", "text": "Look."}, document])
    content = next(
        one["content"] for one in served_model.requests[-1].messages if one["role"] == "user"
    )
    assert own_words(content) == "Look.\n\nFiles in the workspace: document-2.csv"


REFUSED: list[tuple[Any, dict[str, Any], str]] = [
    (None, {}, "last message must be the user's"),
    ("  ", {}, "last message must be the user's"),
    (image(type="url", value="http://x/y.png"), {}, "does not fetch addresses"),
    (image(type="data", value="!", mimeType="image/png"), {}, "not base64"),
    ("Hi", {"tools": [{"name": "f", "description": "d", "parameters": {}}]}, "its own tools"),
    (None, {"resume": [{"interruptId": "x", "status": "cancelled"}]}, "no open question"),
    ("Hi", {"messages": "Hi"}, "messages"),
]


@pytest.mark.parametrize(("said", "more", "words"), REFUSED)
async def test_what_cannot_be_done_is_refused_in_words(
    served: Served, said: Any, more: dict[str, Any], words: str
) -> None:
    with pytest.raises(RuntimeError, match=words):
        await Conversation(served).run(said, **more)


async def test_an_unknown_agent_and_a_missing_token(served: Served) -> None:
    with pytest.raises(RuntimeError, match="no agent 'nobody'"):
        await Conversation(served, "nobody").run("Hi")
    async with httpx.AsyncClient() as bare:
        refused = await bare.post(f"{served.url}/ag-ui", json={})
    assert refused.status_code == 401


@pytest.mark.exhaustive
async def test_the_official_client_talks_answers_and_hangs_up(
    served: Served, served_model: OpenAIServer, tmp_path: Path
) -> None:
    served_model.add(WRITE, Reply(text="Written."), ASK, Reply(text="Painted blue."), WAIT)
    beside = Path(OPENMANUS).parent
    env = {**installing(), "PATH": f"{beside}{os.pathsep}{os.environ['PATH']}"}

    def run(*command: str) -> str:
        done = subprocess.run(
            command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False,
            timeout=BACKSTOP_S,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    await asyncio.to_thread(run, str(beside / "npm"), "install", "--no-save", NPM_CLIENT)
    script = tmp_path / "client.mjs"  # beside what was installed: where Node looks for it
    script.write_text(CLIENT.read_text("utf-8"), "utf-8")
    url = f"{served.url}/ag-ui/manus"
    reported = await asyncio.to_thread(run, str(beside / "node"), str(script), url, served.token)
    said = json.loads(reported)
    assert said["first"] == ["user: Write.", "assistant: I write it.", "tool: (no output)",
                             "assistant: Written."]  # fmt: skip
    assert said["asked"] == "Which colour?"
    assert said["painted"] == "Painted blue."
    async with served.http() as http:
        seen = ""
        while seen != "cancelled":
            seen = (await http.get(f"/app/api/threads/{said['thread']}")).json()["status"]
