"""Turns responses into text for the model: pages, documents, data, or a description."""

import asyncio
import io
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Literal
from urllib.parse import unquote, urlsplit

from openmanus_graph.backends.files import office
from openmanus_graph.backends.files.documents import read_to_outputs
from openmanus_graph.backends.files.file_content import binary_kind, document_kind
from openmanus_graph.backends.files.text_file import Lines, detect_encoding, printable
from openmanus_graph.backends.web.client import Page, fetch, is_text
from openmanus_graph.backends.web.guard import Guard
from openmanus_graph.backends.web.own_pages import OwnPages
from openmanus_graph.backends.web.page_text import Chunk, PageText, chunks, page_text
from openmanus_graph.errors import ToolError, TrustedToolError
from openmanus_graph.runtime import output
from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.workspace import Workspace, opened_file
from openmanus_graph.safety.open_beneath import size_text
from openmanus_graph.state.tool_traits import Observation

HTML = ("text/html", "application/xhtml+xml")
_DOCUMENTS = ("pdf", "ipynb", "mail", "mbox", "msg", *office.KINDS)
_OUTLINE_ROWS = 20
_HEADING_CHARS = 60
_SAMPLE_BYTES = 64 * 1024
HEADER_CHARS = 500  # of an observation, in addition to the text that was read
_ERROR_PAGE_CHARS = 1500
_FEW_WORDS = 20
_FEW_CHARS = 200


@dataclass(frozen=True)
class Reading:
    kind: Literal["page", "text", "document", "file"]
    text: str
    title: str = ""
    page: PageText | None = None  # the converted page, if it is HTML
    kept: str = ""  # the path of a document or file that was kept
    images: tuple[str, ...] = ()  # of pages without text, for models that see


async def fetched(session: Session, url: str) -> Observation:
    page = await _get(session, url)
    whole = session.max_observation_chars - HEADER_CHARS
    max_chars = whole if page.status < 400 else _ERROR_PAGE_CHARS
    reading = await read_page(page, session.workspace, max_chars=max_chars)
    text = await asyncio.to_thread(fitted, reading.text, max_chars, session.workspace)
    return Observation(f"{_header(page, reading)}\n\n{text}", reading.images, page.status >= 400)


async def _get(session: Session, url: str) -> Page:
    downloads = session.settings.browser.max_download_mb << 20
    return await fetch(url, guard_for(session, url), download_limit_bytes=downloads)


def guard_for(session: Session, url: str) -> Guard:
    """Return the guard for an address: another one for pages that the agent made."""
    guard = Guard.of(session.settings)
    return replace(guard, own=OwnPages.of(session)) if guard.is_own(url) else guard


async def page_text_of(session: Session, url: str, max_chars: int) -> str:
    """Fetch a page, uncut, or a document; return its text. ToolError says why it was not read."""
    page = await _get(session, url)
    if page.status >= 400:
        raise TrustedToolError(f"Nothing was read: the server answered {page.status}.")
    reading = await read_page(page, session.workspace, max_chars=max_chars)
    return f"{reading.title}\n\n{reading.text}"


def _header(page: Page, reading: Reading) -> str:
    moved = f" (redirected from {page.requested})" if page.url != page.requested else ""
    rows = [f"{page.url}{moved}"]
    if page.status != 200:
        rows.append(f"HTTP {page.reason}")
    if reading.title:
        rows.append(f"Title: {reading.title}")
    # Some scripts write no blanks between words.
    bare = len(reading.text.split()) < _FEW_WORDS and len(reading.text) < _FEW_CHARS
    if reading.page is not None and page.status < 400 and bare:
        rows.append("(There is hardly any text: scripts may make it. browser_use or crawl4ai "
                    "show it then.)")  # fmt: skip
    return "\n".join(rows)


