from collections.abc import Callable
from datetime import UTC, datetime

import httpx
import openai
import pytest

from openmanus_graph.backends.models.failures import (
    FailureKind,
    ModelError,
    ReplyError,
    classify,
    retry_after_s,
)
from openmanus_graph.errors import ConfigError
from openmanus_graph.model_calls.sending import RetryLimits, with_retries


def status_error(status: int, headers: dict[str, str] | None = None, said: str = "no") -> Exception:
    request = httpx.Request("POST", "http://server.test/v1/chat/completions")
    response = httpx.Response(status, headers=headers, request=request)
    return openai.APIStatusError(said, response=response, body={"message": said})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # httpx2 mirrors httpx


class Attempts:
    """Fails in order, then answers; records pauses and notices."""

    def __init__(self, *errors: BaseException) -> None:
        self.errors = list(errors)
        self.made = 0
        self.pauses: list[float] = []
        self.notices: list[str] = []

    async def __call__(self) -> str:
        self.made += 1
        if self.errors:
            raise self.errors.pop(0)
        return "answer"

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)

    async def run(self, random: Callable[[], float] = lambda: 1.0, **options: int) -> str:
        return await with_retries(
            self,
            notice=self.notices.append,
            subject="openai:m",
            sleep=self.sleep,
            random=random,
            limits=RetryLimits(**options),
        )


async def test_passing_failures_are_retried_with_growing_pauses() -> None:
    attempts = Attempts(status_error(500), status_error(429), openai.APITimeoutError(None))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert await attempts.run() == "answer"
    assert attempts.pauses == [1, 2, 4]
    assert len(attempts.notices) == 3
    assert "openai:m answered with 500" in attempts.notices[0]
    assert "the next one follows after 2 s" in attempts.notices[1]
    assert "try again" not in attempts.notices[1]


@pytest.mark.parametrize(("random", "pauses"), [(0.0, [0.5, 1.0]), (0.5, [0.75, 1.5])])
async def test_the_jitter_spreads_over_the_later_half_of_the_pause(
    random: float, pauses: list[float]
) -> None:
    attempts = Attempts(status_error(500), status_error(500))
    await attempts.run(random=lambda: random)
    assert attempts.pauses == pauses


@pytest.mark.parametrize("wrong", [-1, "many", 1.5])
def test_a_wrong_number_of_retries_is_named(wrong: object) -> None:
    assert (RetryLimits.of({}).max_retries, RetryLimits.of({"max_retries": 0}).max_retries) == (
        5,
        0,
    )
    with pytest.raises(ConfigError, match="max_retries must be 0 or more"):
        RetryLimits.of({"max_retries": wrong})


def test_a_model_is_waited_for_less_if_another_one_is_asked_afterwards() -> None:
    assert RetryLimits.of({}, has_alternative=True) == RetryLimits(2, 20)
    assert RetryLimits.of({"max_retries": 4}, has_alternative=True) == RetryLimits(4, 20)


async def test_pauses_are_capped_at_a_minute() -> None:
    attempts = Attempts(*[status_error(503) for _ in range(8)])
    await attempts.run(max_retries=8)
    assert attempts.pauses[-1] == 60


async def test_the_attempts_end_with_a_model_error_that_counts_them() -> None:
    attempts = Attempts(*[status_error(502) for _ in range(9)])
    with pytest.raises(ModelError, match="6 attempts were made") as error:
        await attempts.run()
    assert (attempts.made, error.value.kind) == (6, "retry")


@pytest.mark.parametrize(
    ("status", "kind"), [(400, "bad_request"), (401, "auth"), (403, "auth"), (404, "not_found")]
)
async def test_what_cannot_pass_is_not_retried(status: int, kind: str) -> None:
    attempts = Attempts(status_error(status))
    with pytest.raises(ModelError) as error:
        await attempts.run()
    assert (attempts.made, attempts.notices, error.value.kind) == (1, [], kind)


async def test_an_empty_account_is_not_retried() -> None:
    attempts = Attempts(
        status_error(429, said="You exceeded your current quota (insufficient_quota)")
    )
    with pytest.raises(ModelError) as error:
        await attempts.run()
    assert (attempts.made, error.value.kind) == (1, "quota")


