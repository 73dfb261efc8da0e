"""Shortens long output for every tool, makes text safe to show, and fills a thread's outputs.

A shortened text has its head, its tail, which lines are left out, and where the whole is stored:
in the thread's outputs, where copies of the run's skills are as well.
"""

import codecs
import hashlib
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from openmanus_graph.errors import ConfigError
from openmanus_graph.runtime.atomic_files import copy_entry, part_name
from openmanus_graph.safety.open_beneath import located

if TYPE_CHECKING:  # heavy, and child processes import this module
    from openmanus_graph.runtime.workspace import Workspace
    from openmanus_graph.state.context import Skill

MIN_OBSERVATION_CHARS = 7000
_WINDOW_SHARE, _CHARS_PER_TOKEN = 0.02, 4
_OVERRUN_PERCENT = 15
MARK_CHARS = 300
"""Characters kept free for `left_out`."""
MARK = re.compile(r"\[\.\.\. (?:lines \d|\d+ characters of line).* left out; .+ \.\.\.\]")
"""The line in a shortened text that says what is left out, and where the whole is."""

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_OVERWRITTEN = re.compile(r"^[^\n]*\r(?!\n)", re.MULTILINE)
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Control characters except line feed and tab, and those that change the direction of text."""
_CHUNK_BYTES = 1 << 20
_UTF8_LONGEST = 4
_NEWEST_BYTES = 4096


def money(dollars: float) -> str:
    """Return dollars as all interfaces show them: with enough digits to see small sums move."""
    if 0 < dollars < 0.0001:
        return "<$0.0001"
    digits = 0 if not dollars else 4 if dollars < 0.01 else 3 if dollars < 1 else 2
    return f"${dollars:.{digits}f}"


def max_observation_chars(window_tokens: int) -> int:
    """Return the most characters of one observation: a fixed share of the model's window."""
    return max(MIN_OBSERVATION_CHARS, int(window_tokens * _WINDOW_SHARE * _CHARS_PER_TOKEN))


def with_overrun(max_chars: int) -> int:
    """Return the length up to which a text is shown whole: a little more is not worth a cut."""
    return max_chars * (100 + _OVERRUN_PERCENT) // 100


def shorten(text: str, workspace: "Workspace", max_chars: int = MIN_OBSERVATION_CHARS) -> str:
    """Return the text, or its head and tail with a mark that says where the whole is stored.

    The same text always gives the same result. Blocks when it writes.
    """
    if len(text) <= with_overrun(max_chars):
        return text
    saved_at = _saved(lambda: workspace.keep(text.encode("utf-8", "replace"), ".txt"))
    head, tail = text[:max_chars], text[-max_chars:]
    return _cut(head, tail, len(text), line_count(text), saved_at, max_chars)


def shorten_file(
    file: BinaryIO,
    workspace: "Workspace",
    *,
    start: int = 0,
    end: int | None = None,
    max_chars: int = MIN_OBSERVATION_CHARS,
) -> str:
    """Return a part of an opened file as text, shortened like `shorten`, in little memory.

    A shortened stream is copied, byte for byte, to a file named by its content, so that showing
    it again makes no second copy. Invalid UTF-8 is replaced in the text. Blocks.
    """
    end = os.fstat(file.fileno()).st_size if end is None else end
    if end - start <= max_chars * _UTF8_LONGEST:
        return shorten(_read_plain(file, start, end), workspace, max_chars)
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    digest, head, tail, characters, ends = hashlib.sha256(), "", "", 0, 0
    for piece in _pieces(file, start, end):
        digest.update(piece)
        text = decoder.decode(piece)
        characters += len(text)
        ends += text.count("\n")
        head = head if len(head) >= max_chars else (head + text)[:max_chars]
        tail = (tail + text)[-max_chars:]
    if characters <= with_overrun(max_chars):
        return _read_plain(file, start, end)
    name = f"{digest.hexdigest()[:16]}.txt"
    saved_at = _saved(lambda: _copy(_pieces(file, start, end), workspace.outputs / name))
    lines = ends + (not tail.endswith("\n"))
    return _cut(plain(head), plain(tail), characters, lines, saved_at, max_chars)


def left_out(first: int, last: int, lines: int, characters: int, saved_at: Path | str) -> str:
    """Return which lines of a text, counted from 1, are left out, and how to read them.

    `lines` is how many the whole text has, `characters` how many are left out, and `saved_at` where
    the whole is, or why it is not stored.
    """
    if first == last:
        more = f"the whole is in {saved_at}" if isinstance(saved_at, Path) else saved_at
        return f"{characters} characters of line {first} left out; {more}"
    reading = f'read_file(path="{saved_at}", lines="{first}-{last}") shows them'
    more = reading if isinstance(saved_at, Path) else saved_at
    return f"lines {first}-{last} of {lines} left out; {more}"


