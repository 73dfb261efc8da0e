"""Chat Completions and the list of models."""

import json
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, cast

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import BaseModel, ConfigDict

from openmanus_graph.graphs.catalog import agent_names, describe_agent
from openmanus_graph.interfaces.server.admission import Refused
from openmanus_graph.interfaces.server.openai_api.agent_runs import (
    AgentRun,
    Progress,
    answer_text,
    files_of,
    follow_or_cancel,
    new_thread,
    recall,
    remember,
    require_answer,
    require_model,
    result_of,
    start,
)
from openmanus_graph.interfaces.server.openai_api.prompts import (
    PREFIX,
    ApiError,
    OpenAIRoute,
    Prompt,
    conversation_key,
    read_prompt,
)
from openmanus_graph.interfaces.service.runs import Final

STREAM_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
PING = ": ping\n\n"
_CONVERSATIONS = "conversations"
"""Kind of the records that name a conversation's thread."""
_SINCE = 1_735_689_600
"""The date of all models: clients want one."""
router = APIRouter(prefix=PREFIX, route_class=OpenAIRoute)


@router.get("/models")
async def list_models() -> dict[str, Any]:
    """List the agents."""
    return {"object": "list", "data": [_model(name) for name in agent_names()]}


@router.get("/models/{name}")
async def show_model(name: str) -> dict[str, Any]:
    """Return one agent."""
    return _model(require_model(name))


class ChatRequest(BaseModel):
    """What is read of a request; sampling settings are the configuration's, and are ignored."""

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
    """One request under way."""

    run: AgentRun
    model: str
    prompt: Prompt
    base_url: str
    created: int

    @property
    def id(self) -> str:
        return f"chatcmpl-{self.run.id}"

    def head(self, kind: str) -> dict[str, Any]:
        """Return the fields that answers and chunks share."""
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}

    async def remember(self, answer: str) -> None:
        """Let the next request of this conversation find its thread."""
        key = conversation_key(self.prompt.turns, answer)
        await remember(_CONVERSATIONS, key, {"thread": self.run.thread})


@router.post("/chat/completions")
async def complete(wanted: ChatRequest, request: Request) -> Response:
    """Run an agent on a conversation's newest message, and answer as a model does."""
    agent = require_model(wanted.model)
    refuse_tools(wanted.tools, wanted.tool_choice)
    if (wanted.n or 1) > 1:
        raise ApiError(400, "One answer a request: leave n out.", param="n")
    prompt = read_prompt(wanted.messages)
    run = await _start(agent, prompt, schema_of(wanted.response_format))
    chat = _Chat(run, agent, prompt, str(request.base_url), int(time.time()))
    if not wanted.stream:
        return JSONResponse(await _completion(chat, request))
    with_usage = bool((wanted.stream_options or {}).get("include_usage"))
    return StreamingResponse(
        _chunks(chat, with_usage=with_usage),
        media_type="text/event-stream",
        headers=STREAM_HEADERS,
    )


def refuse_tools(tools: list[Any] | None, choice: Any) -> None:
    """Refuse a call of the client's tools that the client demands: none would come.

    Tools that may be called are passed over, as a model may: chat clients send theirs always.
    """
    if tools and choice not in (None, "auto", "none"):
        raise ApiError(
            400,
            "An agent calls its own tools, never the client's: leave `tool_choice` out. Tools for "
            "the agent come from MCP servers.",
            param="tool_choice",
        )


def schema_of(response_format: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the JSON schema that an answer must have, None for text."""
    kind = (response_format or {"type": "text"}).get("type")
    if kind == "text" or response_format is None:
        return None
    described: Any = response_format.get("json_schema", response_format)
    named = cast("dict[str, Any]", described) if isinstance(described, dict) else {}
    schema: Any = named.get("schema")
    if kind != "json_schema" or not isinstance(schema, dict):
        raise ApiError(
            400, "Use json_schema with a schema: other forms say nothing.", param="response_format"
        )
    return {"title": str(named.get("name") or "answer"), **cast("dict[str, Any]", schema)}


async def _start(agent: str, prompt: Prompt, schema: dict[str, Any] | None) -> AgentRun:
    """Start the run on the conversation's thread, or on a new one if its thread is not known.

    A conversation's record is used up: who sends the same turns again, to have another answer,
    begins a new thread.
    """
    key = conversation_key(prompt.turns[:-1])
    known = await recall(_CONVERSATIONS, key) if len(prompt.turns) > 1 else None
    if known is None:
        return await start(agent, await new_thread(), prompt, schema)
    await remember(_CONVERSATIONS, key, None)
    try:
        return await start(agent, known["thread"], prompt, schema)
    except Refused as refusal:
        if refusal.status != 404:  # the thread was deleted
            await remember(_CONVERSATIONS, key, dict(known))
            raise
    return await start(agent, await new_thread(), prompt, schema)


async def _completion(chat: _Chat, request: Request) -> dict[str, Any]:
    final = await result_of(chat.run, request)
    require_answer(final)
    text = answer_text(final, chat.run.thread, chat.base_url)
    await chat.remember(text)
    message = {
        "role": "assistant",
        "content": text,
        "refusal": None,
        "annotations": [],
        "artifacts": files_of(final, chat.run.thread, chat.base_url),
    }
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _reason(final)}
    return {**chat.head("chat.completion"), "choices": [choice], "usage": chat_usage(final)}


async def _chunks(chat: _Chat, *, with_usage: bool) -> AsyncGenerator[str]:
    """Stream what the agent does as reasoning, and then its answer as content."""
    yield _chunk(chat, {"role": "assistant", "content": ""})
    try:
        async with aclosing(follow_or_cancel(chat.run)) as parts:
            async for part in parts:
                if isinstance(part, Progress):
                    text = f"{part.text}\n\n"
                    yield _chunk(chat, {"reasoning_content": text}) if part.text else PING
                    continue
                require_answer(part)
                answer = answer_text(part, chat.run.thread, chat.base_url)
                await chat.remember(answer)
                files = files_of(part, chat.run.thread, chat.base_url)
                yield _chunk(chat, {"content": answer})
                yield _chunk(chat, {"artifacts": files} if files else {}, _reason(part))
                if with_usage:
                    head = chat.head("chat.completion.chunk")
                    yield as_sse({**head, "choices": [], "usage": chat_usage(part)})
    except ApiError as error:
        yield as_sse(error.body())
    yield "data: [DONE]\n\n"


def _chunk(chat: _Chat, delta: dict[str, Any], reason: str | None = None) -> str:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
    return as_sse({**chat.head("chat.completion.chunk"), "choices": [choice]})


def as_sse(body: dict[str, Any]) -> str:
    """Return an object as a server-sent event."""
    return f"data: {json.dumps(body)}\n\n"


def chat_usage(final: Final) -> dict[str, Any]:
    """Return the tokens of all model calls of a run."""
    usage = final["usage"]
    sent, received = usage["input_tokens"], usage["output_tokens"]
    return {
        "prompt_tokens": sent,
        "completion_tokens": received,
        "total_tokens": sent + received,
        "prompt_tokens_details": {"cached_tokens": usage["cached_tokens"]},
    }


def _reason(final: Final) -> str:
    """Return why the answer ends: a run that a limit stopped has not said all."""
    return "length" if final["status"] == "stopped" else "stop"


def _model(name: str) -> dict[str, Any]:
    description = describe_agent(name)
    return {
        "id": name,
        "object": "model",
        "created": _SINCE,
        "owned_by": "openmanus",
        "description": description,
    }
