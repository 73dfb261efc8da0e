"""One request to an engine's HTTP interface, and every way in which it can go wrong.

Keys travel in headers only: httpx2 logs addresses.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, cast
from urllib.parse import urlsplit

import httpx2

from openmanus_graph.backends.models.endpoint import tls_context
from openmanus_graph.backends.models.retry_after import retry_after_s
from openmanus_graph.backends.search.search_engine import EngineError, Hit
from openmanus_graph.errors import ConfigError

MAX_ANSWER_BYTES = 5_000_000
MAX_PAGES = 5
_MAX_WORDS_CHARS = 160
_LOCAL = ("all://localhost", "all://127.0.0.1", "all://[::1]")
_CAUSES = {
    "Name or service not known": "no such host",
    "No address associated": "no such host",
    "Temporary failure in name resolution": "names cannot be resolved: is there a network?",
    "nodename nor servname": "no such host",
    "CERTIFICATE_VERIFY_FAILED": "its certificate is not trusted here",
    "All connection attempts failed": "connection refused",
    "Connection refused": "connection refused",
    "Network is unreachable": "no network",
}


@dataclass(frozen=True)
class Question:
    """One HTTP request to an engine."""

    method: str
    url: str
    params: Mapping[str, str] = field(default_factory=dict[str, str])
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: Mapping[str, Any] | None = None
    refusals: Mapping[int, str] = field(default_factory=dict[int, str])
    """What a status means with this engine, where it is something of its own."""


async def ask(question: Question) -> Mapping[str, Any]:
    """Return the JSON object that answers. EngineError says why there is none."""
    try:
        async with await asyncio.to_thread(_client) as client:
            status, headers, body = await _exchange(client, question)
    except httpx2.TimeoutException as error:
        raise EngineError("it did not answer in time", passing=True) from error
    except httpx2.HTTPError as error:
        host = urlsplit(question.url).hostname
        known = (words for sign, words in _CAUSES.items() if sign in str(error))
        cause = next(known, type(error).__name__)  # a few words, without addresses
        raise EngineError(f"{host} cannot be reached ({cause})", passing=True) from error
    except httpx2.InvalidURL as error:
        raise EngineError("its address is no web address") from error
    if status != HTTPStatus.OK:
        raise _refusal(question, status, headers, body)
    return _object(body)


async def paged(
    page: Callable[[int], Awaitable[list[Hit]]], wanted: int, page_size: int
) -> list[Hit]:
    """Ask for pages, counted from 0, until there are enough hits or a page brings nothing new."""
    found: list[Hit] = []
    for number in range(MAX_PAGES):
        try:
            more = [hit for hit in await page(number) if hit not in found]
        except EngineError:
            if not found:
                raise
            return found  # what there is is worth more than what is missing
        found += more
        if len(found) >= wanted or len(more) < page_size:
            break
    return found


def _client() -> httpx2.AsyncClient:
    try:
        # An engine on this machine is not behind the company's proxy.
        return httpx2.AsyncClient(verify=tls_context(), mounts=dict.fromkeys(_LOCAL), timeout=None)
    except ConfigError as error:
        raise EngineError(str(error)) from error
    except (ValueError, ImportError) as error:
        raise EngineError(f"the environment's proxy cannot be used ({error})") from error


async def _exchange(
    client: httpx2.AsyncClient, question: Question
) -> tuple[int, httpx2.Headers, bytes]:
    body = bytearray()
    async with client.stream(
        question.method,
        question.url,
        params=question.params or None,
        headers={"Accept": "application/json", **question.headers},
        json=question.body,
    ) as answer:
        async for piece in answer.aiter_bytes():
            body += piece
            if len(body) > MAX_ANSWER_BYTES:
                raise EngineError("its answer is longer than 5 MB")
        return answer.status_code, answer.headers, bytes(body)


def _refusal(
    question: Question, status: int, headers: Mapping[str, str], body: bytes
) -> EngineError:
    said = _said(body, question.headers.values())
    wait_s = retry_after_s(headers)
    if wait_s is None and status == HTTPStatus.TOO_MANY_REQUESTS:
        # Brave's header: seconds until each window opens again, the shortest first.
        first = headers.get("x-ratelimit-reset", "").split(",")[0].strip()
        wait_s = float(first) if first.isdecimal() else None
    if status in question.refusals:
        reason = question.refusals[status]
    elif status == HTTPStatus.UNAUTHORIZED:
        reason = "its key was refused (HTTP 401)"
    elif status == HTTPStatus.TOO_MANY_REQUESTS:
        reason = "too many requests, or the quota is used up (HTTP 429)"
    elif 300 <= status < 400:
        reason = f"it redirects elsewhere (HTTP {status}); its address is not right"
    else:
        reason = f"HTTP {status}"
    passing = status in (408, 429) or status >= 500
    words = f"{reason}: {said}" if said else reason
    return EngineError(words, passing=passing, retry_after_s=wait_s, quotes=bool(said))


def _said(body: bytes, secrets: Any) -> str:
    """Return the engine's own words about an error, without keys."""
    try:
        words = _first_text(json.loads(body))
    except (ValueError, RecursionError):
        return ""  # an error page is of no use
    for secret in secrets:
        for part in {secret, secret.removeprefix("Bearer ")} - {""}:
            words = words.replace(part, "***")
    words = " ".join(words.split())
    return words[:_MAX_WORDS_CHARS]


def _first_text(value: Any, depth: int = 0) -> str:
    """Find the message in an error object; each engine nests it differently."""
    if depth > 4:
        return ""
    if isinstance(value, str):
        return value if depth else ""
    if isinstance(value, list):
        return _first_text(value[0], depth + 1) if value else ""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        for key in ("message", "detail", "error_msg", "error", "errors"):
            if fields.get(key):
                return _first_text(fields[key], depth + 1)
    return ""


def _object(body: bytes) -> Mapping[str, Any]:
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError) as error:
        if body.lstrip()[:1] == b"<":
            problem = "it answered with a web page (a captcha, a login, or the wrong address)"
        else:
            problem = "its answer broke off or is no JSON"
        raise EngineError(problem, passing=True) from error
    if not isinstance(answer, dict):
        raise EngineError("its answer is not in the documented form")
    return cast("dict[str, Any]", answer)
