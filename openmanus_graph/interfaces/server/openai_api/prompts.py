"""Reads the messages of OpenAI's requests: texts, pictures and files, who said what."""

import base64
import binascii
import hashlib
import json
import mimetypes
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from typing_extensions import override

from openmanus_graph.errors import ConfigError
from openmanus_graph.interfaces.server.admission import Refused
from openmanus_graph.interfaces.service.runs import Message, Upload

PREFIX = "/v1"
_TYPES = {401: "authentication_error", 403: "permission_error", 404: "invalid_request_error"}
_SERVER_ERROR = 500


class ApiError(Exception):
    """A request is refused, or its run failed; the text says why.

    Args:
        status: Of the HTTP answer.
        sentence: Why.
        param: The field of the request that is wrong.
        code: One of OpenAI's codes.
    """

    def __init__(
        self, status: int, sentence: str, *, param: str | None = None, code: str | None = None
    ) -> None:
        super().__init__(sentence)
        self.status, self.param, self.code = status, param, code

    def body(self) -> dict[str, Any]:
        """Return the answer's body."""
        return error_body(self.status, str(self), self.param, self.code)


def error_body(
    status: int, sentence: str, param: str | None = None, code: str | None = None
) -> dict[str, Any]:
    """Return the body of an error."""
    fallback = "server_error" if status >= _SERVER_ERROR else "invalid_request_error"
    kind = _TYPES.get(status, fallback)
    return {"error": {"message": sentence, "type": kind, "param": param, "code": code}}


class OpenAIRoute(APIRoute):
    """A route whose errors have OpenAI's form.

    Clients repeat what failed with 409 or 5xx by themselves; a run that is repeated would do its
    work again, so they are told not to.
    """

    @override
    def get_route_handler(self) -> Callable[[Request], Awaitable[Response]]:  # type: ignore[override]
        handle = super().get_route_handler()

        async def answer(request: Request) -> Response:
            try:
                return await handle(request)
            except ApiError as error:
                refusal = error
            except Refused as error:
                refusal = ApiError(error.status, str(error))
            except ConfigError as error:
                refusal = ApiError(422, str(error))
            except RequestValidationError as error:
                first: dict[str, Any] = error.errors()[0]
                param = ".".join(str(part) for part in first["loc"] if part != "body")
                refusal = ApiError(400, f"{param}: {first['msg']}", param=param)
            return JSONResponse(refusal.body(), refusal.status, {"x-should-retry": "false"})

        return answer


_ANY = "application/octet-stream"
_USER, _ASSISTANT = "user", "assistant"
_INSTRUCTING = ("system", "developer")


@dataclass(frozen=True)
class Turn:
    """What one side said."""

    role: Literal["user", "assistant"]
    text: str
    files: tuple[Upload, ...] = ()
    words: str = ""
    """What of the text the user typed: its first part."""


@dataclass(frozen=True)
class Prompt:
    """What a request says."""

    instructions: str
    """What system and developer messages say."""
    turns: tuple[Turn, ...]
    """Of user and assistant; the newest is the user's."""

    def message(self, *, begins: bool) -> Message:
        """Return the newest turn, as a run takes it.

        Args:
            begins: The thread is new: it gets the instructions and the files of earlier turns.
        """
        newest, files = self.turns[-1], self.turns[-1].files
        if not begins:
            return Message(newest.text, files, newest.words)
        parts = [f"Instructions for this conversation:\n{self.instructions}", newest.text]
        text = "\n\n".join(parts) if self.instructions else newest.text
        files = tuple(file for turn in self.turns for file in turn.files)
        return Message(text, files, newest.words)

    def history(self) -> list[dict[str, str]]:
        """Return the earlier turns as messages of a graph's input."""
        types = {_USER: "human", _ASSISTANT: "ai"}
        return [
            {"type": types[turn.role], "content": turn.text}
            for turn in self.turns[:-1]
            if turn.text
        ]


