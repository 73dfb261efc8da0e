"""`read_file` and `str_replace_editor`: the files of the workspace."""

import collections
import itertools
import os
import re
import threading
from collections.abc import Iterator
from pathlib import PurePath
from typing import Annotated, Any, BinaryIO, Literal, TypeVar

from langgraph.prebuilt import ToolRuntime
from pydantic import BeforeValidator, WithJsonSchema

from openmanus_graph.backends.files import documents, file_content, file_edits, text_file
from openmanus_graph.backends.files.file_content import read_picture
from openmanus_graph.backends.files.overview import folder_shown
from openmanus_graph.backends.files.text_file import MAX_LINE_CHARS, Lines, parse_lines, take
from openmanus_graph.backends.sandbox.confinement import place_of
from openmanus_graph.errors import ToolError
from openmanus_graph.runtime.artifacts import naming_neighbours
from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.tool_runtime import call_runtime
from openmanus_graph.runtime.workspace import Workspace, find, opened_file
from openmanus_graph.safety.open_beneath import named, shown, size_text
from openmanus_graph.state.tool_traits import Observation
from openmanus_graph.tool_calls import declaration

_SAMPLE_BYTES = 256 * 1024
_COUNTED_BYTES = 50 * 1024 * 1024
_ALL = Lines()
_FILES_SITE = "https://files"
"""Where a secret NAME=VALUE@files may be used: as the password of a file."""
_LONGEST_LINE = 16 * 1024 * 1024


def _range_text(value: Any) -> Any:
    """Write the first and the last line, given as numbers, as a range."""
    match value:
        case [first, last]:
            return f"{first}-{'' if str(last) == '-1' else last}"
        case int():
            return str(value)
        case _:
            return value


LinesText = Annotated[str | None, BeforeValidator(_range_text), WithJsonSchema({"type": "string"})]


@declaration.manus_tool(effect="read_only", resource=declaration.file_resource, reads_files=True)
def read_file(  # the model is not shown `runtime`
    path: str,
    runtime: ToolRuntime[Any, Any],
    pages: declaration.MaybeText = None,
    lines: LinesText = None,
    password: declaration.MaybeText = None,
) -> Observation:
    """Read a PDF, Office, mail, notebook or text file.

    Args:
        path: Of the file.
        pages: Or slides, cells: Sheet1!A5:H10.
        lines: First-last.
        password: Of an encrypted file.
    """
    session = call_runtime(runtime).session
    workspace, where = place_of(session, path)
    with naming_neighbours(workspace, where):
        if (folder := folder_shown(workspace, where)) is not None:
            return Observation(folder, listing=True)
        if password:
            from openmanus_graph.backends.browser.secrets import Secrets

            secrets = Secrets(session.settings.browser.secrets)
            password = secrets.fill_in(password, _FILES_SITE)
        most = session.max_observation_chars
        return text_of_file(session, path, most, pages, parse_lines(lines), password or None)


def text_of_file(
    session: Session,
    path: str,
    max_chars: int,
    pages: str | None = None,
    wanted: Lines = _ALL,
    password: str | None = None,
) -> Observation:
    """Return an excerpt of a file as text. Blocks; ToolError if it cannot be read.

    `pages` are those of a document, such as "1-3,7"; None for all.
    """
    images: tuple[str, ...] = ()
    with opened_file(*place_of(session, path)) as file:
        head = file.read(_SAMPLE_BYTES)
        if not head:
            return Observation(f"{shown(path)} is empty.")
        try:
            kind = file_content.document_kind(file, head, PurePath(named(path)).suffix.lower())
            if kind:
                text, images = documents.read_to_outputs(
                    session.workspace, file, kind, pages, wanted, max_chars, password
                )
            else:
                text = _read_text(file, head, pages, wanted, max_chars)
        except ToolError as error:
            raise ToolError(f"Cannot read {shown(path)}. {error}") from error
    return Observation(text_file.printable(text), images=images, bounded=True)


