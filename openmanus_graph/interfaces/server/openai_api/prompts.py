"""What the routes of OpenAI's protocol share: their errors, and the messages of requests."""

import base64
import hashlib
import json
import mimetypes
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, cast

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from typing_extensions import override

from openmanus_graph.errors import ConfigError
from openmanus_graph.interfaces.server.runs import Prompt, Turn
from openmanus_graph.interfaces.server.store import Refused
from openmanus_graph.interfaces.service.runs import Upload

PREFIX = "/v1"
_TYPES = {401: "authentication_error", 403: "permission_error", 404: "invalid_request_error"}
_SERVER_ERROR = 500


def error_body(refused: Refused) -> dict[str, Any]:
    fallback = "server_error" if refused.status >= _SERVER_ERROR else "invalid_request_error"
    kind = _TYPES.get(refused.status, fallback)
    where = {"param": refused.param, "code": refused.code}
    return {"error": {"message": str(refused), "type": kind, **where}}


class OpenAIRoute(APIRoute):
    """A route whose errors have OpenAI's form.

    Clients repeat requests that failed with 409 or 5xx. That would do a run's work again, so a
    header forbids it.
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
            return JSONResponse(error_body(refusal), refusal.status, headers)

        return answer


_ANY = "application/octet-stream"


def read_prompt(messages: Iterable[Mapping[str, Any]], instructions: str = "") -> Prompt:
    """Read a request's messages, oldest first, with `role` and `content`.

    Refused if there are none, the newest is not the user's, or one has an unsupported part.
    """
    texts, turns = [instructions], list[Turn]()
    for number, message in enumerate(messages):
        place, role = f"messages[{number}]", message.get("role")
        parts, files = read_content(message.get("content"), place)
        text = "\n\n".join(parts)
        if role in ("system", "developer"):
            texts.append(text)
        elif role == "user":
            turns.append(Turn("user", text, files, "".join(parts[:1])))
        elif role == "assistant":
            turns.append(Turn("assistant", text))
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
    return Prompt("\n\n".join(text for text in texts if text.strip()), tuple(turns))


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


def conversation_key(turns: Sequence[Turn], answer: str = "") -> str:
    """Return the digest of a conversation, by which its next request finds its thread.

    Clients send the whole conversation with each request, and no name of it. White space does not
    count: clients trim.
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
