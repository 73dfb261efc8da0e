"""Classifies failed model calls: whether to ask again, when, and what to tell the person.

Imports no provider's library: exceptions are recognized by status code, class name and text.
"""

import json
import math
import re
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from socket import gaierror
from typing import Any, Literal, cast

from langchain_core import exceptions as core
from pydantic import ValidationError

from openmanus_graph.backends.models.dialects import NO_TOOLS, is_refusal
from openmanus_graph.backends.models.endpoint import StatusError, TransportError
from openmanus_graph.state.addresses import without_secrets
from openmanus_graph.state.manus import no_usage
from openmanus_graph.state.validation import validation_problems

FailureKind = Literal[
    "retry", "context_length", "no_tools", "content_filter", "withheld", "page", "quota", "auth",
    "not_found", "bad_request",
]  # fmt: skip


class ReplyError(Exception):
    """A success status that carried no reply: an error object, no choices, HTML, half a stream."""

    def __init__(
        self, message: str, *, status_code: int | None = None, kind: FailureKind | None = None
    ) -> None:
        super().__init__(message)
        self.status_code = status_code
        self.kind: FailureKind | None = kind
        """Set where the raiser knows more than the words say."""


class ModelError(Exception):
    """A model call that failed for good.

    Attributes:
        sentence: What failed, why and what to do, for the person; holds no secrets.
        spent: The cost of other requests of the same call, if a middleware sent several.
    """

    def __init__(self, kind: FailureKind, sentence: str) -> None:
        super().__init__(sentence)
        self.kind: FailureKind = kind
        self.sentence = sentence
        self.spent = no_usage()


@dataclass(frozen=True)
class Failure:
    kind: FailureKind
    event: str
    """What failed and why, in a sentence."""
    advice: str = ""
    retry_after_s: float | None = None

    @property
    def sentence(self) -> str:
        return f"{self.event} {self.advice}".rstrip()


def classify(error: BaseException, subject: str = "The model") -> Failure | None:
    """Return what the error of a call means; None if it is a bug and not a provider's failure."""
    if isinstance(error, ModelError):
        return Failure(error.kind, error.sentence)
    # LangChain's errors often wrap the client's own, which knows more.
    source = error.__cause__ if isinstance(error, core.ModelError) and error.__cause__ else error
    status = _status(error) or _status(source)
    text = _server_text(source)
    kind = _kind(error, status, text)
    if kind is None:
        return None
    wait_s = None
    if kind == "retry":
        answer = getattr(source, "response", source)
        headers = getattr(answer, "headers", None)
        known = isinstance(headers, Mapping)
        words = f"{text} {getattr(source, 'details', '')}"  # Google's RetryInfo
        wait_s = retry_after_s(cast("Mapping[str, str]", headers) if known else {}, words)
    what = _what_failed(error, status, kind)
    where = _address(error) if what in _WHERE_MATTERS else ""
    detail = redact_secrets(" ".join(text.split()))[:400].rstrip(". ")
    reason = f": {detail}" if detail and detail.lower() not in what.lower() else ""
    advice = next((text for words, text in _ADVICE_BY_EVENT if words in what), _ADVICE[kind])
    if kind == "bad_request" and _PICTURES.search(detail):
        advice = "If it sees none, set [llm] sees_images = false or a vision_model, and resume."
    return Failure(kind, f"{subject} {what}{where}{reason}.", advice, wait_s)


def refusal_text(error: ModelError) -> str | None:
    """Return the server's whole answer if it refused a request for its content; else None."""
    cause = error.__cause__
    if cause is None:
        text = error.sentence
    else:
        source = cause.__cause__ if isinstance(cause, core.ModelError) else None
        body = getattr(source or cause, "body", None)
        text = body if isinstance(body, str) else json.dumps(body, default=str) if body else ""
        text = text or _server_text(source or cause)
    if error.kind == "context_length":
        return text if _PICTURES.search(text) else None
    return text if error.kind in ("bad_request", "no_tools", "not_found") else None


_SECRETS = re.compile(
    r"(?i)\b(?:sk|pk|gsk|xai|key|nvapi|hf|lsv2|AIza)[-_][\w*.-]{6,}|\bAIza[\w-]{20,}"
    r"|(?<=bearer )\S+|(?<=://)[^/\s:@]+:[^/\s@]+(?=@)"
    r"|(?<=api_key=)[^&\s\"']+|(?<=key=)[^&\s\"']{8,}|\b[0-9a-f]{32,}\b"
)


def redact_secrets(text: str) -> str:
    """Replace what looks like a key, a token or a password."""
    return _SECRETS.sub("[redacted]", text)


