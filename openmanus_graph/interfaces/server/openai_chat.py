"""OpenAI's protocol: agents are models, a conversation is a thread. Here are Chat Completions.

Clients made for OpenAI use it with this server's address and its token as the API key.
"""

import asyncio
import base64
import hashlib
import json
import mimetypes
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, cast

from fastapi import APIRouter, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from fastapi.routing import APIRoute
from langgraph.store.base import PutOp
from pydantic import BaseModel
from typing_extensions import override

from openmanus_graph.errors import ConfigError
from openmanus_graph.graphs.catalog import agent_names, describe_agent
from openmanus_graph.interfaces.server import runs, store
from openmanus_graph.interfaces.service.accounts import Refused
from openmanus_graph.interfaces.service.runs import ANSWER_HINTS, Final, Upload

_CONVERSATIONS = "conversations"
"""Kind of the records that name a conversation's thread."""
_SINCE = 1_735_689_600
"""The date of all models: clients require one."""
_ANY = "application/octet-stream"


class OpenAIRoute(APIRoute):
    """A route whose errors have OpenAI's form.

    Clients repeat requests that failed with 409 or 5xx. A header forbids that, because it would
    start the run again.
    """

    @override
    def get_route_handler(self) -> Callable[[Request], Awaitable[Response]]:  # type: ignore[override]
        handle = super().get_route_handler()

        async def answer(request: Request) -> Response:
            try:
                return await handle(request)
            except Refused as error:
                refusal = error
            except ConfigError as error:
                refusal = Refused(422, str(error))
            except RequestValidationError as error:
                first: dict[str, Any] = error.errors()[0]
                param = ".".join(str(part) for part in first["loc"] if part != "body")
                refusal = Refused(400, f"{param}: {first['msg']}", param=param)
            headers = {"x-should-retry": "false"}
            return JSONResponse(store.openai_error(refusal), refusal.status, headers)

        return answer


def read_prompt(messages: Iterable[Mapping[str, Any]], instructions: str = "") -> runs.Prompt:
    """Read a request's messages, oldest first, with `role` and `content`.

    Refused if there are none, the newest is not the user's, or one has an unsupported part.
    """
    texts, turns = [instructions], list[runs.Turn]()
    for number, message in enumerate(messages):
        place, role = f"messages[{number}]", message.get("role")
        parts, files = read_content(message.get("content"), place)
        text = "\n\n".join(parts)
        if role in ("system", "developer"):
            texts.append(text)
        elif role == "user":
            turns.append(runs.Turn("user", text, files, "".join(parts[:1])))
        elif role == "assistant":
            turns.append(runs.Turn("assistant", text))
        else:
            raise Refused(
                400,
                f"A message of role {role!r} is not supported: the agent calls its own tools, and "
                "reads messages of system, developer, user and assistant.",
                param=place,
            )
    if not turns or turns[-1].role != "user":
        raise Refused(400, "The last message must be the user's.", param="messages")
    if not turns[-1].text.strip() and not turns[-1].files:
        raise Refused(400, "The message is empty. Say what to do.", param="messages")
    return runs.Prompt("\n\n".join(text for text in texts if text.strip()), tuple(turns))


def read_content(content: Any, place: str) -> tuple[list[str], tuple[Upload, ...]]:
    """Return the texts and the files of a message's content. Refused names an unsupported part."""
    if content is None or isinstance(content, str):
        return [content or ""], ()
    if not isinstance(content, list):
        raise Refused(400, "content must be a text or a list of parts.", param=place)
    texts, files = list[str](), list[Upload]()
    for number, part in enumerate(cast("list[Any]", content)):
        found = _read_part(part, f"{place}.content[{number}]", number)
        if isinstance(found, Upload):
            files.append(found)
        else:
            texts.append(found)
    return texts, tuple(files)


def conversation_key(turns: Sequence[runs.Turn], answer: str = "") -> str:
    """Return the digest of a conversation, by which its next request finds its thread.

    Clients send the whole conversation with each request, but not its name. White space does not
    count, because clients trim it.
    """
    said = [(turn.role, " ".join(turn.text.split())) for turn in turns]
    if answer:
        said.append(("assistant", " ".join(answer.split())))
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()


