"""Routes about the files of a thread's workspace: the list, single files, and uploads."""

import asyncio
import datetime
import itertools
import mimetypes
import os
from collections.abc import AsyncGenerator
from typing import Any, BinaryIO
from urllib.parse import quote

from fastapi import APIRouter, Query, Request
from fastapi.responses import StreamingResponse

from openmanus_graph.errors import ToolError
from openmanus_graph.interfaces.server.admission import Refused
from openmanus_graph.interfaces.server.store import store
from openmanus_graph.interfaces.server.threads import require_thread
from openmanus_graph.interfaces.server.token import VALID_S, read_ticket, write_ticket
from openmanus_graph.runtime.artifacts import files_in
from openmanus_graph.runtime.workspace import find, incoming_file, opened_file

MAX_LISTED = 2000
MAX_UPLOAD_BYTES = 1 << 30
CHUNK = 1 << 18
VIEWS = {"text/markdown": "markdown", "text/html": "html", "application/pdf": "pdf"}
VIEWED = ("image", "audio", "video")
TEXTS = ("application/json", "application/xml", "application/x-sh", "application/toml",
         "application/javascript", "application/x-yaml", "application/yaml")  # fmt: skip
FRAME_POLICY = (
    "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; "
    "style-src 'unsafe-inline'; img-src data: blob:; font-src data:; frame-ancestors 'self'"
)
"""A file may be a malicious web page: its scripts run without an origin, cannot reach the network
and cannot read the page around it. Interactive charts need scripts."""
router = APIRouter()
api = APIRouter(prefix="/app/api/threads/{thread}")


@api.get("/files")
async def list_files(thread: str) -> dict[str, Any]:
    """List the files of a thread's workspace by path."""
    await require_thread(thread)
    workspace = await store().workspace(thread)

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
    await require_thread(thread)
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and int(announced) > MAX_UPLOAD_BYTES:
        raise _too_large()
    workspace = await store().workspace(thread)
    await asyncio.to_thread(workspace.prepare)
    incoming = incoming_file(workspace, path, replace=replace)
    try:
        file = await asyncio.to_thread(incoming.__enter__)
        try:
            size = await _write_body(request, file)
        except BaseException as error:
            await asyncio.shield(asyncio.to_thread(_discard, incoming, error))
            raise
        await asyncio.to_thread(incoming.__exit__, None, None, None)
    except ToolError as error:
        exists = isinstance(error.__cause__, FileExistsError)
        advice = " Add ?replace=1 to replace it." if exists else ""
        raise Refused(409 if exists else 400, f"{error}{advice}") from error
    found = await asyncio.to_thread(find, workspace, path)
    name = found.path if found else path
    return file_json(thread, name, size, int(datetime.datetime.now().timestamp() * 1e9))


@router.get("/app/files/{ticket}/{path:path}")
async def send_file(
    ticket: str, path: str, request: Request, download: bool = Query(False)
) -> StreamingResponse:
    """Send a file that a ticket was written for: into a frame or an image, else as a download."""
    thread = read_ticket(ticket, path)
    if thread is None:
        raise Refused(403, "This link has expired. Open the list of files again.")
    opening = opened_file(await store().workspace(thread), path)
    try:
        file = await asyncio.to_thread(opening.__enter__)
    except ToolError as error:
        raise Refused(404, str(error)) from error
    size = os.fstat(file.fileno()).st_size
    alone = request.headers.get("sec-fetch-dest", "") in ("document", "")
    name = quote(path.rpartition("/")[2], safe="")
    kind = "attachment" if download or (alone and "sec-fetch-dest" in request.headers) else "inline"
    headers = {
        "Content-Length": str(size),
        "Content-Disposition": f"{kind}; filename*=UTF-8''{name}",
        "Content-Security-Policy": FRAME_POLICY,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Cache-Control": f"private, max-age={VALID_S // 144}",
    }
    media_type = mimetypes.guess_type(path)[0] or "application/octet-stream"
    if media_type.startswith("text/"):
        media_type += "; charset=utf-8"
    return StreamingResponse(
        _stream_file(opening, file, size), media_type=media_type, headers=headers
    )


def file_json(thread: str, path: str, size: int, modified_ns: int) -> dict[str, Any]:
    """Return a file in the form that the page reads."""
    media_type = mimetypes.guess_type(path)[0] or "application/octet-stream"
    if path.endswith((".md", ".markdown")):
        media_type = "text/markdown"
    url = f"/app/files/{write_ticket(thread, path)}/{quote(path)}"
    modified = datetime.datetime.fromtimestamp(modified_ns / 1e9, tz=datetime.UTC)
    return {
        "path": path,
        "size": size,
        "modified": modified.isoformat(timespec="seconds"),
        "media_type": media_type,
        "view": view_of(media_type),
        "url": url,
        "download": f"{url}?download=1",
    }


def view_of(media_type: str) -> str:
    """Say how the page can show a file."""
    family = media_type.partition("/")[0]
    if media_type in VIEWS or family in VIEWED:
        return VIEWS.get(media_type, family)
    return "text" if family == "text" or media_type in TEXTS else "none"


async def _write_body(request: Request, file: BinaryIO) -> int:
    size, buffered = 0, bytearray()
    async for chunk in request.stream():
        size += len(chunk)
        if size > MAX_UPLOAD_BYTES:
            raise _too_large()
        buffered += chunk
        if len(buffered) >= CHUNK:
            await asyncio.to_thread(file.write, bytes(buffered))
            buffered.clear()
    await asyncio.to_thread(file.write, bytes(buffered))
    return size


async def _stream_file(opening: Any, file: BinaryIO, size: int) -> AsyncGenerator[bytes]:
    """Read a file up to the announced size; a file truncated meanwhile ends the connection."""
    try:
        while size > 0 and (chunk := await asyncio.to_thread(file.read, min(CHUNK, size))):
            size -= len(chunk)
            yield chunk
    finally:
        await asyncio.shield(asyncio.to_thread(opening.__exit__, None, None, None))


def _discard(incoming: Any, error: BaseException) -> None:
    import contextlib

    with contextlib.suppress(type(error)):
        incoming.__exit__(type(error), error, error.__traceback__)


def _too_large() -> Refused:
    return Refused(413, f"The file is larger than {MAX_UPLOAD_BYTES >> 20} MB.")