def read_prompt(messages: Iterable[Mapping[str, Any]], instructions: str = "") -> Prompt:
    """Understand a request's messages, oldest first.

    Args:
        messages: With `role` and `content`.
        instructions: What the request says for the whole conversation.

    Raises:
        ApiError: There are none, the newest is not the user's, or one holds what is not taken.
    """
    texts, turns = [instructions], list[Turn]()
    for number, message in enumerate(messages):
        place, role = f"messages[{number}]", message.get("role")
        parts, files = read_content(message.get("content"), place)
        text = "\n\n".join(parts)
        if role in _INSTRUCTING:
            texts.append(text)
        elif role == _USER:
            turns.append(Turn("user", text, files, "".join(parts[:1])))
        elif role == _ASSISTANT:
            turns.append(Turn("assistant", text))
        else:
            raise ApiError(
                400,
                f"A message of role {role!r} is not taken: the agent calls its own tools, and "
                "reads messages of system, developer, user and assistant.",
                param=place,
            )
    if not turns or turns[-1].role != _USER:
        raise ApiError(400, "The last message must be the user's.", param="messages")
    if not turns[-1].text.strip() and not turns[-1].files:
        raise ApiError(400, "The message is empty. Say what to do.", param="messages")
    return Prompt("\n\n".join(text for text in texts if text.strip()), tuple(turns))


def read_content(content: Any, place: str) -> tuple[list[str], tuple[Upload, ...]]:
    """Return the texts and the files of a message's content. ApiError names what is not taken."""
    if content is None or isinstance(content, str):
        return [content or ""], ()
    if not isinstance(content, list):
        raise ApiError(400, "content must be a text or a list of parts.", param=place)
    texts, files = list[str](), list[Upload]()
    for number, part in enumerate(cast("list[Any]", content)):
        found = _read_part(part, f"{place}.content[{number}]", number)
        if isinstance(found, Upload):
            files.append(found)
        else:
            texts.append(found)
    return texts, tuple(files)


def conversation_key(turns: Sequence[Turn], answer: str = "") -> str:
    """Return the digest of a conversation, by which its next request finds its thread.

    Clients send the whole conversation with each request, and nothing that names it. White space
    is not counted: clients trim.
    """
    said = [(turn.role, " ".join(turn.text.split())) for turn in turns]
    if answer:
        said.append(("assistant", " ".join(answer.split())))
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()


def _read_part(part: Any, place: str, number: int) -> str | Upload:
    """Return a part's text or file, of Chat Completions or of Responses."""
    if not isinstance(part, Mapping):
        raise ApiError(400, "A part of the content must be an object.", param=place)
    fields = cast("Mapping[str, Any]", part)
    match fields.get("type"):
        case "text" | "input_text" | "output_text":
            return str(fields.get("text") or "")
        case "refusal":
            return str(fields.get("refusal") or "")
        case "image_url" | "input_image":
            given = fields.get("image_url")
            url = (
                cast("Mapping[str, Any]", given).get("url") if isinstance(given, Mapping) else given
            )
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
            raise ApiError(400, f"A part of type {kind!r} is not taken.", param=place)


def _inner(fields: Mapping[str, Any], name: str, place: str) -> Mapping[str, Any]:
    """Return an object inside a part. ApiError: it is something else."""
    found = fields.get(name)
    if not isinstance(found, Mapping):
        raise ApiError(400, f"{name} must be an object.", param=place)
    return cast("Mapping[str, Any]", found)


def _from_data_url(url: Any, name: str, place: str) -> Upload:
    """Return the file that a data URL holds; plain base64 is taken as well."""
    if not isinstance(url, str) or not url:
        raise ApiError(
            400, "Send the file's bytes, as a data URL: there are no uploaded files.", param=place
        )
    if url.startswith(("http://", "https://")):
        raise ApiError(
            400,
            "This server fetches no address by itself. Send the bytes as a data URL, or name the "
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
    except (binascii.Error, ValueError) as error:
        raise ApiError(400, f"The data is no base64: {error}.", param=place) from error