def malformed_reply(error: Exception) -> str:
    """Return why a reply could not be parsed, without its content."""
    if isinstance(error, ValidationError):
        return "; ".join(validation_problems(error))
    return f"{type(error).__name__}: {error}"


def _kind(error: BaseException, status: int | None, text: str) -> FailureKind | None:
    if isinstance(error, ReplyError) and error.kind:
        return error.kind
    if isinstance(error, core.ContextOverflowError):
        return "context_length"
    if not _is_provider_error(error, status):
        return None
    # Their texts list names and values of fields.
    if isinstance(error, KeyError | TypeError | AttributeError | ValidationError):
        return "retry"
    return _kind_by_text(status, text) or _kind_by_status(status) or _kind_by_class(error)


_TEXT_PATTERNS: tuple[tuple[FailureKind, str], ...] = (
    ("quota", r"insufficient[_ ](quota|balance|credit|funds)|exceeded your current quota"
              r"|credit balance is too low|billing_hard_limit|payment required"
              r"|requires more credits"),
    ("context_length",
     r"context_length_exceeded|context[ _](length|window|size)|maximum context|prompt is too long"
     r"|exceed_context_size|(input|prompt|request) (is )?too (long|large)|too many (input )?tokens"
     r"|reduce the length|token count .{0,60}exceeds|tokens? exceeds? the|longer than the model"
     r"|context .{0,20}overflow|max_seq_len|range of input length"
     r"|maximum (input|prompt|number of) (length|tokens)"),
    ("content_filter",
     r"content[_ ](filter|policy|management)|responsibleai|data_?inspection_?failed|was flagged"
     r"|flagged (as|for|by)|safety system|requires moderation|moderation_blocked"
     r"|prohibited_content|blocked_reason"),
    ("auth", r"invalid[_ ]api[_ ]key|incorrect api key|api key not valid|invalid x-api-key"
             r"|no auth credentials|authentication_error"),
    ("not_found", r"model_not_found|model .{0,80}(not found|does not exist|is not available)"
                  r"|invalid model|no such model|unknown model|not a valid model"),
)  # fmt: skip


def _kind_by_text(status: int | None, text: str) -> FailureKind | None:
    """Return what a server's text means, if its status allows that."""
    for kind, pattern in _TEXT_PATTERNS:
        if re.search(pattern, text, re.IGNORECASE) and _status_allows(kind, status, text):
            return kind
    if NO_TOOLS.search(text) and status not in (401, 429):
        return "no_tools"
    # Servers fail with 500 where a template or a schema cannot take the request.
    return "bad_request" if (status is None or status >= 500) and is_refusal(text) else None


def _status_allows(kind: FailureKind, status: int | None, text: str) -> bool:
    if status == 429:
        # "Request too large ... tokens per minute" never fits, however long one waits.
        return kind == "quota" or (kind == "context_length" and "too large" in text.lower())
    if status == 401:
        return kind in ("auth", "quota")
    if status is not None and status >= 500:
        return kind == "context_length"
    return True


_KIND_BY_STATUS: dict[int, FailureKind] = {
    401: "auth", 402: "quota", 403: "auth", 404: "not_found", 405: "not_found",
    413: "context_length", 408: "retry", 409: "retry", 425: "retry", 429: "retry",
    501: "bad_request",
}  # fmt: skip


def _kind_by_status(status: int | None) -> FailureKind | None:
    if status is None:
        return None
    usual: FailureKind = "retry" if status >= 500 else "bad_request"
    return _KIND_BY_STATUS.get(status, usual if status >= 400 else "not_found")


def _kind_by_class(error: BaseException) -> FailureKind:
    if isinstance(error, core.ModelAuthenticationError | core.ModelPermissionDeniedError):
        return "auth"
    if isinstance(error, core.ModelNotFoundError):
        return "not_found"
    names = _class_names(error)
    if isinstance(error, core.ModelInvalidRequestError) or "SSLCertVerificationError" in names:
        return "bad_request"
    if names & {"InvalidURL", "UnsupportedProtocol", "LocalProtocolError"}:
        return "not_found"
    return "retry"


_CLIENT_PACKAGES = frozenset({
    "openai", "httpx", "httpx2", "httpcore", "httpcore2", "anyio", "aiohttp", "anthropic",
    "google", "langchain_google_genai", "botocore", "ollama", "requests", "urllib3", "groq",
    "mistralai", "cohere",
})  # fmt: skip
"""Packages whose exceptions come from a provider or the network, never from a bug here."""
_REPLY_READERS = (
    "_create_chat_result",
    "_construct_lc_result_from_responses_api",
    "_convert_responses_chunk_to_generation_chunk",
)
"""Functions of LangChain's OpenAI client whose errors come from the reply."""
_LANGCHAIN_MODULES = tuple(
    f"langchain_core.{name}" for name in ("messages", "outputs", "language_models")
)
_PROVIDER_ERRORS = (
    ReplyError, StatusError, TransportError, core.ModelError,
    TimeoutError, ConnectionError, ssl.SSLError, gaierror,
)  # fmt: skip