async def read_page(
    page: Page,
    workspace: Workspace,
    *,
    word_count_threshold: int = 0,
    max_chars: int = output.MIN_OBSERVATION_CHARS,
) -> Reading:
    """Turn a response into text. ToolError if it is damaged.

    Documents and other files are kept in the workspace's outputs for other tools. `max_chars` is
    for a document's text; pages are not cut.
    """
    if page.media_type in HTML:
        return await _read_html(page, word_count_threshold)
    suffix, head = PurePosixPath(_file_name(page)).suffix.lower(), page.body[:_SAMPLE_BYTES]
    kind = await asyncio.to_thread(document_kind, io.BytesIO(page.body), head, suffix)
    if kind == "html" and not is_text(page.media_type):
        return await _read_html(page, word_count_threshold)
    if kind in _DOCUMENTS:
        return await asyncio.to_thread(_document, page, kind, workspace, max_chars)
    return await asyncio.to_thread(_text_or_file, page, workspace)


async def _read_html(page: Page, word_count_threshold: int) -> Reading:
    found = await page_text(
        page.body, page.url, charset=page.charset, word_count_threshold=word_count_threshold
    )
    return Reading("page", printable(found.markdown), found.title, found)


def fitted(text: str, max_chars: int, workspace: Workspace) -> str:
    """Return a text, or its beginning with an outline of the rest. Blocks when it is long."""
    if len(text) <= output.with_overrun(max_chars):
        return text
    kept = workspace.keep(text.encode("utf-8", "replace"), ".md")
    outline = _outline(chunks(text), max_chars // 4)
    head = text[: max(max_chars - len(outline) - output.MARK_CHARS, max_chars // 2)]
    head = head[: head.rfind("\n") + 1 or len(head)]
    lines = output.line_count(text)
    mark = output.left_out(head.count("\n") + 1, lines, lines, len(text) - len(head), kept)
    end = head.rstrip("\n")
    return f"{end}\n\n[... {mark} ...]\n[The sections of the whole, by line:\n{outline}]"


def _outline(parts: list[Chunk], max_chars: int) -> str:
    """Return the sections with their line numbers, as many as fit."""
    rows: list[str] = []
    for number, part in enumerate(parts):
        heading = part.heading[-_HEADING_CHARS:] or part.text.strip()[:_HEADING_CHARS]
        heading = " ".join(heading.split())
        rows.append(f"{part.first_line}-{part.last_line}: {heading} ({len(part.text)} characters)")
        full = sum(map(len, rows)) > max_chars or len(rows) == _OUTLINE_ROWS
        if full and number + 1 < len(parts):
            rows.append(f"and {len(parts) - number - 1} more sections")
            break
    return "\n".join(rows)


def _file_name(page: Page) -> str:
    return page.filename or PurePosixPath(unquote(urlsplit(page.url).path)).name


def _document(page: Page, kind: str, workspace: Workspace, max_chars: int) -> Reading:
    kept = workspace.keep(page.body, f".{'eml' if kind == 'mail' else kind}")
    with opened_file(workspace, str(kept)) as file:
        text, images = read_to_outputs(workspace, file, kind, None, Lines(), max_chars)
    place = workspace.relative(kept)
    note = f"[{size_text(len(page.body))}; kept as {place}, for read_file or python_execute]"
    return Reading("document", f"{note}\n{text}", _file_name(page), None, place, images)


def _text_or_file(page: Page, workspace: Workspace) -> Reading:
    sample = page.body[:_SAMPLE_BYTES]
    whole_lines = sample[: sample.rfind(b"\n") + 1] or sample  # no character is cut in two
    if is_text(page.media_type) or detect_encoding(whole_lines) is not None:
        more = "\n[It is longer; only its first 5 MB were read.]" if page.cut else ""
        return Reading("text", printable(page.text) + more or "(empty)")
    if page.cut:
        raise ToolError(f"{page.url} is a {binary_kind(sample)} that is too long to be kept.")
    suffix = PurePosixPath(_file_name(page)).suffix.lower()
    suffix = suffix if suffix[1:].isalnum() and len(suffix) <= 8 else ".bin"
    place = workspace.relative(workspace.keep(page.body, suffix))
    named = page.media_type or "of no declared type"
    text = (
        f"It is not text but a {binary_kind(sample)} ({named}, {size_text(len(page.body))}), kept "
        f"as {place}. Use python_execute or bash to look into it or to copy it elsewhere."
    )
    return Reading("file", text, _file_name(page), kept=place)
