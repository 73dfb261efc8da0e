"""The Responses API. A response is made from the thread's events, so it survives a restart."""

import itertools
import json
import time
import uuid
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from dataclasses import asdict, dataclass, field
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel

from openmanus_graph.interfaces.server import openai_chat, runs, store
from openmanus_graph.interfaces.service import accounts
from openmanus_graph.interfaces.service.accounts import Refused
from openmanus_graph.interfaces.service.runs import Final

_RESPONSES, _NEWEST = "responses", "newest"
"""Kinds of records: a response by its id, and the newest response of a thread."""
_CONVERSATION = "conv_"
_STATUS = {"failed": "failed", "cancelled": "cancelled", "stopped": "incomplete"}
"""A run's status as a response's; others are `completed`."""
router = APIRouter(prefix=store.OPENAI_PREFIX, route_class=openai_chat.OpenAIRoute)


class ResponseRequest(BaseModel):
    """The fields of a request that count; sampling settings come from the configuration."""

    model: str
    input: str | list[dict[str, Any]]
    instructions: str | None = None
    previous_response_id: str | None = None
    conversation: str | dict[str, Any] | None = None
    stream: bool = False
    background: bool = False
    metadata: dict[str, str] | None = None
    tools: list[Any] | None = None
    tool_choice: Any = None
    text: dict[str, Any] | None = None


@dataclass
class _Reply:
    run: runs.AgentRun
    model: str
    created: float
    previous: str | None
    metadata: dict[str, str]
    background: bool
    output: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    @property
    def id(self) -> str:
        return f"resp_{uuid.UUID(self.run.id).hex}"

    def body(self, final: Final | None = None) -> dict[str, Any]:
        status = _STATUS.get(final["status"], "completed") if final else "in_progress"
        cut, error = status == "incomplete", None
        if final and status == "failed":
            error = {"code": "server_error", "message": final["answer"]}
        return {
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "status": status,
            "background": self.background,
            "error": error,
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "model": self.model,
            "output": self.output,
            "previous_response_id": self.previous,
            "conversation": {"id": _conversation_id(self.run.thread)},
            "metadata": self.metadata,
            "instructions": None,
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "usage": _usage(final) if final else None,
            "artifacts": self.run.files(final) if final else [],
        }

    def add_progress(self, text: str) -> dict[str, Any]:
        """Add the agent's progress as an item of reasoning, and return the item."""
        summary = [{"type": "summary_text", "text": text}]
        number = len(self.output)
        item = {"id": f"rs_{number}_{self.id}", "type": "reasoning", "summary": summary}
        self.output.append(item)
        return item

    def add_answer(self, final: Final) -> dict[str, Any] | None:
        if final["status"] in ("failed", "cancelled"):
            return None
        text = openai_chat.answer_text(final, self.run)
        none = list[Any]()
        part = {"type": "output_text", "text": text, "annotations": none, "logprobs": none}
        item: dict[str, Any] = {
            "id": f"msg_{self.id}",
            "type": "message",
            "role": "assistant",
            "status": "incomplete" if final["status"] == "stopped" else "completed",
            "content": [part],
        }
        self.output.append(item)
        return item


@router.post("/conversations")
async def create_conversation() -> dict[str, Any]:
    return _conversation(await store.new_thread())


@router.get("/conversations/{conversation}")
async def show_conversation(conversation: str) -> dict[str, Any]:
    thread = thread_of(conversation)
    await store.require_thread(thread)
    return _conversation(thread)


@router.post("/responses")
async def respond(wanted: ResponseRequest, request: Request) -> Response:
    openai_chat.require_model(wanted.model)
    openai_chat.refuse_tools(wanted.tools, wanted.tool_choice)
    given = wanted.input
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    # What the agent did in between is in its thread.
    messages = [item for item in items if item.get("type", "message") != "reasoning"]
    prompt = openai_chat.read_prompt(messages, wanted.instructions or "")
    schema = openai_chat.schema_of((wanted.text or {}).get("format"))
    thread = await _thread(wanted, request)
    run = await runs.start_prompt(wanted.model, thread, prompt, str(request.base_url), schema)
    previous, metadata = wanted.previous_response_id, wanted.metadata or {}
    reply = _Reply(run, wanted.model, time.time(), previous, metadata, wanted.background)
    await openai_chat.remember(_RESPONSES, reply.id, asdict(reply))
    await openai_chat.remember(_NEWEST, thread, {"response": reply.id})
    if wanted.stream:
        return store.event_stream(_events(reply))
    if wanted.background:
        return JSONResponse(reply.body())
    await runs.result_of(run, request)
    return JSONResponse(await _body(reply))


@router.get("/responses/{name}")
async def show_response(name: str, request: Request) -> dict[str, Any]:
    return await _body(await _find(name, request))


@router.post("/responses/{name}/cancel")
async def cancel_response(name: str, request: Request) -> dict[str, Any]:
    reply = await _find(name, request)
    if await _read_so_far(reply) is None:
        await runs.cancel_runs(reply.run.thread)
        async with aclosing(runs.follow(reply.run, cancel=False)) as parts:
            async for _ in parts:  # to the end, which is written a moment later
                pass
    return await show_response(name, request)


