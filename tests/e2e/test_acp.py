"""The SDK's own client against `openmanus acp`: what an editor does."""

import asyncio
import base64
import json
import os
import signal
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import psutil
import pytest
from acp import PROTOCOL_VERSION, RequestError, connect_to_agent
from acp.client.connection import ClientSideConnection
from acp.helpers import image_block, resource_link_block, text_block
from acp.schema import (
    AllowedOutcome,
    DeniedOutcome,
    PermissionOption,
    RequestPermissionResponse,
    ToolCallUpdate,
)

from tests.support.cli import OPENMANUS, Cli, until
from tests.support.graphs import own_words
from tests.support.limits import BACKSTOP_S
from tests.support.openai_script import Call, Reply
from tests.support.openai_server import OpenAIServer
from tests.support.sampling import sampled
from tests.support.servers import bring_money, gone, sleepers

CREATE = Call("str_replace_editor", {"command": "create", "path": "a.txt", "file_text": "hi\n"})
CHANGE = Call(
    "str_replace_editor",
    {"command": "str_replace", "path": "a.txt", "old_str": "hi", "new_str": "ho"},
)
PAY = Reply(calls=(Call("send_money", {"amount": 5}),))
WAIT = Reply(calls=(Call("bash", {"command": "sleep 60"}),))


@dataclass
class Editor:
    """What an editor shows, and how its person decides."""

    decisions: list[str] = field(default_factory=list[str])
    """Options to choose, in order; an empty one closes the dialogue."""
    seen: list[Any] = field(default_factory=list[Any])
    asked: list[ToolCallUpdate] = field(default_factory=list[ToolCallUpdate])
    works: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a tool begins, or a dialogue is opened."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by a test whose person decides nothing before."""

    def on_connect(self, conn: Any) -> None:
        """Nothing: the tests hold the connection."""

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        self.seen.append(update)
        if update.session_update == "tool_call":
            self.works.set()

    async def request_permission(
        self, session_id: str, tool_call: ToolCallUpdate, options: list[PermissionOption], **_: Any
    ) -> RequestPermissionResponse:
        self.asked.append(tool_call)
        self.works.set()
        if not self.decisions:
            await self.ended.wait()
        decision = self.decisions.pop(0) if self.decisions else ""
        if not decision:
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        assert decision in {option.option_id for option in options}
        chosen = AllowedOutcome(outcome="selected", option_id=decision)
        return RequestPermissionResponse(outcome=chosen)

    def said(self) -> str:
        chunks = [one for one in self.seen if one.session_update == "agent_message_chunk"]
        return "".join(chunk.content.text for chunk in chunks)

    def of(self, kind: str) -> list[Any]:
        return [update for update in self.seen if update.session_update == kind]


@asynccontextmanager
async def opened(cli: Cli, editor: Editor, *args: str) -> AsyncGenerator[ClientSideConnection]:
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()
    their_input, our_output = os.pipe()
    our_input, their_output = os.pipe()
    with (
        os.fdopen(their_input, "rb") as given,
        os.fdopen(their_output, "wb") as out,
        open(os.devnull, "wb") as nowhere,  # noqa: ASYNC230, PTH123  # no file of a folder
    ):
        process = cli.launch(("acp", *args), given, out, nowhere)
    reading, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(our_input, "rb")
    )
    sending, protocol = await loop.connect_write_pipe(
        asyncio.streams.FlowControlMixin, os.fdopen(our_output, "wb")
    )
    client: Any = editor
    connection = connect_to_agent(
        client, asyncio.StreamWriter(sending, protocol, reader, loop), reader
    )
    answer = await connection.initialize(protocol_version=PROTOCOL_VERSION)
    assert answer.agent_info is not None
    assert (answer.protocol_version, answer.agent_info.name) == (PROTOCOL_VERSION, "openmanus")
    try:
        yield connection
    finally:
        await connection.close()
        sending.close()
        code = await asyncio.to_thread(lambda: process.wait(BACKSTOP_S))
        reading.close()
    assert code == 0


@pytest.fixture
def folder(cli: Cli) -> Path:
    """The editor's project."""
    path = cli.cwd / "project"
    path.mkdir()
    return path