def _read_text(
    file: BinaryIO, head: bytes, pages: str | None, wanted: Lines, max_chars: int
) -> str:
    size = os.fstat(file.fileno()).st_size
    encoding = text_file.encoding_of(file)
    if encoding is None:
        advice = "use python_execute"
        if file_content.image_type(head):
            advice = "view it with str_replace_editor, or if you are not shown pictures " + advice
        raise ToolError(f"It is a {file_content.binary_kind(head)} of {size_text(size)}; {advice}.")
    numbers = itertools.count()
    # Carriage returns in lines do not end them, as for grep and sed; but where nothing else does.
    line_end = "\n" if "\n" in head.decode(encoding.name, "replace") else None
    lines = _lines(file, encoding, line_end)
    stream = (line for line, _ in zip(lines, numbers, strict=False))
    excerpt = take(stream, wanted, max_chars)
    total = None
    if size <= _COUNTED_BYTES:
        collections.deque(stream, maxlen=0)  # counts the rest
        total = next(numbers)
    if not excerpt.lines:
        shown_total = "fewer" if total is None else total
        if wanted == _ALL:
            raise ToolError(f"It has {shown_total} lines.")
        note = (
            f"[It has {shown_total} lines, none from {wanted.first} on: here it is from its first.]"
        )
        return "\n".join([note, _read_text(file, head, pages, _ALL, max_chars)])
    count = f"{total} lines" if total is not None else "more lines than were counted"
    named = "" if encoding.name == "utf-8" else f", {encoding.name}"
    named += f"; {encoding.damage}" if encoding.broken else ""
    ignored = "; it has no pages, so pages was ignored" if pages else ""
    rows = [f"[{size_text(size)}, {count}{named}{ignored}]", *excerpt.lines]
    if excerpt.cut:
        rows.append(documents.left_out(excerpt, wanted, total))
    return "\n".join(rows)


def _lines(file: BinaryIO, encoding: text_file.Encoding, line_end: str | None) -> Iterator[str]:
    """Yield lines, and never hold a long one in memory. A `line_end` of None means any."""
    with text_file.opened_text(file, encoding, line_end) as reader:
        while line := reader.readline(MAX_LINE_CHARS):
            if line.endswith("\n"):
                yield line[:-1].removesuffix("\r")
                continue
            more = 0
            while rest := reader.readline(MAX_LINE_CHARS):
                more += len(rest.rstrip("\n"))
                if rest.endswith("\n") or more > _LONGEST_LINE:
                    break
            ending = f" [{more} more characters in this line: use python_execute]" if more else ""
            yield line + ending
            if more > _LONGEST_LINE:
                return


MAX_IMAGE_BYTES = 10 * 1024 * 1024
_IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".tiff", ".heic", ".avif")

_RANGE_TEXT = re.compile(r"[\s\[(]*(\d+)\s*[-,:]\s*(-?\d+)?[\s\])]*")

T = TypeVar("T")


def _range_numbers(value: Any) -> Any:
    """Return the first and the last line of a range that is a text: "[1, 20]", "1-20" or "1-"."""
    match = _RANGE_TEXT.fullmatch(value) if isinstance(value, str) else None
    return value if match is None else [match[1], match[2] or -1]


LineRange = Annotated[
    list[int] | None,
    BeforeValidator(_range_numbers),
    WithJsonSchema({"type": "array", "items": declaration.INTEGER}),
]


