"""Routes about the files of a thread's workspace: the list, single files, and uploads."""

import asyncio
import base64
import contextlib
import datetime
import hashlib
import hmac
import itertools
import json
import mimetypes
import os
import time
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, BinaryIO, TypeVar
from urllib.parse import quote

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response, StreamingResponse

from openmanus_graph.backends.charts.report import digest_of, is_own_page
from openmanus_graph.backends.files.child import run_in_child
from openmanus_graph.backends.persistence.usage import add_file, room_for_files
from openmanus_graph.errors import ToolError
from openmanus_graph.interfaces.server import store
from openmanus_graph.interfaces.server.file_views import HTML, SHOWN, still_html, view_of
from openmanus_graph.interfaces.server.guard import server_token
from openmanus_graph.interfaces.service.accounts import Refused, accounts
from openmanus_graph.runtime.artifacts import files_in
from openmanus_graph.runtime.workspace import Workspace, find, incoming_file, opened_file

MAX_SHOWN = 32 << 20
"""Bytes of an HTML file that is shown; a larger one is only downloaded."""
_SHARED = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data: blob:; font-src data:; "
    "form-action 'none'; base-uri 'none'; frame-ancestors 'self'"
)
STILL_POLICY = f"sandbox; {_SHARED}"
"""For everything: no scripts, no network, no forms, no origin."""
SCRIPTS_POLICY = (
    f"sandbox allow-scripts; {_SHARED}; script-src 'unsafe-inline' 'unsafe-eval'; media-src data:"
)


def shown_html(workspace: Workspace, content: bytes, allowed: str | None) -> tuple[bytes, str]:
    """Return what is sent of an HTML file, and its policy. Blocks.

    `allowed` is the digest of the file whose scripts the user allowed.
    """
    digest = digest_of(content)
    if digest == allowed or is_own_page(workspace, digest):
        return content, SCRIPTS_POLICY
    return still_html(content), STILL_POLICY


VALID_S = 12 * 3600
"""Seconds for which a ticket is valid."""
_SIGNATURE_BYTES = 32


Ticket = tuple[str, str | None]
"""The thread of a ticket's file, and the file's digest if the user allowed its scripts."""


def write_ticket(
    thread: str, path: str, scripts: str | None = None, *, now: float | None = None
) -> str:
    """Return a ticket for one file of one thread. `scripts` as in `Ticket`."""
    until = int((time.time() if now is None else now) + VALID_S)
    claim = json.dumps([thread, until, scripts]).encode()
    return base64.urlsafe_b64encode(_signature(claim, path) + claim).decode().rstrip("=")


def read_ticket(ticket: str, path: str, *, now: float | None = None) -> Ticket | None:
    """Return what a ticket allows; None if it is not valid for this path or time."""
    try:
        raw = base64.urlsafe_b64decode(ticket + "=" * (-len(ticket) % 4))
        signature, claim = raw[:_SIGNATURE_BYTES], raw[_SIGNATURE_BYTES:]
    except ValueError:
        return None
    if not hmac.compare_digest(signature, _signature(claim, path)):
        return None
    thread, until, scripts = json.loads(claim)
    return (thread, scripts) if until > (time.time() if now is None else now) else None


def _signature(claim: bytes, path: str) -> bytes:
    given = claim + b"\0" + path.encode("utf-8", "surrogatepass")
    key = hashlib.sha256(f"ticket {server_token()}".encode()).digest()  # changes with the token
    return hmac.new(key, given, hashlib.sha256).digest()


MAX_LISTED = 2000
MAX_UPLOAD_BYTES = 1 << 30
CHUNK = 1 << 18
SCRIPTABLE = ("image/svg+xml",)
_UPLOADING = ThreadPoolExecutor(8, thread_name_prefix="upload")
T = TypeVar("T")
router = APIRouter()
api = APIRouter(prefix="/app/api/threads/{thread}")


