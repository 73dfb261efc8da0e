"""How a request over HTTP fails, whatever library sends it."""

from collections.abc import Mapping


class StatusError(Exception):
    """A request that a server refused.

    Attributes:
        status_code: 300 to 599; below 400 the request was sent on elsewhere, and lost its body.
        body: The answer's JSON, or its text.
        headers: The answer's, their names in small letters.
    """

    def __init__(self, status_code: int, body: object, headers: Mapping[str, str]) -> None:
        super().__init__(body if isinstance(body, str) else "")
        self.status_code = status_code
        self.body = body
        self.headers = headers


class TransportError(Exception):
    """A server that could not be reached, did not answer in time, or broke its answer off."""

    def __init__(self, message: str, url: str) -> None:
        super().__init__(message)
        self.url = url