def plain(text: str) -> str:
    """Remove terminal escapes and overwritten progress bars."""
    return _OVERWRITTEN.sub("", _ESCAPES.sub("", text)).replace("\r\n", "\n")


def printable(text: str) -> str:
    """Make text safe for a terminal: no control sequences, only characters that can be encoded."""
    return _CONTROLS.sub("", text).encode("utf-8", "replace").decode()


def newest_line(file: BinaryIO, start: int = 0) -> str:
    """Return the last line with text that was written to an opened file after an offset.

    Reads only its last bytes, and keeps its position. Empty if the file is closed.
    """
    try:
        descriptor = file.fileno()
        size = os.fstat(descriptor).st_size
        begin = max(start, size - _NEWEST_BYTES)
        data = os.pread(descriptor, size - begin, begin) if size > begin else b""
    except (OSError, ValueError):  # another thread has closed it
        return ""
    lines = plain(data.decode("utf-8", "replace")).splitlines()
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def line_count(text: str) -> int:
    """Count lines, including a last one without a line end."""
    return text.count("\n") + (not text.endswith("\n"))


def _pieces(file: BinaryIO, start: int, end: int) -> Iterator[bytes]:
    """Read a part of a file, wherever its position is: programs that print to it move that."""
    while piece := os.pread(file.fileno(), min(_CHUNK_BYTES, end - start), start):
        yield piece
        start += len(piece)


def _read_plain(file: BinaryIO, start: int, end: int) -> str:
    return plain(b"".join(_pieces(file, start, end)).decode("utf-8", "replace"))


def _copy(pieces: Iterable[bytes], target: Path) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(part_name())
    try:
        with temporary.open("wb") as copy:
            copy.writelines(pieces)
        return temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)  # a full disk leaves half of it


def _saved(save: Callable[[], Path]) -> Path | str:
    """Save the whole text. Return its file, or why it could not be saved."""
    try:
        return save()
    except OSError as error:
        return f"the whole could not be saved: {error.strerror}"


def _cut(
    head: str, tail: str, characters: int, lines: int, saved_at: Path | str, max_chars: int
) -> str:
    """Join a text's ends, at line breaks if that costs little, to `max_chars` characters.

    The ends are at least as long as can be shown. All else is as for `left_out`.
    """
    max_chars = max(max_chars - MARK_CHARS, max_chars // 2)
    head, tail = head[: max_chars * 2 // 3], tail[-(max_chars // 3) :]
    line_end, line_start = head.rfind("\n") + 1, tail.find("\n") + 1
    head = head[:line_end] if line_end > len(head) * 3 // 4 else head
    whole_lines = 0 < line_start < len(tail) // 4
    tail = tail[line_start:] if whole_lines else tail
    first = head.count("\n") + 1
    last = lines - line_count(tail) + (not whole_lines)
    mark = left_out(first, last, lines, characters - len(head) - len(tail), saved_at)
    gap = "" if head.endswith("\n") else "\n"
    return f"{head}{gap}[... {mark} ...]\n{tail}"  # as `MARK` finds it


def skills_folder(skills: "Sequence[Skill]", workspace: "Workspace") -> Path:
    """Return the folder of the copies. It changes when a skill changes."""
    digests = "".join(f"{skill.name} {skill.digest}\n" for skill in skills)
    return workspace.outputs / "skills" / hashlib.sha256(digests.encode()).hexdigest()[:12]


def copy_skills(skills: "Sequence[Skill]", workspace: "Workspace") -> Path:
    """Copy the skills unless this was done before, and return the folder of the copies. Blocks.

    ConfigError: One was changed since it was found, so its current content is not trusted.
    """
    from openmanus_graph.config.instructions import SkillError, digest_of  # which is heavy

    target = skills_folder(skills, workspace)
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".copying-") as part:
        whole = Path(part) / "skills"
        for skill in skills:
            copy = whole / skill.name
            with suppress(SkillError, FileNotFoundError):
                whole.mkdir(exist_ok=True)
                with located(skill.folder.parent, skill.folder, follow=False) as place:
                    copy_entry(place.folder, place.name, copy)
                if digest_of(copy) == skill.digest:
                    continue
            raise ConfigError(f"The skill {skill.folder} is being changed; try again.")
        with suppress(OSError):  # another run of the thread was faster
            whole.rename(target)
    return target
