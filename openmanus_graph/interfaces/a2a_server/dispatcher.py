"""The SDK's JSON-RPC endpoint, as strict as the protocol where the SDK is laxer."""

from typing import Any, cast

from a2a.compat.v0_3.jsonrpc_adapter import JSONRPC03Adapter
from a2a.server.context import ServerCallContext
from a2a.server.request_handlers.request_handler import RequestHandler
from a2a.server.request_handlers.response_helpers import build_error_response
from a2a.server.routes.common import DefaultServerCallContextBuilder
from a2a.server.routes.jsonrpc_dispatcher import JsonRpcDispatcher
from a2a.types import TaskState
from a2a.utils.constants import VERSION_HEADER
from a2a.utils.errors import A2AError, InvalidParamsError, VersionNotSupportedError
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from typing_extensions import override

from openmanus_graph.interfaces.a2a_server.card import PROTOCOLS


class Dispatcher(JsonRpcDispatcher):
    """Refuses what the SDK lets pass, and hands it the rest.

    * A version other than the card's: the SDK takes 1.1 for 1.0 (A2A 1.0, 3.6.2).
    * A task state that does not exist: the SDK lists all tasks (3.1.4, 3.3.2).
    * Params of version 0.3 that do not fit: the SDK calls the whole request invalid (0.3, 8.1).
    """

    def __init__(self, handler: RequestHandler) -> None:
        super().__init__(handler, _ContextBuilder(), enable_v0_3_compat=True)

    @override
    async def handle_requests(self, request: Request) -> Response:
        try:
            body: Any = await request.json()
        except (ValueError, RecursionError):
            body = None  # the SDK says what is wrong with it
        if isinstance(body, dict):
            request_body = cast("dict[str, Any]", body)
            if error := _refusal(_version(request), request_body):
                return JSONResponse(build_error_response(request_body.get("id"), error))
        return await super().handle_requests(request)


class _ContextBuilder(DefaultServerCallContextBuilder):
    """Takes the version from the query as well: clients may send it there (3.6.1)."""

    @override
    def build(self, request: Request) -> ServerCallContext:
        context = super().build(request)
        context.state["headers"][VERSION_HEADER] = _version(request)
        return context


def _version(request: Request) -> str:
    """Return the protocol's version that a client speaks; empty if it says none."""
    return request.headers.get(VERSION_HEADER) or request.query_params.get(VERSION_HEADER, "")


def _refusal(version: str, body: dict[str, Any]) -> A2AError | None:
    """Say why a request is refused that the SDK would let pass. None: it may judge by itself."""
    number = body.get("id")
    if body.get("jsonrpc") != "2.0" or isinstance(number, bool) or not _is_id(number):
        return None
    if version and ".".join(version.split(".")[:2]) not in PROTOCOLS:
        return VersionNotSupportedError(
            f"A2A {version} is not spoken here. Send {VERSION_HEADER}: {' or '.join(PROTOCOLS)}."
        )
    method, params = body.get("method"), body.get("params")
    if method == "ListTasks" and isinstance(params, dict):
        status = cast("dict[str, Any]", params).get("status")
        if isinstance(status, str) and status not in TaskState.keys():  # noqa: SIM118  # no dict
            return InvalidParamsError(
                f"There is no task state {status!r}. There are {', '.join(TaskState.keys())}."
            )
    model: Any = JSONRPC03Adapter.METHOD_TO_MODEL.get(str(method))  # typed as a metaclass there
    if model is not None:
        try:
            model.model_validate(body)
        except ValidationError as error:
            return InvalidParamsError(_faults(error))
    return None


def _is_id(value: object) -> bool:
    return value is None or isinstance(value, str | int)


def _faults(error: ValidationError) -> str:
    """Name the fields that do not fit, without repeating what stands in them."""
    faults = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()]
    return f"The params do not fit. {'; '.join(faults[:5])}."
