"""Errors in OpenAI's form, which its clients turn into exceptions with our sentence."""

from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from typing_extensions import override

from openmanus_graph.errors import ConfigError
from openmanus_graph.interfaces.server.admission import Refused

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