@api.get("/files")
async def list_files(thread: str) -> dict[str, Any]:
    await store.require_thread(thread)
    workspace = await store.current().workspace(thread)
    files = await asyncio.to_thread(
        lambda: sorted(itertools.islice(files_in(workspace), MAX_LISTED + 1))
    )
    return {
        "workspace": str(workspace.root),
        "files": [file_json(thread, path, *stamp) for path, stamp in files[:MAX_LISTED]],
        "truncated": len(files) > MAX_LISTED,
    }


@api.put("/files/{path:path}", status_code=201)
async def upload_file(
    thread: str, path: str, request: Request, replace: bool = Query(False)
) -> dict[str, Any]:
    """Write the request's body to a file of the workspace, atomically."""
    await store.require_thread(thread)
    announced = request.headers.get("content-length", "")
    database = store.current().threads.database
    room = min(MAX_UPLOAD_BYTES, await asyncio.to_thread(room_for_files, database, thread))
    if announced.isdigit() and int(announced) > room:
        raise _too_large(room)
    workspace = await store.current().workspace(thread)
    incoming = incoming_file(workspace, path, replace=replace)
    try:
        await for_uploads(workspace.prepare)
        file = await for_uploads(incoming.__enter__)
        try:
            size = await _write_body(request, file, room)
        except BaseException as error:
            await asyncio.shield(for_uploads(_discard, incoming, error))
            raise
        await for_uploads(incoming.__exit__, None, None, None)
        await asyncio.to_thread(add_file, database, thread, size)
    except ToolError as error:
        exists = isinstance(error.__cause__, FileExistsError)
        advice = " Add ?replace=1 to replace it." if exists else ""
        raise Refused(409 if exists else 400, f"{error}{advice}") from error
    try:
        found = await asyncio.to_thread(find, workspace, path)
    except (ToolError, OSError):  # a program has replaced it meanwhile
        found = None
    name = found.path if found else path
    return file_json(thread, name, size, int(datetime.datetime.now().timestamp() * 1e9))


@api.post("/scripts/{path:path}")
async def allow_scripts(thread: str, path: str) -> dict[str, str]:
    """Return a link that shows an HTML file with its scripts, until the file changes.

    The page requests it when the user has read what scripts can do, and wants them to run.
    """
    await store.require_thread(thread)
    opened = await _opened(await store.current().workspace(thread), path)
    content = await asyncio.to_thread(_read_shown, *opened)
    return {"url": file_url(thread, path, digest_of(content))}


