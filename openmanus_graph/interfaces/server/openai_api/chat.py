"""Chat Completions and the list of models."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict

from openmanus_graph.backends.persistence.memory import DatabaseStore
from openmanus_graph.config.resolve import database_url
from openmanus_graph.graphs.catalog import agent_names, describe_agent
from openmanus_graph.interfaces.server.openai_api.prompts import (
    PREFIX,
    OpenAIRoute,
    conversation_key,
    error_body,
    read_prompt,
)
from openmanus_graph.interfaces.server.runs import (
    PING,
    AgentRun,
    Progress,
    Prompt,
    files_of,
    follow,
    result_of,
    start_prompt,
)
from openmanus_graph.interfaces.server.store import Refused, event_stream, new_thread
from openmanus_graph.interfaces.service.runs import ANSWER_HINTS, Final

_CONVERSATIONS = "conversations"
"""Kind of the records that name a conversation's thread."""
_SINCE = 1_735_689_600
"""The date of all models: clients require one."""
router = APIRouter(prefix=PREFIX, route_class=OpenAIRoute)


@router.get("/models")
async def list_models() -> dict[str, Any]:
    return {"object": "list", "data": [_model(name) for name in agent_names()]}


@router.get("/models/{name}")
async def show_model(name: str) -> dict[str, Any]:
    return _model(require_model(name))


class ChatRequest(BaseModel):
    """The fields of a request that count; sampling settings come from the configuration."""

    model_config = ConfigDict(extra="ignore")

    model: str
    messages: list[dict[str, Any]]
    stream: bool = False
    stream_options: dict[str, Any] | None = None
    n: int | None = None
    tools: list[Any] | None = None
    tool_choice: Any = None
    response_format: dict[str, Any] | None = None


@dataclass(frozen=True)
class _Chat:
    run: AgentRun
    model: str
    prompt: Prompt
    base_url: str
    created: int

    def head(self, kind: str) -> dict[str, Any]:
        name = f"chatcmpl-{self.run.id}"
        return {"id": name, "object": kind, "created": self.created, "model": self.model}

    async def answer(self, final: Final) -> str:
        """Return the answer of a run. The next request of the conversation finds its thread by it.

        Refused if the run has no answer.
        """
        if final["status"] in ("failed", "cancelled"):
            code = "cancelled" if final["status"] == "cancelled" else None
            raise Refused(500, str(final["answer"]), code=code)
        answer = answer_text(final, self.run.thread, self.base_url)
        key = conversation_key(self.prompt.turns, answer)
        await remember(_CONVERSATIONS, key, {"thread": self.run.thread})
        return answer

    def files(self, final: Final) -> list[dict[str, Any]]:
        return files_of(final, self.run.thread, self.base_url)


@router.post("/chat/completions")
async def complete(wanted: ChatRequest, request: Request) -> Response:
    agent = require_model(wanted.model)
    refuse_tools(wanted.tools, wanted.tool_choice)
    if (wanted.n or 1) > 1:
        raise Refused(400, "The server returns one answer per request. Leave out n.", param="n")
    prompt = read_prompt(wanted.messages)
    run = await _start(agent, prompt, schema_of(wanted.response_format))
    chat = _Chat(run, agent, prompt, str(request.base_url), int(time.time()))
    if not wanted.stream:
        return JSONResponse(await _completion(chat, request))
    with_usage = bool((wanted.stream_options or {}).get("include_usage"))
    return event_stream(_chunks(chat, with_usage=with_usage))


def refuse_tools(tools: list[Any] | None, choice: Any) -> None:
    """Refuse a request that demands a call of the client's tools: an agent never calls them.

    Optional tools are ignored: chat clients always send theirs.
    """
    if tools and choice not in (None, "auto", "none"):
        raise Refused(
            400,
            "An agent calls its own tools, never the client's: leave `tool_choice` out. Tools for "
            "the agent come from MCP servers.",
            param="tool_choice",
        )


def schema_of(response_format: dict[str, Any] | None) -> dict[str, Any] | None:
    kind = (response_format or {"type": "text"}).get("type")
    if kind == "text" or response_format is None:
        return None
    described: Any = response_format.get("json_schema", response_format)
    named = cast("dict[str, Any]", described) if isinstance(described, dict) else {}
    schema: Any = named.get("schema")
    if kind != "json_schema" or not isinstance(schema, dict):
        raise Refused(
            400, "Use json_schema with a schema: other forms say nothing.", param="response_format"
        )
    return {"title": str(named.get("name") or "answer"), **cast("dict[str, Any]", schema)}


