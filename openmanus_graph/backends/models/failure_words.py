"""What servers write when they refuse, and what it means."""

import re
from typing import Literal

FailureKind = Literal[
    "retry",
    "context_length",
    "no_tools",
    "no_stream_options",
    "no_streaming",
    "content_filter",
    "withheld",
    "page",
    "quota",
    "auth",
    "not_found",
    "bad_request",
]

_PATTERNS: tuple[tuple[FailureKind, str], ...] = (
    ("quota", r"insufficient[_ ](quota|balance|credit|funds)|exceeded your current quota"
              r"|credit balance is too low|billing_hard_limit|payment required"
              r"|requires more credits"),
    ("no_tools",
     r"(does|do) not support (\w+ )?(tools?|functions?)\b"
     r"|(tool|function)s?([ _-](calls?|calling|choice|use))? (is|are) (not|un) ?(supported|enabled)"
     r"|tool choice requires --enable-auto-tool-choice|tools param requires --jinja"
     r"|no endpoints found that support tool use"
     r"|(`|'|\")?tools(`|'|\")? (is|are) not (supported|available|permitted)"),
    ("no_stream_options", r"stream_options|include_usage"),
    ("no_streaming", r"(does not|doesn't) support stream|'stream' does not support"
                     r"|stream(ing)?['\"]? (is |are )?not supported|must be verified to stream"),
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
_COMPILED: tuple[tuple[FailureKind, re.Pattern[str]], ...] = tuple(
    (kind, re.compile(pattern, re.IGNORECASE)) for kind, pattern in _PATTERNS
)

_BY_STATUS: dict[int, FailureKind] = {
    401: "auth", 402: "quota", 403: "auth", 404: "not_found", 405: "not_found",
    413: "context_length", 408: "retry", 409: "retry", 425: "retry", 429: "retry",
    501: "bad_request",
}  # fmt: skip


def kind_by_words(status: int | None, text: str) -> FailureKind | None:
    """Read from a server's words what it means, where its status allows that."""
    for kind, pattern in _COMPILED:
        if pattern.search(text) and _plausible(kind, status, text):
            return kind
    return None


def _plausible(kind: FailureKind, status: int | None, text: str) -> bool:
    """Whether a status may mean what the words say."""
    if status == 429:
        # "Request too large ... tokens per minute" never fits, however long one waits.
        return kind == "quota" or (kind == "context_length" and "too large" in text.lower())
    if status == 401:
        return kind in ("auth", "quota")
    if status is not None and status >= 500:
        return kind in ("no_tools", "context_length", "no_streaming")
    return True


def kind_by_status(status: int | None) -> FailureKind | None:
    """Read from a status alone what it means."""
    if status is None:
        return None
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    if status >= 500:
        return "retry"
    return "bad_request" if status >= 400 else "retry"


_SECRETS = re.compile(
    r"(?i)\b(?:sk|pk|gsk|xai|key|nvapi|hf|lsv2|AIza)[-_][\w*.-]{6,}|\bAIza[\w-]{20,}"
    r"|(?<=bearer )\S+|(?<=://)[^/\s:@]+:[^/\s@]+(?=@)"
    r"|(?<=api_key=)[^&\s\"']+|(?<=key=)[^&\s\"']{8,}|\b[0-9a-f]{32,}\b"
)


def redact(text: str) -> str:
    """Blank out what looks like a key, a token or a password."""
    return _SECRETS.sub("[redacted]", text)