async def test_retry_after_is_a_lower_bound_of_the_pause() -> None:
    attempts = Attempts(status_error(429, {"retry-after": "20"}))
    await attempts.run(random=lambda: 0.5)
    assert attempts.pauses == [20.5]


async def test_a_pause_of_an_hour_is_not_waited_for() -> None:
    attempts = Attempts(status_error(429, {"retry-after": "3600"}))
    with pytest.raises(ModelError, match="asks to wait 60 minutes") as error:
        await attempts.run()
    assert (attempts.made, error.value.kind) == (1, "retry")


async def test_bugs_and_cancellation_pass_through() -> None:
    with pytest.raises(AttributeError):
        await Attempts(AttributeError("a bug")).run()
    with pytest.raises(KeyboardInterrupt):
        await Attempts(KeyboardInterrupt()).run()


@pytest.mark.parametrize(
    ("headers", "text", "seconds"),
    [
        ({"retry-after-ms": "1500", "retry-after": "9"}, "", 1.5),
        ({"retry-after": "7"}, "try again in 9s", 7),
        ({"retry-after": "Fri, 20 Nov 2026 12:00:30 GMT"}, "", 30),
        ({"retry-after": "Fri, 20 Nov 2026 11:00:00 GMT"}, "", 0),
        ({"retry-after": "Sat, 21 Nov 2026 11:00:00 GMT"}, "", 82800),
        ({"retry-after": "Mon, 30 Nov 2026 12:00:30 GMT"}, "", None),
        ({"retry-after": "soon"}, "", None),
        ({"retry-after": "inf"}, "", None),
        ({"retry-after": "nonsense, 99 Nov"}, "try again in 9s", None),
        ({}, "Rate limit reached. Please try again in 1m2.5s. Visit ...", 62.5),
        ({}, "Please try again in 250ms.", 0.25),
        ({}, "Try later.", None),
    ],
)
def test_reads_how_long_to_wait(headers: dict[str, str], text: str, seconds: float | None) -> None:
    now = datetime(2026, 11, 20, 12, 0, 0, tzinfo=UTC)
    assert retry_after_s(headers, text, now) == seconds


def test_a_date_is_read_against_the_servers_own_clock() -> None:
    headers = {
        "retry-after": "Fri, 20 Nov 2020 12:00:30 GMT",
        "date": "Fri, 20 Nov 2020 12:00:10 GMT",
    }
    assert retry_after_s(headers) == 20


WORDS: list[tuple[int, str, FailureKind]] = [
    (400, "This model's maximum context length is 8192 tokens.", "context_length"),
    (400, "prompt is too long: 210000 tokens > 200000 maximum", "context_length"),
    (400, "request (9000 tokens) exceeds the available context size", "context_length"),
    (400, "The input token count (1300000) exceeds the maximum number of tokens", "context_length"),
    (400, "Trying to keep the first 5000 tokens when context the overflows", "context_length"),
    (413, "Payload Too Large", "context_length"),
    (
        429,
        "Request too large for gpt-4o on tokens per min (TPM): Limit 1, Requested 2",
        "context_length",
    ),
    (400, "registry.ollama.ai/library/gemma:2b does not support tools", "no_tools"),
    (400, '"auto" tool choice requires --enable-auto-tool-choice', "no_tools"),
    (500, "tools param requires --jinja flag", "no_tools"),
    (404, "No endpoints found that support tool use.", "no_tools"),
    (400, "Function call is not supported for this model.", "no_tools"),
    (400, "Unrecognized request argument supplied: stream_options", "bad_request"),
    (400, "Your organization must be verified to stream this model.", "bad_request"),
    (400, "stream is not supported", "bad_request"),
    (400, "The response was filtered by the content management policy", "content_filter"),
    (403, "Your chosen model requires moderation and your input was flagged", "content_filter"),
    (400, "API key not valid. Please pass a valid API key.", "auth"),
    (402, "Insufficient Balance", "quota"),
    (400, "Your credit balance is too low to access the API", "quota"),
    (404, "The model `gpt-9` does not exist", "not_found"),
    (400, "model 'x' not found", "not_found"),
    (405, "Method Not Allowed", "not_found"),
    (422, "temperature must be at most 2", "bad_request"),
    (408, "", "retry"),
    (409, "", "retry"),
    (425, "", "retry"),
    (429, "Rate limit reached", "retry"),
    (529, "Overloaded", "retry"),
]