def _read_part(part: Any, place: str, number: int) -> str | Upload:
    if not isinstance(part, Mapping):
        raise Refused(400, "A part of the content must be an object.", param=place)
    fields = cast("Mapping[str, Any]", part)
    match fields.get("type"):
        case "text" | "input_text" | "output_text":
            return str(fields.get("text") or "")
        case "refusal":
            return str(fields.get("refusal") or "")
        case "image_url" | "input_image":
            url: Any = fields.get("image_url")
            if isinstance(url, Mapping):
                url = cast("Mapping[str, Any]", url).get("url")
            return _from_data_url(url, f"image-{number + 1}", place)
        case "file" | "input_file":
            inner = _inner(fields, "file", place) if "file" in fields else fields
            name = str(inner.get("filename") or f"file-{number + 1}")
            return _from_data_url(inner.get("file_data"), name, place)
        case "input_audio":
            audio = _inner(fields, "input_audio", place)
            data = _decoded(str(audio.get("data") or ""), place)
            suffix = str(audio.get("format") or "wav")
            return Upload(f"audio-{number + 1}.{suffix}", data, f"audio/{suffix}")
        case kind:
            raise Refused(400, f"A part of type {kind!r} is not supported.", param=place)


def _inner(fields: Mapping[str, Any], name: str, place: str) -> Mapping[str, Any]:
    found = fields.get(name)
    if not isinstance(found, Mapping):
        raise Refused(400, f"{name} must be an object.", param=place)
    return cast("Mapping[str, Any]", found)


def _from_data_url(url: Any, name: str, place: str) -> Upload:
    """Return the file of a data URL; plain base64 is accepted, too."""
    if not isinstance(url, str) or not url:
        raise Refused(
            400, "Send the file's bytes, as a data URL: there are no uploaded files.", param=place
        )
    if url.startswith(("http://", "https://")):
        raise Refused(
            400,
            "This server does not fetch addresses. Send the bytes as a data URL, or name the "
            "address in the text: the agent can open it.",
            param=place,
        )
    head, comma, data = url.partition(",")
    if not comma or not head.startswith("data:"):
        head, data = "", url
    media_type = head.removeprefix("data:").partition(";")[0]
    media_type = media_type or mimetypes.guess_type(name)[0] or _ANY
    suffix = "" if "." in name else (mimetypes.guess_extension(media_type) or "")
    return Upload(f"{name}{suffix}", _decoded(data, place), media_type)