def _is_provider_error(error: BaseException, status: int | None) -> bool:
    if isinstance(error, _PROVIDER_ERRORS) or status is not None:
        return True
    if any(cls.__name__ == "JSONDecodeError" for cls in type(error).__mro__):
        return True
    if isinstance(error, ValidationError) or _is_malformed_reply(error):
        return True
    return any(cls.__module__.partition(".")[0] in _CLIENT_PACKAGES for cls in type(error).__mro__)


def _is_malformed_reply(error: BaseException) -> bool:
    """Return True if a client could not read a reply: LangChain then raises errors of any class."""
    if "No generation chunks were returned" in str(error):
        return True
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    if last is None:
        return False
    module = str(last.tb_frame.f_globals.get("__name__"))
    return last.tb_frame.f_code.co_name in _REPLY_READERS or module.startswith(_LANGCHAIN_MODULES)


def _status(error: BaseException) -> int | None:
    if isinstance(error, StatusError):
        return error.status_code
    body: object = getattr(error, "body", None)
    response: object = getattr(error, "response", None)
    found: list[object] = [getattr(error, "status_code", None)]
    if isinstance(body, Mapping):
        fields = cast("Mapping[str, object]", body)
        found += [fields.get(name) for name in ("status_code", "status", "code")]
    if isinstance(response, Mapping):  # botocore
        metadata: Any = cast("Mapping[str, Any]", response).get("ResponseMetadata") or {}
        found.append(metadata.get("HTTPStatusCode"))
    else:
        found.append(getattr(response, "status_code", None))
    found.append(getattr(error, "code", None))
    texts = (str(value) for value in found if isinstance(value, int | str))
    return next((int(text) for text in texts if re.fullmatch(r"[45]\d\d", text)), None)


_REFUSED = re.compile(r"\[Errno (?:61|111)\] Connect call failed \([^)]*\)")
_RESPONSE_ERROR = re.compile(
    r"ResponseError\(code='(\w+)', message=['\"](.*)['\"][^)]*\)", re.DOTALL
)
"""An error object of OpenAI's Responses API, as LangChain prints it."""


def _server_text(error: BaseException) -> str:
    """Return the text of the server or the library, with what only the body holds."""
    if isinstance(error, ValidationError):
        return malformed_reply(error)
    text = str(getattr(error, "message", "") or error)
    if text == "Connection error.":  # OpenAI's SDK keeps the reason to itself
        text = next((str(link) for link in reversed(list(_causes(error))) if str(link)), text)
    body = getattr(error, "body", None)
    if isinstance(body, list) and body:  # Google wraps its errors in a list
        body = cast("list[object]", body)[0]
    if isinstance(body, Mapping):
        text = _error_object_text(cast("Mapping[str, object]", body)) or text
    if not text and (cause := error.__cause__):
        text = str(cause)
    return _REFUSED.sub("connection refused", _RESPONSE_ERROR.sub(r"\2 (\1)", text))


def _error_object_text(body: Mapping[str, object]) -> str:
    """Join the telling fields of an error object; where each server puts them differs."""
    inner = body.get("error")
    fields = cast("Mapping[str, object]", inner) if isinstance(inner, Mapping) else body
    parts: list[object] = [fields.get("message") or fields.get("detail") or inner]
    metadata = fields.get("metadata")
    if isinstance(metadata, Mapping):  # OpenRouter: what the provider behind it said
        parts.append(cast("Mapping[str, object]", metadata).get("raw"))
    texts = [str(part) for part in parts if part]
    marks = [fields.get(name) for name in ("code", "type")]
    texts += [f"({mark})" for mark in marks if isinstance(mark, str) and mark not in str(texts)]
    return " ".join(texts)


def _address(error: BaseException) -> str:
    """Return the address that was asked, if the client's error knows it."""
    for link in _causes(error):
        try:
            url = getattr(getattr(link, "request", link), "url", None)
        except RuntimeError:  # httpx's, without a request
            continue
        if url is not None:
            return f" at {redact_secrets(without_secrets(str(url)))}"
    return ""


def _class_names(error: BaseException) -> set[str]:
    """Return the names of the classes of an error and of its causes."""
    return {cls.__name__ for link in _causes(error) for cls in type(link).__mro__}


def _causes(error: BaseException) -> Iterator[BaseException]:
    link: BaseException | None = error
    for _ in range(8):
        if link is not None:
            yield link
            link = link.__cause__ or link.__context__


