"""The envelopes of refusals: where each server puts its words."""

import json
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Refusal:
    """Why a request is not answered, as it goes over the wire."""

    status: int
    body: str
    kind: str = "application/json"


def openai_error(
    message: str,
    status: int = 400,
    *,
    kind: str = "invalid_request_error",
    param: str | None = None,
    code: str | None = None,
) -> Refusal:
    """OpenAI's, which DeepSeek, Groq, Moonshot and many gateways have too."""
    error = {"message": message, "type": kind, "param": param, "code": code}
    return Refusal(status, json.dumps({"error": error}, ensure_ascii=False))


def cerebras_error(message: str, param: str, status: int = 400) -> Refusal:
    """Cerebras's: no `error` around it."""
    fields = {"message": message, "type": "invalid_request_error", "param": param}
    return Refusal(status, json.dumps({**fields, "code": "wrong_api_format"}))


def llama_error(message: str, status: int = 400, **more: int) -> Refusal:
    """llama.cpp's."""
    kind = "server_error" if status == 500 else "invalid_request_error"
    if more:
        kind = "exceed_context_size_error"
    return Refusal(
        status, json.dumps({"error": {"code": status, "message": message, "type": kind, **more}})
    )


def jinja_error(message: str, status: int = 500, prefix: str = "") -> Refusal:
    """llama.cpp's, where a chat template raises something."""
    where = "While executing CallExpression at line 19, column 27 in source:\n"
    source = "...{%- if (message['role'] == 'user') != (ns.index % 2 == 0) %}\n  {{- raise_exc..."
    return llama_error(
        f"{prefix}\n------------\n{where}{source}\nError: Jinja Exception: {message}", status
    )


def vllm_error(message: str, status: int = 400) -> Refusal:
    """An old vLLM's: the fields at the top."""
    fields = {"object": "error", "message": message, "type": "BadRequestError"}
    return Refusal(status, json.dumps({**fields, "param": None, "code": status}))


def detail_error(*places: tuple[Sequence[str | int], object], whole: object = None) -> Refusal:
    """FastAPI's and Mistral's: 422 with a list of fields that are not known."""
    detail = [
        {
            "type": "extra_forbidden",
            "loc": ["body", *place],
            "msg": "Extra inputs are not permitted",
            "input": given if whole is None else whole,
        }
        for place, given in places
    ]
    return Refusal(422, json.dumps({"detail": detail}))


def mistral_error(message: str, kind: str, code: str) -> Refusal:
    """Mistral's, for the order of messages and ids."""
    fields = {"object": "error", "message": message, "type": kind, "param": None, "code": code}
    return Refusal(400, json.dumps(fields))


def gemini_error(message: str) -> Refusal:
    """Gemini's for OpenAI's protocol: an array."""
    error = {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}
    return Refusal(400, json.dumps([{"error": error}]))


def relay_error(message: str) -> Refusal:
    """A new-api relay's, which adds a number at the end."""
    text = f"{message} (request id: 20261128120000123456789abcdEFGH)"
    return openai_error(text, kind="<nil>", param="", code="invalid_request_error")


def litellm_error(message: str, upstream: str = "AnthropicException") -> Refusal:
    """A LiteLLM proxy's."""
    text = f"litellm.BadRequestError: {upstream} - {message}"
    error = {"message": text, "type": None, "param": None, "code": "400"}
    return Refusal(400, json.dumps({"error": error}))


def anthropic_text(message: str) -> str:
    """What Anthropic's own service says, for a proxy to pass on."""
    error = {"type": "invalid_request_error", "message": message}
    return json.dumps({"type": "error", "error": error, "request_id": "req_011CVxyz"})


def openrouter_error(raw: str, status: int = 400) -> Refusal:
    """OpenRouter's: what the server behind it said is a text in it."""
    metadata = {"raw": raw, "provider_name": "SomeProvider"}
    error = {"message": "Provider returned error", "code": status, "metadata": metadata}
    return Refusal(status, json.dumps({"error": error}))


def mimo_error(param: str) -> Refusal:
    """MiMo's: what is wrong stands in `param`, and it looks like an event of a stream."""
    error = {"code": "400", "message": "Param Incorrect", "param": param, "type": ""}
    return Refusal(400, f"data: {json.dumps({'error': error})}")