async def _start(agent: str, prompt: Prompt, schema: dict[str, Any] | None) -> AgentRun:
    """Start the run on the conversation's thread, or on a new one if its thread is not known.

    The conversation's record is deleted: sending the same turns again, for another answer, starts a
    new thread.
    """
    key = conversation_key(prompt.turns[:-1])
    known = await recall(_CONVERSATIONS, key) if len(prompt.turns) > 1 else None
    if known is None:
        return await start_prompt(agent, await new_thread(), prompt, schema)
    await remember(_CONVERSATIONS, key, None)
    try:
        return await start_prompt(agent, known["thread"], prompt, schema)
    except Refused as refusal:
        if refusal.status != 404:  # the thread was deleted
            await remember(_CONVERSATIONS, key, dict(known))
            raise
    return await start_prompt(agent, await new_thread(), prompt, schema)


async def _completion(chat: _Chat, request: Request) -> dict[str, Any]:
    final = await result_of(chat.run, request)
    message = {
        "role": "assistant",
        "content": await chat.answer(final),
        "refusal": None,
        "annotations": [],
        "artifacts": chat.files(final),
    }
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _reason(final)}
    return {**chat.head("chat.completion"), "choices": [choice], "usage": chat_usage(final)}


async def _chunks(chat: _Chat, *, with_usage: bool) -> AsyncGenerator[str]:
    """Stream the agent's progress as reasoning, and then its answer as content."""
    yield _chunk(chat, {"role": "assistant", "content": ""})
    try:
        async with aclosing(follow(chat.run)) as parts:
            async for part in parts:
                if isinstance(part, Progress):
                    text = f"{part.text}\n\n"
                    yield _chunk(chat, {"reasoning_content": text}) if part.text else PING
                    continue
                yield _chunk(chat, {"content": await chat.answer(part)})
                files = chat.files(part)
                yield _chunk(chat, {"artifacts": files} if files else {}, _reason(part))
                if with_usage:
                    head = chat.head("chat.completion.chunk")
                    yield _as_sse({**head, "choices": [], "usage": chat_usage(part)})
    except Refused as error:
        yield _as_sse(error_body(error))
    yield "data: [DONE]\n\n"


def _chunk(chat: _Chat, delta: dict[str, Any], reason: str | None = None) -> str:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
    return _as_sse({**chat.head("chat.completion.chunk"), "choices": [choice]})


def _as_sse(body: dict[str, Any]) -> str:
    return f"data: {json.dumps(body)}\n\n"


def chat_usage(final: Final) -> dict[str, Any]:
    usage = final["usage"]
    sent, received = usage["input_tokens"], usage["output_tokens"]
    return {
        "prompt_tokens": sent,
        "completion_tokens": received,
        "total_tokens": sent + received,
        "prompt_tokens_details": {"cached_tokens": usage["cached_tokens"]},
    }


def _reason(final: Final) -> str:
    """Return why the answer ends: it is not complete if a limit stopped the run."""
    return "length" if final["status"] == "stopped" else "stop"


def _model(name: str) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": _SINCE,
        "owned_by": "openmanus",
        "description": describe_agent(name),
    }


def require_model(name: str) -> str:
    if name not in agent_names():
        known = ", ".join(agent_names())
        sentence = f"There is no model {name!r}. Agents are models here: {known}."
        raise Refused(404, sentence, param="model", code="model_not_found")
    return name


def answer_text(final: Final, thread: str, base_url: str) -> str:
    """Return the text for the client: the answer or question, and links to the run's files."""
    if final["structured"] is not None:
        return json.dumps(final["structured"], ensure_ascii=False)
    hint = ANSWER_HINTS.get(final["stop_reason"], "") if final["status"] == "waiting" else ""
    links = [f"- [{one['path']}]({one['url']})" for one in files_of(final, thread, base_url)]
    return "\n\n".join(filter(None, (str(final["answer"]), hint, "\n".join(links))))


@cache
def _records() -> DatabaseStore:
    return DatabaseStore(database_url())


async def recall(kind: str, key: str) -> Mapping[str, Any] | None:
    """Return a record of this protocol; None if there is none."""
    found = await (await asyncio.to_thread(_records)).aget(("openai", kind), key)
    return None if found is None else found.value


async def remember(kind: str, key: str, record: dict[str, Any] | None) -> None:
    """Write a record of this protocol; None deletes it."""
    records = await asyncio.to_thread(_records)
    if record is None:
        await records.adelete(("openai", kind), key)
    else:
        await records.aput(("openai", kind), key, record)