async def test_a_prompt_shows_texts_calls_and_diffs(
    cli: Cli, model: OpenAIServer, folder: Path
) -> None:
    model.add(
        Reply(text="I write it.", calls=(CREATE,)), Reply(calls=(CHANGE,)), Reply(text="Written.")
    )
    editor = Editor()
    async with opened(cli, editor) as agent:
        session = (await agent.new_session(cwd=str(folder))).session_id
        done = await agent.prompt(session_id=session, prompt=[text_block("Write a.txt.")])
    assert done.stop_reason == "end_turn"
    assert done.usage is not None
    assert done.usage.total_tokens == 360
    assert (folder / "a.txt").read_text() == "ho\n"
    assert editor.said() == "I write it.\n\nWritten."
    begun, ended = editor.of("tool_call"), editor.of("tool_call_update")
    diffs = [call.content[0] for call in begun]
    assert [(diff.path, diff.old_text, diff.new_text) for diff in diffs] == [
        (str(folder / "a.txt"), None, "hi\n"),
        (str(folder / "a.txt"), "hi", "ho"),
    ]
    assert [(call.kind, call.title) for call in begun] == [("edit", "str_replace_editor a.txt")] * 2
    assert [(call.tool_call_id, call.status) for call in ended] == [
        (call.tool_call_id, "completed") for call in begun
    ]
    shown = [[part.type for part in call.content] for call in ended]
    assert shown == [["diff", "content"]] * 2, "an update's content replaces what was shown"
    assert [call.content[0] for call in ended] == diffs


async def test_a_question_ends_the_turn_and_the_next_prompt_answers_it(
    cli: Cli, model: OpenAIServer, folder: Path
) -> None:
    ask = Reply(calls=(Call("ask_human", {"inquire": "Which colour?"}),))
    model.add(ask, Reply(text="Blue it is."), Reply(text="As before."))
    editor = Editor()
    async with opened(cli, editor) as agent:
        session = (await agent.new_session(cwd=str(folder))).session_id
        for said in ("Paint.", "Blue", "Again."):
            await agent.prompt(session_id=session, prompt=[text_block(said)])
    assert editor.said() == "Which colour?Blue it is.As before."
    assert "Blue" in [one["content"] for one in model.requests[1].messages if one["role"] == "tool"]


async def test_the_person_allows_and_rejects_in_the_editor(
    cli: Cli, model: OpenAIServer, folder: Path
) -> None:
    bring_money(cli)
    model.add(PAY, Reply(text="Paid."), PAY, Reply(text="Not paid."))
    editor = Editor(decisions=["approve", "reject"])
    async with opened(cli, editor) as agent:
        session = (await agent.new_session(cwd=str(folder))).session_id
        for _ in range(2):
            await agent.prompt(session_id=session, prompt=[text_block("Pay 5.")])
    assert editor.said() == "Paid.Not paid."
    assert [call.raw_input for call in editor.asked] == [{"amount": 5}] * 2
    outputs = [one["content"] for one in model.requests[-1].messages if one["role"] == "tool"]
    assert "sent 5" in outputs[0]
    assert "sent 5" not in outputs[1]


async def test_a_closed_dialogue_leaves_the_question_open(
    cli: Cli, model: OpenAIServer, folder: Path
) -> None:
    bring_money(cli)
    model.add(PAY, Reply(text="Paid."))
    editor = Editor(decisions=[""])
    async with opened(cli, editor) as agent:
        session = (await agent.new_session(cwd=str(folder))).session_id
        done = await agent.prompt(session_id=session, prompt=[text_block("Pay 5.")])
        assert done.stop_reason == "end_turn"
        assert "Allow send_money?" in editor.said()
        assert "Answer `approve`" in editor.said()
        await agent.prompt(session_id=session, prompt=[text_block("approve")])
    assert editor.said().endswith("Paid.")