@router.head("/app/files/{ticket}/{path:path}", include_in_schema=False)
@router.get("/app/files/{ticket}/{path:path}")
async def send_file(
    ticket: str,
    path: str,
    request: Request,
    download: bool = Query(False),
    page: int | None = Query(None, ge=1),
) -> Response:
    """Send the file of a ticket: into a frame or an image, else as a download; a PDF's `page`."""
    found = read_ticket(ticket, path)
    if found is None:
        raise Refused(403, "This link has expired. Open the list of files again.")
    thread, scripts = found
    if await asyncio.to_thread(lambda: accounts().is_of_removed(thread)):
        raise Refused(403, "The user of this link was removed.")
    workspace = await store.current().workspace(thread)
    file, opening = await _opened(workspace, path)
    if page is not None:
        return await _drawn_page(file, opening, page)
    size = os.fstat(file.fileno()).st_size
    media_type = mimetypes.guess_type(path)[0] or "application/octet-stream"
    is_page = media_type == HTML and size <= MAX_SHOWN and not download
    shown = is_page or (media_type.split("/")[0] in SHOWN and media_type not in SCRIPTABLE)
    alone = request.headers.get("sec-fetch-dest") == "document"
    name = quote(path.rpartition("/")[2], safe="")
    headers = {
        "Content-Disposition": f"{'inline' if shown and not (download or alone) else 'attachment'}"
        f"; filename*=UTF-8''{name}",
        "Content-Security-Policy": STILL_POLICY,
        "X-Content-Type-Options": "nosniff",
        "X-DNS-Prefetch-Control": "off",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Cache-Control": f"private, max-age={VALID_S // 144}",
    }
    if media_type.startswith("text/"):
        media_type += "; charset=utf-8"
    if is_page:
        content = await asyncio.to_thread(_read_shown, file, opening)
        content, policy = await asyncio.to_thread(shown_html, workspace, content, scripts)
        headers["Content-Security-Policy"] = policy
        return Response(content, headers=headers, media_type=media_type)
    headers["Content-Length"] = str(size)
    return StreamingResponse(_stream(file, opening, size), media_type=media_type, headers=headers)


async def _opened(workspace: Workspace, path: str) -> tuple[BinaryIO, contextlib.ExitStack]:
    opening = contextlib.ExitStack()
    try:
        file = await asyncio.to_thread(opening.enter_context, opened_file(workspace, path))
    except ToolError as error:
        raise Refused(404, str(error)) from error
    return file, opening


async def _drawn_page(file: BinaryIO, opening: contextlib.ExitStack, page: int) -> Response:
    entry = "openmanus_graph.backends.files.pdf:draw_page"  # a browser's viewer would follow links

    def draw() -> Any:  # the answer of a child
        with opening:
            return run_in_child(entry, file, {"page": page}, what="The PDF parser")

    try:
        drawn = await asyncio.to_thread(draw)
    except ToolError as error:
        raise Refused(422, str(error)) from error
    headers = {"X-Pages": str(drawn["pages"]), "Cache-Control": "no-store"}
    return Response(base64.b64decode(drawn["picture"]), headers=headers, media_type="image/jpeg")


def _read_shown(file: BinaryIO, opening: contextlib.ExitStack) -> bytes:
    """Read as much as can be shown, and close the file. Blocks."""
    with opening:
        return file.read(MAX_SHOWN)


async def _stream(
    file: BinaryIO, opening: contextlib.ExitStack, size: int
) -> AsyncGenerator[bytes]:
    """Read a file up to the announced size. If it was truncated meanwhile, the connection ends."""
    try:
        while size > 0 and (chunk := await asyncio.to_thread(file.read, min(CHUNK, size))):
            size -= len(chunk)
            yield chunk
    finally:
        await asyncio.shield(asyncio.to_thread(opening.close))


def file_json(thread: str, path: str, size: int, modified_ns: int) -> dict[str, Any]:
    media_type, view = view_of(path)
    url = file_url(thread, path)
    modified = datetime.datetime.fromtimestamp(modified_ns / 1e9, tz=datetime.UTC)
    return {
        "path": path,
        "size": size,
        "modified": modified.isoformat(timespec="seconds"),
        "media_type": media_type,
        "view": view,
        "url": url,
        "download": f"{url}?download=1",
        "scripts": f"/threads/{quote(thread, safe='')}/scripts/{quote(path)}",
    }


def file_url(thread: str, path: str, scripts: str | None = None) -> str:
    return f"/app/files/{write_ticket(thread, path, scripts)}/{quote(path)}"


async def _write_body(request: Request, file: BinaryIO, room: float) -> int:
    size, buffered = 0, bytearray()
    async for chunk in request.stream():
        size += len(chunk)
        if size > room:
            raise _too_large(room)
        buffered += chunk
        if len(buffered) >= CHUNK:
            await for_uploads(file.write, bytes(buffered))
            buffered.clear()
    await for_uploads(file.write, bytes(buffered))
    return size


def for_uploads(call: Callable[..., T], *args: Any) -> "asyncio.Future[T]":
    """Call what may block in threads for uploads: other work never waits for a disk."""
    return asyncio.get_running_loop().run_in_executor(_UPLOADING, call, *args)


def _discard(incoming: Any, error: BaseException) -> None:
    with contextlib.suppress(type(error)):
        incoming.__exit__(type(error), error, error.__traceback__)


def _too_large(room: float) -> Refused:
    left = " that your quota for files has left" if room < MAX_UPLOAD_BYTES else ""
    return Refused(413, f"The file is larger than the {room / (1 << 20):.10g} MB{left}.")