def _decoded(data: str, place: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except ValueError as error:
        raise Refused(400, f"The data is not base64: {error}.", param=place) from error


router = APIRouter(prefix=store.OPENAI_PREFIX, route_class=OpenAIRoute)


@router.get("/models")
async def list_models() -> dict[str, Any]:
    return {"object": "list", "data": [await show_model(name) for name in agent_names()]}


@router.get("/models/{name}")
async def show_model(name: str) -> dict[str, Any]:
    require_model(name)
    return {
        "id": name,
        "object": "model",
        "created": _SINCE,
        "owned_by": "openmanus",
        "description": describe_agent(name),
    }


def require_model(name: str) -> None:
    if name not in agent_names():
        known = ", ".join(agent_names())
        sentence = f"There is no model {name!r}. Agents are models here: {known}."
        raise Refused(404, sentence, param="model", code="model_not_found")


class ChatRequest(BaseModel):
    """The fields of a request that count; sampling settings come from the configuration."""

    model: str
    messages: list[dict[str, Any]]
    stream: bool = False
    stream_options: dict[str, Any] | None = None
    n: int | None = None
    tools: list[Any] | None = None
    tool_choice: Any = None
    response_format: dict[str, Any] | None = None


@router.post("/chat/completions")
async def complete(wanted: ChatRequest, request: Request) -> Response:
    require_model(wanted.model)
    refuse_tools(wanted.tools, wanted.tool_choice)
    if (wanted.n or 1) > 1:
        raise Refused(400, "The server returns one answer per request. Leave out n.", param="n")
    prompt = read_prompt(wanted.messages)
    schema = schema_of(wanted.response_format)
    run = await _start(wanted.model, prompt, schema, str(request.base_url))
    chat = _Chat(run, wanted.model, prompt, int(time.time()))
    if wanted.stream:
        with_usage = bool((wanted.stream_options or {}).get("include_usage"))
        return store.event_stream(_chunks(chat, with_usage=with_usage))
    final = await runs.result_of(run, request)
    message = {
        "role": "assistant",
        "content": await chat.answer(final),
        "refusal": None,
        "annotations": [],
        "artifacts": run.files(final),
    }
    return JSONResponse(chat.body("message", message, _reason(final), usage=_usage(final)))


@dataclass(frozen=True)
class _Chat:
    run: runs.AgentRun
    model: str
    prompt: runs.Prompt
    created: int

    def body(
        self, part: str, content: dict[str, Any] | None, reason: str | None = None, **fields: Any
    ) -> dict[str, Any]:
        """Return a completion with a `message`, or a chunk of one with a `delta`, if any."""
        choice = {"index": 0, part: content, "logprobs": None, "finish_reason": reason}
        return {
            "id": f"chatcmpl-{self.run.id}",
            "object": "chat.completion" if part == "message" else "chat.completion.chunk",
            "created": self.created,
            "model": self.model,
            "choices": [] if content is None else [choice],
            **fields,
        }

    async def answer(self, final: Final) -> str:
        """Return the answer of a run. The next request of the conversation finds its thread by it.

        Refused if the run has no answer.
        """
        if final["status"] in ("failed", "cancelled"):
            code = "cancelled" if final["status"] == "cancelled" else None
            raise Refused(500, str(final["answer"]), code=code)
        answer = answer_text(final, self.run)
        key = conversation_key(self.prompt.turns, answer)
        await remember(_CONVERSATIONS, key, {"thread": self.run.thread})
        return answer


async def _chunks(chat: _Chat, *, with_usage: bool) -> AsyncGenerator[str]:
    """Stream the agent's progress as reasoning, and then its answer as content."""

    def chunk(delta: dict[str, Any] | None, reason: str | None = None, **fields: Any) -> str:
        return _as_sse(chat.body("delta", delta, reason, **fields))

    yield chunk({"role": "assistant", "content": ""})
    try:
        async with aclosing(runs.follow(chat.run)) as parts:
            async for part in parts:
                if isinstance(part, str):
                    yield chunk({"reasoning_content": f"{part}\n\n"}) if part else runs.PING
                    continue
                yield chunk({"content": await chat.answer(part)})
                files = chat.run.files(part)
                yield chunk({"artifacts": files} if files else {}, _reason(part))
                if with_usage:
                    yield chunk(None, usage=_usage(part))
    except Refused as error:
        yield _as_sse(store.openai_error(error))
    yield "data: [DONE]\n\n"


def _as_sse(body: dict[str, Any]) -> str:
    return f"data: {json.dumps(body)}\n\n"


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
            400,
            "Use json_schema with a schema: other forms do not describe the answer.",
            param="response_format",
        )
    return {"title": str(named.get("name") or "answer"), **cast("dict[str, Any]", schema)}


async def _start(
    agent: str, prompt: runs.Prompt, schema: dict[str, Any] | None, base_url: str
) -> runs.AgentRun:
    """Start the run on the conversation's thread, or on a new one if its thread is not known.

    The conversation's record is deleted: sending the same turns again, for another answer, starts a
    new thread.
    """
    key = conversation_key(prompt.turns[:-1])
    known = await recall(_CONVERSATIONS, key) if len(prompt.turns) > 1 else None
    if known is not None:
        await remember(_CONVERSATIONS, key, None)
        try:
            return await runs.start_prompt(agent, known["thread"], prompt, base_url, schema)
        except Refused as refusal:
            if refusal.status != 404:  # the thread was deleted
                await remember(_CONVERSATIONS, key, dict(known))
                raise
    return await runs.start_prompt(agent, await store.new_thread(), prompt, base_url, schema)


def _usage(final: Final) -> dict[str, Any]:
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


def answer_text(final: Final, run: runs.AgentRun) -> str:
    """Return the text for the client: the answer or question, and links to the run's files."""
    if final["structured"] is not None:
        return json.dumps(final["structured"], ensure_ascii=False)
    links = "\n".join(f"- [{one['path']}]({one['url']})" for one in run.files(final))
    hint = ANSWER_HINTS.get(final["stop_reason"], "") if final["status"] == "waiting" else ""
    return "\n\n".join(filter(None, (str(final["answer"]), hint, links)))


async def recall(kind: str, key: str) -> Mapping[str, Any] | None:
    """Return a record of this protocol; None if there is none."""
    found = await (await asyncio.to_thread(store.long_term_store)).aget(("openai", kind), key)
    return None if found is None else found.value


async def remember(kind: str, key: str, record: dict[str, Any] | None) -> None:
    """Write a record of this protocol; None deletes it."""
    records = await asyncio.to_thread(store.long_term_store)
    await records.abatch([PutOp(("openai", kind), key, record)])
