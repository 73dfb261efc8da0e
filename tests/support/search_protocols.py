"""What each search engine documents: requests it takes, and the form of its answers."""

import html
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

KEY = "test-key-0123456789abcdef"
CX = "cx-of-the-test"


@dataclass(frozen=True)
class Found:
    """A page in an engine's index."""

    title: str
    url: str
    snippet: str = ""


@dataclass(frozen=True)
class Asked:
    """One request; header names are in lower case."""

    engine: str
    method: str
    path: str
    headers: dict[str, str]
    params: dict[str, str]
    content: bytes

    @property
    def body(self) -> dict[str, Any]:
        """The JSON that was sent."""
        sent: dict[str, Any] = json.loads(self.content)
        return sent

    @property
    def form(self) -> dict[str, str]:
        """The form that was sent."""
        return dict(parse_qsl(self.content.decode(), keep_blank_values=True))


Refusal = tuple[int, dict[str, Any]]

_ENGINES = {
    ("GET", "/search"): "searxng",
    ("POST", "/search"): "tavily",
    ("GET", "/res/v1/web/search"): "brave",
    ("GET", "/customsearch/v1"): "google",
    ("POST", "/v2/ai_search/web_search"): "baidu",
    ("POST", "/html/"): "duckduckgo",
    ("GET", "/mojeek"): "mojeek",
}
_BRAVE_COUNTRIES = (
    "ALL AR AU AT BE BR CA CL CN DK FI FR DE GR HK IN ID IT JP KR MY MX NL NZ NO PL PT PH RU SA ZA "
    "ES SE CH TW TR GB US"
)
_BRAVE_LANGUAGES = (
    "ar eu bn bg ca zh-hans zh-hant hr cs da nl en en-gb et fi fr gl de el gu he hi hu is it jp kn "
    "ko lv lt ms ml mr nb pl pt-br pt-pt pa ro ru sr sk sl es sv ta te th tr uk vi"
)
_GOOGLE_LANGUAGES = (
    "ar bg ca cs da de el en es et fi fr hr hu id is it iw ja ko lt lv nl no pl pt ro ru sk sl sr "
    "sv tr zh-CN zh-TW"
)


def engine_of(method: str, path: str) -> str:
    """Tell the engine by where it is asked."""
    return _ENGINES.get((method, path), f"unknown: {method} {path}")


def refusal(request: Asked) -> Refusal | None:
    """Return status and error object if the real engine would refuse the request."""
    if request.engine.startswith("unknown"):
        return 404, {"message": request.engine}
    return _REFUSALS[request.engine](request)


def _tavily_refuses(request: Asked) -> Refusal | None:
    if request.headers.get("authorization") != f"Bearer {KEY}":
        return 401, {"detail": {"error": "Unauthorized: missing or invalid API key."}}
    body = request.body
    wrong = [
        not isinstance(body.get("query"), str) or len(body["query"]) > 400,
        not 0 <= body.get("max_results", 5) <= 20,
        body.get("search_depth", "basic") not in ("basic", "advanced", "fast", "ultra-fast"),
        body.get("topic", "general") not in ("general", "news", "finance"),
        "country" in body and not re.fullmatch(r"[a-z ]{4,}", body["country"]),
        "country" in body and body.get("topic", "general") != "general",
        set(body) - {"query", "max_results", "search_depth", "topic", "country"},
    ]
    return (400, {"detail": {"error": f"Invalid request: {body}"}}) if any(wrong) else None


def _brave_refuses(request: Asked) -> Refusal | None:
    params = request.params
    if request.headers.get("x-subscription-token") != KEY:
        error = {"code": "SUBSCRIPTION_TOKEN_INVALID", "detail": "The token is invalid."}
        return 422, {"type": "ErrorResponse", "error": {"status": 422, **error}}
    wrong = [
        not 0 < len(params.get("q", "")) <= 400,
        len(params.get("q", "").split()) > 50,
        not 1 <= int(params.get("count", 20)) <= 20,
        not 0 <= int(params.get("offset", 0)) <= 9,
        params.get("country", "US") not in _BRAVE_COUNTRIES.split(),
        params.get("search_lang", "en") not in _BRAVE_LANGUAGES.split(),
        params.get("text_decorations", "true") not in ("true", "false"),
    ]
    error = {"code": "VALIDATION", "detail": f"Unable to validate {params}"}
    return (422, {"type": "ErrorResponse", "error": error}) if any(wrong) else None


def _google_refuses(request: Asked) -> Refusal | None:
    params = request.params
    if request.headers.get("x-goog-api-key") != KEY:
        return 400, {"error": {"code": 400, "message": "API key not valid."}}
    start, number = int(params.get("start", 1)), int(params.get("num", 10))
    wrong = [
        not params.get("q"),
        params.get("cx") != CX,
        not 1 <= number <= 10,
        start < 1 or start + number > 101,
        not re.fullmatch(r"[a-z]{2}", params.get("gl", "us")),
        params.get("lr", "lang_en") not in [f"lang_{code}" for code in _GOOGLE_LANGUAGES.split()],
        "key" in params,  # would be logged
    ]
    error = {"code": 400, "message": f"Request contains an invalid argument: {params}"}
    return (400, {"error": error}) if any(wrong) else None