@declaration.manus_tool(effect="workspace", resource=declaration.file_resource)
def str_replace_editor(  # the model is not shown `runtime`
    command: Literal["view", "create", "str_replace", "insert", "undo_edit"],
    path: str,
    runtime: ToolRuntime[Any, Any],
    file_text: declaration.MaybeText = None,
    overwrite: bool = False,
    old_str: declaration.MaybeText = None,
    new_str: declaration.MaybeText = None,
    insert_line: declaration.MaybeNumber = None,
    view_range: LineRange = None,
) -> Observation:
    """View, create and edit text files.

    Args:
        command: view: folders and pictures too.
        path: Of the file.
        file_text: For create.
        overwrite: create may replace a file.
        old_str: Exact, unique text.
        new_str: Or lines to insert.
        insert_line: Line before them; 0: top.
        view_range: [first, last]; -1: end.
    """
    session = call_runtime(runtime).session
    workspace = session.workspace
    if command == "view":
        place, named = place_of(session, path)
        with naming_neighbours(place, named):
            return _view(session, place, named, view_range)
    # Edits of a session run one at a time: two names may lead to the same file.
    lock = session.cached_across_runs("edit lock", threading.Lock)
    with naming_neighbours(workspace, path), lock:
        if command == "create":
            new = _required(file_text, "file_text", command)
            text = file_edits.create_file(workspace, path, new, overwrite=overwrite)
        elif command == "str_replace":
            old, new = _required(old_str, "old_str", command), _valid_unicode(new_str or "")
            text = file_edits.edit_file(
                workspace, path, lambda content: file_edits.replace_once(content, old, new)
            )
        elif command == "insert":
            line = _required(insert_line, "insert_line", command)
            new = _valid_unicode(_required(new_str, "new_str", command))
            text = file_edits.edit_file(
                workspace, path, lambda content: file_edits.insert_after(content, line, new)
            )
        else:
            text = file_edits.undo_edit(workspace, path)
    return Observation(text)


def _required(value: T | None, parameter: str, command: str) -> T:
    if value is None:
        raise ToolError(f"The command {command} needs the parameter {parameter}.")
    return value


def _valid_unicode(text: str) -> str:
    """Refuse a lone surrogate, which would be saved as a broken byte of the file."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ToolError(
            f"new_str holds half a character ({ascii(error.object[error.start])}) that no file "
            "can; no file was changed. Write the whole character."
        ) from error
    return text


def _view(
    session: Session, workspace: Workspace, path: str, view_range: list[int] | None
) -> Observation:
    """View a file of the workspace, or of another folder that `place_of` has found."""
    if (folder := folder_shown(workspace, path)) is not None:
        return Observation(folder, listing=True)
    found = find(workspace, path, outputs=True)
    with opened_file(workspace, path) as file:
        size = os.fstat(file.fileno()).st_size
        picture = file_content.image_type(file.read(32))
        if picture and size > MAX_IMAGE_BYTES:
            raise ToolError(
                f"{shown(path)} is a picture of {size_text(size)}; the limit is "
                f"{size_text(MAX_IMAGE_BYTES)}. Make a smaller copy with python_execute."
            )
        if not picture:
            file_edits.require_text_size(size, path)
        file.seek(0)
        data = file.read(size)
    if picture:
        relative = found.path if found else path
        if workspace is not session.workspace:  # such a file may be gone when the model sees it
            relative = str(session.workspace.keep(data, PurePath(path).suffix))
        return _view_image(data, path, relative)
    if not data:
        return Observation(f"{shown(path)} is empty.")
    encoding, content = file_edits.decode_text(data, path)
    lines = text_file.split_lines(content)
    first, last = text_file.checked_range(view_range, len(lines))
    text = _file_notes(encoding, content, path) + text_file.numbered(
        lines, first, last, session.max_observation_chars
    )
    return Observation(text, bounded=True)


def _view_image(data: bytes, path: str, relative: str) -> Observation:
    try:
        image = read_picture(data)
    except ToolError as error:
        raise ToolError(
            f"{shown(path)} begins like a picture ({file_content.image_type(data)}), but {error}. "
            "Create or download it again."
        ) from error
    name = shown(relative)
    text = f"{name}: {image.media_type}, {image.width} x {image.height} pixels"
    return Observation(f"{text}, {size_text(len(data))}.", images=(name,))


def _file_notes(encoding: text_file.Encoding, content: str, path: str) -> str:
    """Return notes on what the numbered lines do not show; empty for an ordinary file."""
    notes: list[str] = []
    if path.lower().endswith(_IMAGE_SUFFIXES):
        notes.append("it is named like a picture but holds text")
    if encoding.broken:
        notes.append(f"{encoding.damage}, and kept by edits")
    if encoding.name != "utf-8":
        notes.append(f"its encoding is {encoding.name}, kept by edits")
    if "\r" in content:
        notes.append("it has line ends with CR, kept by edits")
    return f"[{shown(path)}: {'; '.join(notes)}]\n" if notes else ""