async def test_a_session_of_an_earlier_process_is_shown_and_goes_on(
    cli: Cli, model: OpenAIServer, folder: Path
) -> None:
    ask = Reply(calls=(Call("ask_human", {"inquire": "Which colour?"}),))
    model.add(Reply(text="I write it.", calls=(CREATE,)), ask, Reply(text="Blue it is."))
    async with opened(cli, Editor()) as agent:
        session = (await agent.new_session(cwd=str(folder))).session_id
        await agent.prompt(session_id=session, prompt=[text_block("Write and ask.")])
    editor = Editor()
    async with opened(cli, editor) as agent:
        for cwd, name, why in (
            (str(cli.cwd), session, f"in {folder}"),
            (str(folder), "acp-1", "no session"),
            (str(folder), "other", "no session"),
        ):
            with pytest.raises(RequestError, match=why):
                await agent.load_session(cwd=cwd, session_id=name)
        await agent.load_session(cwd=str(folder), session_id=session)
        assert [one.content.text for one in editor.of("user_message_chunk")] == ["Write and ask."]
        assert [one.title for one in editor.of("tool_call")] == ["str_replace_editor a.txt"]
        assert [one.status for one in editor.of("tool_call_update")] == ["completed"]
        assert editor.said().split() == ["I", "write", "it.", "Which", "colour?"]
        await agent.prompt(session_id=session, prompt=[text_block("Blue")])
    assert editor.said().endswith("Blue it is.")
    assert "Blue" in [one["content"] for one in model.requests[2].messages if one["role"] == "tool"]


async def test_cancel_ends_the_prompt(cli: Cli, model: OpenAIServer, folder: Path) -> None:
    model.add(WAIT, Reply(text="Here I am."))
    editor = Editor()
    async with opened(cli, editor) as agent:
        session = (await agent.new_session(cwd=str(folder))).session_id
        running = asyncio.create_task(
            agent.prompt(session_id=session, prompt=[text_block("Wait.")])
        )
        await editor.works.wait()
        with pytest.raises(RequestError, match="A run works"):
            await agent.prompt(session_id=session, prompt=[text_block("And this.")])
        await agent.cancel(session_id=session)
        assert (await running).stop_reason == "cancelled"
        await agent.prompt(session_id=session, prompt=[text_block("Are you there?")])
    assert editor.said() == "Here I am."


async def test_cancel_while_the_person_is_asked(
    cli: Cli, model: OpenAIServer, folder: Path
) -> None:
    bring_money(cli)
    model.add(PAY, Reply(text="Not paid."))
    editor = Editor()
    async with opened(cli, editor) as agent:
        session = (await agent.new_session(cwd=str(folder))).session_id
        running = asyncio.create_task(
            agent.prompt(session_id=session, prompt=[text_block("Pay 5.")])
        )
        await editor.works.wait()
        await agent.cancel(session_id=session)
        assert (await running).stop_reason == "cancelled"
        editor.ended.set()
        await agent.prompt(session_id=session, prompt=[text_block("reject")])
    assert editor.said().endswith("`= RESULT`.Not paid.")
    (output,) = [one["content"] for one in model.requests[-1].messages if one["role"] == "tool"]
    assert "sent 5" not in output


async def test_cancel_that_comes_before_the_run_begins(
    cli: Cli, model: OpenAIServer, folder: Path
) -> None:
    async with opened(cli, Editor()) as agent:
        session = (await agent.new_session(cwd=str(folder))).session_id
        running = asyncio.create_task(
            agent.prompt(session_id=session, prompt=[text_block("Write.")])
        )
        await asyncio.sleep(0)  # the prompt is on its way
        await agent.cancel(session_id=session)
        assert (await running).stop_reason == "cancelled"
    assert not model.requests


async def test_a_plan_is_the_editors_list(cli: Cli, model: OpenAIServer, folder: Path) -> None:
    steps = {"command": "create", "title": "Both", "steps": ["Find it", "Tell it"]}
    model.add(Reply(calls=(Call("planning", steps),)), *[Reply(text="It is found and told.")] * 2)
    editor = Editor()
    async with opened(cli, editor, "--agent", "planning") as agent:
        session = (await agent.new_session(cwd=str(folder))).session_id
        await agent.prompt(session_id=session, prompt=[text_block("Find it and tell it.")])
    shown = [[(one.content, one.status) for one in plan.entries] for plan in editor.of("plan")]
    assert [text for text, _ in shown[0]] == ["Find it", "Tell it"]
    assert ("Tell it", "pending") in shown[0]
    assert shown[-1] == [("Find it", "completed"), ("Tell it", "completed")]
    assert editor.said() == "It is found and told."