def thread_of(conversation: str) -> str:
    try:
        return str(uuid.UUID(hex=conversation.removeprefix(_CONVERSATION)))
    except ValueError as error:
        sentence = f"There is no conversation {conversation!r}."
        raise Refused(404, sentence, param="conversation") from error


async def _thread(wanted: ResponseRequest, request: Request) -> str:
    if wanted.conversation is not None:
        if wanted.previous_response_id:
            raise Refused(400, "Give conversation or previous_response_id, not both.")
        named = wanted.conversation
        thread = thread_of(str(named.get("id", "")) if isinstance(named, dict) else named)
        await store.require_thread(thread)
        return thread
    if wanted.previous_response_id is None:
        return await store.new_thread()
    thread = (await _find(wanted.previous_response_id, request)).run.thread
    newest = await openai_chat.recall(_NEWEST, thread) or {}
    if newest.get("response") != wanted.previous_response_id:
        sentence = f"The conversation continued after this: {newest.get('response')} is its newest."
        raise Refused(409, sentence, param="previous_response_id")
    return thread


async def _find(name: str, request: Request) -> _Reply:
    record = await openai_chat.recall(_RESPONSES, name)
    if record is None:
        raise Refused(404, f"There is no response {name!r}.", param="response_id")
    run: dict[str, Any] = {**record["run"], "base_url": str(request.base_url)}
    await accounts.authorize("read", run["thread"])
    known: dict[str, Any] = {**record, "run": runs.AgentRun(**run)}
    return _Reply(**known)


async def _body(reply: _Reply) -> dict[str, Any]:
    final = await _read_so_far(reply)
    if final is not None:
        reply.add_answer(final)
    return reply.body(final)


async def _read_so_far(reply: _Reply) -> Final | None:
    """Add a run's progress to a response, and return how it ended; None if it is running."""
    async with aclosing(runs.follow(reply.run, cancel=False)) as parts:
        async for part in parts:
            if not isinstance(part, str):
                return part
            if not part:
                break
            reply.add_progress(part)
    return None


async def _events(reply: _Reply) -> AsyncGenerator[str]:
    """Stream a response's events. Hanging up cancels the run, unless it is in the background."""
    numbers = itertools.count()

    def send(kind: str, **fields: Any) -> str:
        event = {"type": kind, "sequence_number": next(numbers), **fields}
        return f"event: {kind}\ndata: {json.dumps(event)}\n\n"

    yield send("response.created", response=reply.body())
    yield send("response.in_progress", response=reply.body())
    try:
        async with aclosing(runs.follow(reply.run, cancel=not reply.background)) as parts:
            async for part in parts:
                if not isinstance(part, str):
                    for kind, fields in _answer_events(reply, part):
                        yield send(kind, **fields)
                elif part:
                    for kind, fields in _progress_events(reply, part):
                        yield send(kind, **fields)
                else:
                    yield runs.PING
    except Refused as error:
        yield send("error", code=error.code, message=str(error), param=error.param)


def _progress_events(reply: _Reply, text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    item = reply.add_progress(text)
    index = len(reply.output) - 1
    place = {"item_id": item["id"], "output_index": index, "summary_index": 0}
    empty = {"type": "summary_text", "text": ""}
    yield "response.output_item.added", {"output_index": index, "item": {**item, "summary": []}}
    yield "response.reasoning_summary_part.added", {**place, "part": empty}
    yield "response.reasoning_summary_text.delta", {**place, "delta": text}
    yield "response.reasoning_summary_text.done", {**place, "text": text}
    yield "response.reasoning_summary_part.done", {**place, "part": {**empty, "text": text}}
    yield "response.output_item.done", {"output_index": index, "item": item}


def _answer_events(reply: _Reply, final: Final) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the events of the answer and of the response's end: kinds and fields."""
    if item := reply.add_answer(final):
        index, part = len(reply.output) - 1, item["content"][0]
        place = {"item_id": item["id"], "output_index": index, "content_index": 0}
        begun: dict[str, Any] = {**item, "content": [], "status": "in_progress"}
        yield "response.output_item.added", {"output_index": index, "item": begun}
        yield "response.content_part.added", {**place, "part": {**part, "text": ""}}
        yield "response.output_text.delta", {**place, "delta": part["text"], "logprobs": []}
        yield "response.output_text.done", {**place, "text": part["text"], "logprobs": []}
        yield "response.content_part.done", {**place, "part": part}
        yield "response.output_item.done", {"output_index": index, "item": item}
    body = reply.body(final)
    # There is no event for a cancelled response: it has the status.
    kind = "failed" if body["status"] == "cancelled" else body["status"]
    yield f"response.{kind}", {"response": body}


def _usage(final: Final) -> dict[str, Any]:
    usage = final["usage"]
    sent, received = usage["input_tokens"], usage["output_tokens"]
    return {
        "input_tokens": sent,
        "input_tokens_details": {"cached_tokens": usage["cached_tokens"], "cache_write_tokens": 0},
        "output_tokens": received,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": sent + received,
    }


def _conversation_id(thread: str) -> str:
    return f"{_CONVERSATION}{thread.replace('-', '')}"


def _conversation(thread: str) -> dict[str, Any]:
    return {
        "id": _conversation_id(thread),
        "object": "conversation",
        "created_at": int(time.time()),
        "metadata": {"thread": thread},
    }