def _baidu_refuses(request: Asked) -> Refusal | None:
    if request.headers.get("authorization") != f"Bearer {KEY}":
        return 401, {"code": "invalid_api_key", "message": "Invalid API key", "request_id": "1"}
    body = request.body
    message = body["messages"][0]
    wrong = [
        len(body["messages"]) != 1 or message["role"] != "user",
        not 0 < len(message["content"]) <= 72,
        body.get("search_source") != "baidu_search_v2",
        not 1 <= body["resource_type_filter"][0]["top_k"] <= 50,
    ]
    return (400, {"code": "216003", "message": f"invalid: {body}"}) if any(wrong) else None


def _searxng_refuses(request: Asked) -> Refusal | None:
    params = request.params
    tag = re.fullmatch(r"[a-z]{2,3}(-[a-zA-Z]{2})?|all|auto", params.get("language", "all"))
    if not params.get("q") or tag is None or not params.get("pageno", "1").isdecimal():
        return 400, {"error": "invalid value for parameter"}
    return None if params.get("format") == "json" else (403, {})


_REFUSALS: dict[str, Callable[[Asked], Refusal | None]] = {
    "tavily": _tavily_refuses,
    "brave": _brave_refuses,
    "google": _google_refuses,
    "baidu": _baidu_refuses,
    "searxng": _searxng_refuses,
    "duckduckgo": lambda request: None if request.form.get("q") else (400, {}),
    "mojeek": lambda request: None if request.params.get("q") else (400, {}),
}


def answer(request: Asked, hits: Sequence[Found], raw: Sequence[Any]) -> tuple[str, bytes]:
    """Return content type and body of a good answer."""
    if request.engine in _PAGES:
        return "text/html", _PAGES[request.engine](hits).encode()
    wanted, skipped = _window(request)
    title, url, snippet = _FIELDS[request.engine]
    entries = [
        {title: hit.title, url: hit.url, snippet: hit.snippet, **_EXTRA[request.engine]}
        for hit in hits
    ]
    shown: list[Any] = [*entries, *raw][skipped : skipped + wanted]
    return "application/json", json.dumps(_wrapped(request, shown)).encode()


_FIELDS = {
    "tavily": ("title", "url", "content"),
    "brave": ("title", "url", "description"),
    "google": ("title", "link", "snippet"),
    "baidu": ("title", "url", "content"),
    "searxng": ("title", "url", "content"),
}
_EXTRA: dict[str, dict[str, Any]] = {
    "tavily": {"score": 0.9, "raw_content": None},
    "brave": {"type": "search_result", "language": "en", "family_friendly": True},
    "google": {"kind": "customsearch#result", "displayLink": "site.example"},
    "baidu": {"type": "web", "date": "2026-01-01 00:00:00", "web_anchor": "site", "icon": ""},
    "searxng": {"engine": "mojeek", "engines": ["mojeek"], "category": "general", "score": 1.0},
}


def _window(request: Asked) -> tuple[int, int]:
    """Return how many entries are asked for, and how many come before them."""
    params = request.params
    if request.engine == "tavily":
        return request.body.get("max_results", 5), 0
    if request.engine == "baidu":
        return request.body["resource_type_filter"][0]["top_k"], 0
    if request.engine == "google":
        return int(params.get("num", 10)), int(params.get("start", 1)) - 1
    if request.engine == "searxng":
        return 20, 20 * (int(params.get("pageno", 1)) - 1)
    count = int(params.get("count", 20))
    offset = int(params.get("offset", 0))
    return count, offset * count if request.engine == "brave" else offset


def _wrapped(request: Asked, entries: list[Any]) -> dict[str, Any]:
    some = bool(entries)
    if request.engine == "tavily":
        return {"query": request.body["query"], "answer": None, "images": [], "results": entries}
    if request.engine == "brave":
        web = {"web": {"type": "search", "results": entries}} if some else {}
        return {"type": "search", "query": {"original": request.params["q"]}, **web}
    if request.engine == "google":
        total = {"searchInformation": {"totalResults": str(len(entries))}}
        return {"kind": "customsearch#search", **total, **({"items": entries} if some else {})}
    if request.engine == "baidu":
        return {"request_id": "1", "references": entries}
    return {"query": request.params["q"], "number_of_results": 0, "results": entries,
            "answers": [], "suggestions": [], "unresponsive_engines": []}  # fmt: skip


def _duckduckgo_page(hits: Sequence[Found]) -> str:
    rows = "".join(
        f'<div class="result__body"><h2><a href="{html.escape(hit.url)}">{hit.title}</a></h2>'
        f'<a class="result__snippet" href="{html.escape(hit.url)}">{hit.snippet}</a></div>'
        for hit in hits
    )
    return f"<html><body>{rows}</body></html>"


def _mojeek_page(hits: Sequence[Found]) -> str:
    rows = "".join(
        f'<li><h2><a href="{html.escape(hit.url)}">{hit.title}</a></h2>'
        f'<p class="s">{hit.snippet}</p></li>'
        for hit in hits
    )
    return f'<html><body><ul class="results-standard">{rows}</ul></body></html>'


_PAGES = {"duckduckgo": _duckduckgo_page, "mojeek": _mojeek_page}