@pytest.mark.parametrize(("status", "said", "kind"), WORDS)
def test_knows_what_servers_mean(status: int, said: str, kind: FailureKind) -> None:
    failure = classify(status_error(status, said=said))
    assert failure is not None
    assert failure.kind == kind


class OverloadedError(Exception):
    """As other providers' clients raise them: with a status, in a module of their own."""

    status_code = 529


class BotoError(Exception):
    def __init__(self) -> None:
        super().__init__("ThrottlingException")
        self.response = {"ResponseMetadata": {"HTTPStatusCode": 429}}


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OverloadedError(), "retry"),
        (BotoError(), "retry"),
        (TimeoutError(), "retry"),
        (ConnectionResetError(), "retry"),
        (httpx.ReadError("cut"), "retry"),
        (httpx.UnsupportedProtocol("no http"), "not_found"),
        (ReplyError("no choices"), "retry"),
        (ReplyError("rate limited", status_code=429), "retry"),
        (ReplyError("bad key", status_code=401), "auth"),
    ],
)
def test_knows_errors_of_any_client(error: Exception, kind: FailureKind) -> None:
    failure = classify(error)
    assert failure is not None
    assert failure.kind == kind


@pytest.mark.parametrize("error", [TypeError("x"), KeyError("x"), FileNotFoundError("x")])
def test_a_bug_is_no_failure_of_the_provider(error: Exception) -> None:
    assert classify(error) is None


def test_the_sentence_says_what_failed_why_and_what_to_do() -> None:
    failure = classify(status_error(401, said="Incorrect API key provided"), "openai:gpt-5")
    assert failure is not None
    assert failure.sentence == (
        "openai:gpt-5 answered with 401 (key refused): Incorrect API key provided. "
        "Check the key, and that it may use this model."
    )
    failure = classify(status_error(400, said="image_url is only supported by certain models"))
    assert failure is not None
    assert failure.advice.startswith("If it sees none")


@pytest.mark.parametrize(
    ("said", "secret"),
    [
        ("Incorrect API key provided: sk-proj-abcdEFGH1234.", "abcdEFGH1234"),
        ("header Authorization: Bearer eyJhbGciOi.abc was wrong", "eyJhbGciOi"),
        ("cannot reach http://joe:hunter2@proxy.test", "hunter2"),
        ("GET /?key=AIzaSyA1234567890abcdefghijk", "AIzaSyA1234567890"),
        ("token 0123456789abcdef0123456789abcdef", "0123456789abcdef"),
    ],
)
def test_the_sentence_holds_no_secrets(said: str, secret: str) -> None:
    failure = classify(status_error(401, said=said))
    assert failure is not None
    assert secret not in failure.sentence
    assert "[redacted]" in failure.sentence


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        (httpx.ConnectError, "could not be reached"),
        (httpx.ConnectTimeout, "did not answer in time"),
    ],
)
def test_an_unreachable_models_sentence_names_its_address_without_secrets(
    kind: type[httpx.TransportError], what: str
) -> None:
    url = "https://joe:hunter2@server.test:8443/v1/chat/completions?key=abc12345"
    request = httpx.Request("POST", url)
    error = openai.APIConnectionError(request=request)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # httpx2 mirrors httpx
    error.__cause__ = kind("All connection attempts failed", request=request)
    failure = classify(error, "openai:m")
    assert failure is not None
    address = "https://server.test:8443/v1/chat/completions"
    assert failure.event == f"openai:m {what} at {address}: All connection attempts failed."


def test_an_unreachable_model_of_a_client_that_keeps_its_request_to_itself() -> None:
    failure = classify(httpx.ConnectError("refused"), "openai:m")
    assert failure is not None
    assert failure.event == "openai:m could not be reached: refused."