@pytest.mark.parametrize("how", sampled(["hangs up", "SIGTERM"], 1, "ends of ACP"))
def test_nothing_is_left_when_the_editor_goes_and_the_thread_goes_on(
    cli: Cli, model: OpenAIServer, folder: Path, how: str
) -> None:
    model.add(Reply(calls=(Call("bash", {"command": "echo in; sleep 5678"}),)))
    process = subprocess.Popen(
        [OPENMANUS, "acp"], cwd=cli.cwd, env=cli.env,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdin, process.stdout:
        send(process.stdin, b"this is not JSON")
        assert json.loads(process.stdout.readline())["error"]["code"] == -32700
        send(process.stdin, request(1, "session/load", sessionId="x", cwd="/", mcpServers=[]))
        assert json.loads(process.stdout.readline())["error"]["code"] == -32602
        send(process.stdin, request(2, "session/new", cwd=str(folder), mcpServers=[]))
        session = json.loads(process.stdout.readline())["result"]["sessionId"]
        task = [{"type": "text", "text": "Wait."}]
        send(process.stdin, request(3, "session/prompt", sessionId=session, prompt=task))
        until(lambda: bool(sleepers("5678")), BACKSTOP_S)
        family = psutil.Process(process.pid)
        everything = [family, *family.children(recursive=True)]
        if how == "hangs up":
            process.stdin.close()
        else:
            process.send_signal(signal.SIGTERM)
        assert process.wait(BACKSTOP_S) == 0
        until(lambda: gone(everything), BACKSTOP_S)
    model.add(Reply(text="I go on."))
    resumed = cli.run("resume", session)
    assert (resumed.code, "I go on." in resumed.stdout) == (0, True), resumed


def request(number: int, method: str, **params: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode()


def send(pipe: IO[bytes], line: bytes) -> None:
    pipe.write(line + b"\n")
    pipe.flush()


async def test_mentioned_files_and_pictures(cli: Cli, model: OpenAIServer, folder: Path) -> None:
    model.add(Reply(text="It adds 2 and 3, and the picture is empty."))
    (folder / "a b.py").write_text("2 + 3\n")
    picture = image_block(base64.b64encode(b"\x89PNG\r\n\x1a\n").decode(), "image/png")
    mentioned = resource_link_block("a b.py", f"{folder.as_uri()}/a%20b.py")
    async with opened(cli, Editor()) as agent:
        session = (await agent.new_session(cwd=str(folder))).session_id
        await agent.prompt(session_id=session, prompt=[text_block("Look at"), mentioned, picture])
    asked = next(one["content"] for one in model.requests[0].messages if one["role"] == "user")
    assert own_words(asked).startswith("Look at a b.py\n\nFiles in the workspace: image-3.png")
    assert (folder / "image-3.png").is_file()


async def test_wrong_requests_are_refused_in_words(
    cli: Cli, model: OpenAIServer, folder: Path
) -> None:
    model.add(Reply(status=401, error={"error": {"message": "no such key"}}))
    async with opened(cli, Editor()) as agent:
        for wrong in ("project", str(folder / "gone")):
            with pytest.raises(RequestError, match="absolute path"):
                await agent.new_session(cwd=wrong)
        with pytest.raises(RequestError, match="no session"):
            await agent.prompt(session_id="acp-1", prompt=[text_block("Hi")])
        session = (await agent.new_session(cwd=str(folder))).session_id
        for empty in ("", " "):
            with pytest.raises(RequestError, match="is empty"):
                await agent.prompt(session_id=session, prompt=[text_block(empty)])
        with pytest.raises(RequestError, match="is empty"):
            await agent.prompt(session_id=session, prompt=[])
        with pytest.raises(RequestError, match="no such key"):
            await agent.prompt(session_id=session, prompt=[text_block("Hi")])