_STATUS_WORDS = {
    301: " (moved)", 302: " (moved)", 303: " (moved)", 307: " (moved)", 308: " (moved)",
    401: " (key refused)", 403: " (not allowed)", 404: " (not found)", 429: " (too many requests)",
    500: " (server error)", 502: " (bad gateway)", 503: " (overloaded)", 504: " (gateway timeout)",
    529: " (overloaded)",
}  # fmt: skip
_BROKEN_OFF = frozenset({
    "ReadError", "RemoteProtocolError", "EndOfStream", "IncompleteRead", "ClientPayloadError",
    "ServerDisconnectedError", "ConnectionResetError",
})  # fmt: skip


def _what_failed(error: BaseException, status: int | None, kind: FailureKind) -> str:
    names = _class_names(error)
    if status is not None:
        return f"answered with {status}{_STATUS_WORDS.get(status, '')}"
    if "SSLCertVerificationError" in names:
        return "could not be reached safely"
    if names & {"TimeoutError", "APITimeoutError", "TimeoutException"}:
        return "did not answer in time"
    if names & {"DecodingError", "ContentEncodingError"}:  # of its compression
        return "gave no usable reply"
    if isinstance(error, ReplyError | ValidationError) or _is_malformed_reply(error):
        passing = kind in ("retry", "withheld", "page")
        return "gave no usable reply" if passing else "refused the request"
    if names & _BROKEN_OFF:
        return "broke its answer off"
    if isinstance(error, OSError) or names & {"APIConnectionError", "TransportError"}:
        return "could not be reached"
    return "failed"


_WHERE_MATTERS = ("could not be reached", "could not be reached safely", "did not answer in time")
_PICTURES = re.compile(r"image|vision|multi-?modal|picture", re.IGNORECASE)
_ADVICE: dict[FailureKind, str] = {
    "retry": "This often passes; try again later.",
    "context_length": "The request is longer than the model takes; shorten the task, or choose a "
    "model with a larger context.",
    "no_tools": "It works better with tool calling enabled at its server (vLLM: "
    "--enable-auto-tool-choice --tool-call-parser, llama.cpp: --jinja). [llm] tool_calling = "
    '"text" does without.',
    "content_filter": "The provider's filter refused the request; put the task in other words.",
    "withheld": "The provider's filter refused the reply; put the task in other words.",
    "page": "Check the base URL (most servers want it to end in /v1), and what is in front of it.",
    "quota": "The account has no credit left; top it up or use another key or model.",
    "auth": "Check the key, and that it may use this model.",
    "not_found": "Check the model's name and the base URL (most servers want it to end in /v1).",
    "bad_request": "The server does not accept this request; check the model's options.",
}
_ADVICE_BY_EVENT = (
    ("reached safely", "Set SSL_CERT_FILE to the certificate of its authority if you trust it."),
    ("could not be reached", "Check that it runs, its base URL, and the network."),
)


_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_DAY_S = 24 * 3600.0


def retry_after_s(
    headers: Mapping[str, str], text: str = "", now: datetime | None = None
) -> float | None:
    """Return the seconds to wait, from an answer's headers or else from the server's words.

    Args:
        text: The server's message: "Please try again in 1m2.5s", or Google's `retryDelay`.
        now: This machine's time, against which an HTTP date is read if the answer has no `Date`.
    """
    if (milliseconds := _number(headers.get("retry-after-ms"))) is not None:
        return milliseconds / 1000
    value = headers.get("retry-after")
    if (seconds := _number(value)) is not None:
        return seconds
    if (until := _moment(value)) is not None:
        # The server's clock counts if it is sent. This machine's may be wrong: by it, a wait of
        # days is ignored.
        server_now = _moment(headers.get("date"))
        seconds = (until - (server_now or now or datetime.now(UTC))).total_seconds()
        return None if server_now is None and seconds > _DAY_S else max(0.0, seconds)
    found = None if value else _WAIT.search(text)
    if found is None:
        return None
    parts = re.findall(r"(\d+(?:\.\d+)?)(ms|s|m|h)", found.group(1))
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)


_WAIT = re.compile(
    r"(?:(?:try again|retry) in |\bretryDelay\W{1,5})((?:\d+(?:\.\d+)?(?:ms|s|m|h))+)"
)


def _number(value: str | None) -> float | None:
    try:
        number = float(value or "nan")
    except ValueError:
        return None
    return max(0.0, number) if math.isfinite(number) else None


def _moment(http_date: str | None) -> datetime | None:
    try:
        moment = parsedate_to_datetime(http_date) if http_date else None
    except ValueError:
        return None
    return moment.replace(tzinfo=UTC) if moment and moment.tzinfo is None else moment
