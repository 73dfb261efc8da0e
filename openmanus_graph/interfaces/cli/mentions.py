"""Files and pictures that a message names: `@report.csv`, `@"my file.csv"`, `~/plot.png`."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from typing_extensions import override

from openmanus_graph.interfaces.service.options import InputOptions
from openmanus_graph.runtime.output import printable

PICTURES = (".png", ".jpg", ".jpeg", ".gif", ".webp")
SHOWN_FILES = 50
SENTENCE_ENDS = ".,;:!?)"
_MENTION = re.compile(r'(?<!\S)@(?:"(?P<quoted>[^"\n]+)"|(?P<plain>[^\s"]+))')
_PATH = re.compile(
    r"(?<!\S)(?:'(?P<single>[^'\n]+)'|\"(?P<double>[^\"\n]+)\"|(?P<plain>(?:\\.|\S)+))"
)
"""A word of a message, as terminals write the path of a file that is dropped on them."""
_UNFINISHED = re.compile(r'(?<!\S)@(?:(?P<quote>")(?P<quoted>[^"\n]*)|(?P<plain>[^\s"]*))$')


def read_mentions(text: str, workspace: Path, untrusted: str = "") -> tuple[str, InputOptions]:
    """Find the files and pictures that a message names. Blocks.

    Args:
        text: The message.
        workspace: Of the thread.
        untrusted: What somebody else wrote of it: the files that it names are not brought.

    Returns:
        The message, in which files are called as they are in the workspace, and what has to be
        brought there: files from outside, and pictures for the model to see.
    """
    files, images = dict[str, None](), dict[str, None]()

    def replaced(match: re.Match[str]) -> str:
        name = match["quoted"] or match["plain"]
        if match[0].rstrip(SENTENCE_ENDS) in untrusted:
            return match[0]
        found = _find(name, workspace)
        if found is None and (shorter := name.rstrip(SENTENCE_ENDS)) != name:  # the sentence's
            found = _find(shorter, workspace)
            return match[0] if found is None else _named(found) + name[len(shorter) :]
        return match[0] if found is None else _named(found)

    def _named(found: Path) -> str:
        if found.suffix.lower() in PICTURES:
            images[str(found)] = None
            return found.name
        if found.is_relative_to(workspace):
            return str(found.relative_to(workspace))
        files[str(found)] = None
        return found.name

    text = _MENTION.sub(replaced, text)
    images |= dict.fromkeys(_pictures(text, workspace, untrusted))
    return text, InputOptions(file=list(files) or None, image=list(images) or None)


def without_mentions(text: str, workspace: Path) -> str:
    """Return a message without the names of files that it mentions. Blocks."""

    def left(match: re.Match[str]) -> str:
        name = match["quoted"] or match["plain"]
        found = _find(name, workspace) or _find(name.rstrip(SENTENCE_ENDS), workspace)
        return match[0] if found is None else ""

    return _MENTION.sub(left, text)


def _pictures(text: str, workspace: Path, untrusted: str) -> Iterator[str]:
    """Yield the pictures that a message names by their path, `@` or not."""
    for match in _PATH.finditer(text):
        plain = re.sub(r"\\(.)", r"\1", match["plain"] or "")
        name = (match["single"] or match["double"] or plain).removeprefix("file://")
        if name.lower().endswith(PICTURES) and "/" in name and match[0] not in untrusted:
            found = _find(name, workspace)
            if found is not None:
                yield str(found)


def _find(name: str, workspace: Path) -> Path | None:
    """Return a file of the working folder or of the workspace, or by its whole path.

    A short name may be a link that somebody else has put there: then it must lead to a file there.
    """
    try:
        path = Path(name).expanduser()
        if path.is_absolute():
            return path.resolve() if path.is_file() else None
        places = ((place / path, place.resolve()) for place in (Path.cwd(), workspace))
        real = ((path.resolve(), place) for path, place in places if path.is_file())
        return next((path for path, place in real if path.is_relative_to(place)), None)
    except (OSError, RuntimeError, ValueError):  # too long, no such user, or a NUL
        return None


class MessageCompleter(Completer):
    """Completes `/command` at the beginning of a message, and `@file` anywhere."""

    def __init__(self, commands: dict[str, str], workspace: Path) -> None:
        self._commands = commands
        """What each command does, by its name."""
        self.workspace = workspace

    @override
    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        typed = document.text_before_cursor
        if typed.startswith("/") and not re.search(r"\s", typed):
            for name, purpose in self._commands.items():
                if name.startswith(typed):
                    yield Completion(name, -len(typed), display_meta=purpose)
        elif match := _UNFINISHED.search(typed):
            written = match["quoted"] or match["plain"] or ""
            begins = -len(written) - len(match["quote"] or "")
            for name in _files_like(written, (Path.cwd(), self.workspace)):
                quoted = f'"{name}"' if match["quote"] or re.search(r"\s", name) else name
                yield Completion(quoted, begins, display=name)


def _files_like(typed: str, places: Iterable[Path]) -> list[str]:
    """Return the files and folders whose path begins as typed, folders with a slash."""
    folder, _, beginning = typed.rpartition("/")
    prefix = f"{folder}/" if typed != beginning else ""
    found = dict[str, None]()
    for place in places:
        try:
            entries = sorted((place / Path(prefix).expanduser()).iterdir())
        except (OSError, RuntimeError):
            continue
        for entry in entries:
            name = entry.name
            hidden = name.startswith(".") and not beginning.startswith(".")
            if hidden or not name.startswith(beginning) or printable(name) != name:
                continue
            found[f"{prefix}{name}{'/' if entry.is_dir() else ''}"] = None
    return list(found)[:SHOWN_FILES]
