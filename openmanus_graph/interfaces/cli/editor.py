"""The line editor of a terminal: history, several lines, completion, and pastes of any size.

A message may name files and pictures: `@report.csv`, `@"my file.csv"`, `~/plot.png`.
"""

import asyncio
import contextlib
import os
import re
import sys
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from difflib import SequenceMatcher
from functools import cache
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import AnyFormattedText, FormattedText
from prompt_toolkit.history import FileHistory
from prompt_toolkit.input import Input, create_input
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.input.vt100_parser import Vt100Parser
from prompt_toolkit.key_binding import KeyBindings, KeyPress, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout.processors import TabsProcessor
from prompt_toolkit.output import create_output
from prompt_toolkit.styles import Style
from typing_extensions import override

from openmanus_graph.interfaces.service.options import InputOptions
from openmanus_graph.interfaces.service.own_process import prepare_home
from openmanus_graph.runtime.output import line_count, printable

SHOWN_PASTE_CHARS, SHOWN_PASTE_LINES = 2_000, 20
"""Of a paste that the line shows whole; for a longer one it shows a label with the size."""
MENU_ROWS = 6
DECIDE_S = 0.7
"""How long a letter must stand alone to be sent, and how long the question must have been shown."""
EXIT_WORDS = {"/exit", "/quit", "exit", "quit"}
PROMPT = "> "
_PASTE_BEGINS, _PASTE_ENDS = "\x1b[200~", "\x1b[201~"
PICTURES = (".png", ".jpg", ".jpeg", ".gif", ".webp")
SHOWN_FILES = 50
SENTENCE_ENDS = ".,;:!?)"
MENTION = re.compile(r'(?<!\S)@(?:"(?P<quoted>[^"\n]+)"|(?P<plain>[^\s"]+))')
_PATH = re.compile(
    r"(?<!\S)(?:'(?P<single>[^'\n]+)'|\"(?P<double>[^\"\n]+)\"|(?P<plain>(?:\\.|\S)+))"
)
"""A word of a message, as terminals write the path of a file that is dropped on them."""
_UNFINISHED = re.compile(r'(?<!\S)@(?:(?P<quote>")(?P<quoted>[^"\n]*)|(?P<plain>[^\s"]*))$')
_STYLE = Style.from_dict({"bottom-toolbar": "noreverse", "bottom-toolbar.text": "dim"})


class LineEditor:
    """Asks the person at the terminal. Enter sends, Alt+Enter makes a line."""

    def __init__(
        self,
        *,
        history: Path | None = None,
        completer: Completer | None = None,
        status: Callable[[], str] | None = None,
        choices: Sequence[str] | None = None,
        letters: str = "",
    ) -> None:
        """Open the terminal of stdin and stderr.

        `history` is the file of earlier input; None keeps nothing. `status` returns the line below
        the prompt. A question has `choices`, maybe none, which the arrows up and down put into the
        line; Escape leaves it, as Ctrl-C does. `letters` are sent without Enter.
        """
        self._asked_at, self._is_question = time.monotonic(), choices is not None
        self.pastes: dict[str, str] = {}
        """Long pastes, by their labels in the line."""
        self.on_send: Callable[[str], None] | None = None
        """Takes what is sent while the agent works; the line then stays."""
        self.on_key: Callable[[str], object] = str
        """Takes Escape and Ctrl-C meanwhile, and in an empty line Ctrl-D and the arrow up."""

        def toolbar() -> FormattedText:
            return FormattedText([("", printable(status()) if status else "")])

        self._session: PromptSession[str] = PromptSession(
            history=None if history is None else PrivateHistory(history),
            completer=completer,
            complete_in_thread=True,
            multiline=True,
            key_bindings=self._key_bindings(choices or (), letters),
            input_processors=[TabsProcessor(char1=" ", char2=" ")],
            prompt_continuation="  ",
            bottom_toolbar=toolbar if status else None,
            reserve_space_for_menu=0 if completer is None else MENU_ROWS,
            style=_STYLE,
            input=_keyboard(),
            output=create_output(sys.stderr),
        )
        self.app = self._session.app
        # A terminal that does not report its cursor has no status line, and needs no warning.
        self.app.renderer.cpr_not_supported_callback = None

    async def ask(self, prompt: str, *, draft: str = "") -> str | None:
        """Return what the person typed, with long pastes whole; None at Ctrl-C or Ctrl-D."""
        try:
            typed = await self.read(prompt, draft=draft)
        except KeyboardInterrupt:
            return None
        for label, pasted in self.pastes.items():
            typed = typed and typed.replace(label, pasted)
        return typed

    async def read(
        self, prompt: AnyFormattedText, *, secret: bool = False, draft: str = "", refresh: float = 0
    ) -> str | None:
        """Return what the person typed, with labels for long pastes; None at Ctrl-D.

        A secret is shown as dots and not kept in the history. With `refresh` seconds, the prompt is
        drawn again so often, and removed at the end. KeyboardInterrupt: Ctrl-C was typed.
        """
        self.app.erase_when_done = bool(refresh)
        self.app.min_redraw_interval = refresh / 4  # a paste arrives in thousands of pieces
        escapes = refresh or self._is_question
        self.app.timeoutlen, self.app.ttimeoutlen = (0.4, 0.1) if escapes else (1.0, 0.5)
        try:
            return await self._session.prompt_async(
                prompt,
                refresh_interval=refresh,
                reserve_space_for_menu=MENU_ROWS if self._session.completer and not refresh else 0,
                default=self._shown_paste(printable(draft)),
                is_password=secret,
                handle_sigint=False,
                set_exception_handler=False,
            )
        except EOFError:
            return None

    @property
    def unsent(self) -> str:
        return self._session.default_buffer.text

    @contextlib.contextmanager
    def keep_brackets(self) -> Generator[None]:
        """Have pastes marked also while no line is read: each is one message at any time."""
        output = self.app.output
        disable = output.disable_bracketed_paste
        setattr(output, "disable_bracketed_paste", output.flush)  # noqa: B010  # or mypy objects
        output.enable_bracketed_paste()
        output.flush()
        try:
            yield
        finally:
            disable()
            output.flush()

    def _key_bindings(self, choices: Sequence[str], letters: str) -> KeyBindings:
        keys = KeyBindings()

        @keys.add("enter", filter=~_is_choosing)
        def send(event: KeyPressEvent) -> None:
            if self.on_send is None:
                event.current_buffer.validate_and_handle()
            else:
                event.current_buffer.append_to_history()
                self.on_send(event.current_buffer.document.text)
                event.current_buffer.reset()

        @keys.add("enter", filter=_is_choosing)
        def choose(event: KeyPressEvent) -> None:
            event.current_buffer.complete_state = None

        @keys.add("escape", "enter")
        @keys.add("escape", "c-j")  # Enter, as a terminal passes on what was typed ahead
        def new_line(event: KeyPressEvent) -> None:
            event.current_buffer.newline(copy_margin=False)

        @keys.add(Keys.BracketedPaste)
        def paste(event: KeyPressEvent) -> None:
            text = printable(re.sub("\r\n?", "\n", event.data))
            event.current_buffer.insert_text(self._shown_paste(text))

        self._add_question_keys(keys, choices, letters)
        self._add_live_keys(keys)
        return keys

    def _add_question_keys(self, keys: KeyBindings, choices: Sequence[str], letters: str) -> None:
        chooses = Condition(
            lambda: bool(choices) and get_app().current_buffer.text in ("", *choices)
        )

        @keys.add("up", filter=chooses)
        @keys.add("down", filter=chooses)
        def choose_next(event: KeyPressEvent) -> None:
            buffer, down = event.current_buffer, event.key_sequence[0].key == Keys.Down
            at = choices.index(buffer.text) if buffer.text else -1 if down else 0
            buffer.document = Document(choices[(at + (1 if down else -1)) % len(choices)])

        for letter in letters:
            keys.add(letter, filter=~_has_text)(self._decide)

        @keys.add("escape", filter=Condition(lambda: self._is_question))
        def leave(event: KeyPressEvent) -> None:
            event.app.exit(exception=KeyboardInterrupt())

    def _decide(self, event: KeyPressEvent) -> None:
        """Send a letter, unless it was typed ahead or begins a word."""
        app, buffer, letter = event.app, event.current_buffer, event.data
        buffer.insert_text(letter)

        def send() -> None:
            if app.is_running and not app.is_done and buffer.text == letter:
                buffer.validate_and_handle()

        if time.monotonic() - self._asked_at >= DECIDE_S:
            asyncio.get_running_loop().call_later(DECIDE_S, send)

    def _add_live_keys(self, keys: KeyBindings) -> None:
        """Add what the keys do while the agent works."""
        is_live = Condition(lambda: self.on_send is not None)

        @keys.add("escape", filter=is_live)
        @keys.add("c-c", filter=is_live)
        @keys.add("c-d", filter=is_live & ~_has_text)
        @keys.add("up", filter=is_live & ~_has_text)
        def pass_on(event: KeyPressEvent) -> None:
            self.on_key(event.key_sequence[0].key)

    def _shown_paste(self, text: str) -> str:
        lines = line_count(text)
        if len(text) <= SHOWN_PASTE_CHARS and lines <= SHOWN_PASTE_LINES:
            return text
        label = f"[paste {len(self.pastes) + 1}: {len(text):,} characters, {lines:,} lines]"
        self.pastes[label] = text
        return label


@Condition
def _is_choosing() -> bool:
    """Return True if one of several completions is selected; after the only one, Enter sends."""
    state = get_app().current_buffer.complete_state
    return state is not None and state.complete_index is not None and len(state.completions) > 1


@Condition
def _has_text() -> bool:
    return bool(get_app().current_buffer.text)


@cache
def _keyboard() -> Input:
    """Return the terminal of stdin: one, so that a paste is whole also if another line gets it."""
    source = create_input(sys.stdin)
    if isinstance(source, Vt100Input):
        source.vt100_parser = PasteParser(source.vt100_parser.feed_key_callback)
    return source


class PrivateHistory(FileHistory):
    """A history that only the person can read; one that cannot be written is not kept."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._path = path

    @override
    def store_string(self, string: str) -> None:
        with contextlib.suppress(OSError):
            prepare_home(self._path.parent)
            os.close(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600))
            self._path.chmod(0o600)  # a copied home may have lost it
            super().store_string(string)


class PasteParser(Vt100Parser):
    """Reads a paste in time proportional to its size.

    The parser that it replaces searches the whole paste again for each kilobyte that arrives.
    """

    def __init__(self, feed_key_callback: Callable[[KeyPress], None]) -> None:
        super().__init__(feed_key_callback)
        self._pieces: list[str] | None = None
        """Of the unfinished paste."""

    @override
    def feed(self, data: str) -> None:
        while data:
            if self._pieces is None:
                before, begins, data = data.partition(_PASTE_BEGINS)
                super().feed(before)
                self._pieces = [] if begins else None
            else:
                data = self._feed_paste(self._pieces, data)

    def _feed_paste(self, pieces: list[str], data: str) -> str:
        kept = pieces.pop() if pieces else ""  # the end's mark may come in two pieces
        content, ends, rest = (kept + data).partition(_PASTE_ENDS)
        if ends:
            self._pieces = None
            self.feed_key_callback(KeyPress(Keys.BracketedPaste, "".join([*pieces, content])))
            return rest
        whole = len(content) - len(_PASTE_ENDS)
        pieces += [content[:whole], content[whole:]] if whole > 0 else [content]
        return ""


def read_mentions(text: str, workspace: Path, untrusted: str = "") -> tuple[str, InputOptions]:
    """Find the files and pictures that a message names. Blocks.

    Files that its `untrusted` part names, which somebody else wrote, are not copied.

    Returns:
        The message, in which files have their names in the workspace, and what must be copied
        there: files from outside, and pictures for the model to see.
    """
    files, images = dict[str, None](), dict[str, None]()

    def replaced(match: re.Match[str]) -> str:
        if match[0].rstrip(SENTENCE_ENDS) in untrusted:  # not even looked for
            return match[0]
        found, rest = _mentioned(match, workspace)
        if found is None:
            return match[0]
        if found.suffix.lower() in PICTURES:
            images[str(found)] = None
        elif found.is_relative_to(workspace):
            return f"{found.relative_to(workspace)}{rest}"
        else:
            files[str(found)] = None
        return found.name + rest

    text = MENTION.sub(replaced, text)
    for match in _PATH.finditer(text):  # pictures are also named without `@`
        plain = re.sub(r"\\(.)", r"\1", match["plain"] or "")
        name = (match["single"] or match["double"] or plain).removeprefix("file://")
        if name.lower().endswith(PICTURES) and "/" in name and match[0] not in untrusted:
            found = _find(name, workspace)
            images |= {} if found is None else {str(found): None}
    return text, InputOptions(file=list(files) or None, image=list(images) or None)


def without_mentions(text: str, workspace: Path) -> str:
    """Return a message without the names of files that it mentions. Blocks."""
    return MENTION.sub(
        lambda match: match[0] if _mentioned(match, workspace)[0] is None else "", text
    )


def own_words(typed: str, draft: str) -> str:
    """Return the words that the user added to a draft."""
    if not draft.strip():
        return typed
    drafted, words = draft.split(), typed.split()
    changes = SequenceMatcher(None, drafted, words).get_opcodes()
    return "\n".join(
        " ".join(words[start:end]) for kind, *_, start, end in changes if kind != "equal"
    )


def _mentioned(match: re.Match[str], workspace: Path) -> tuple[Path | None, str]:
    """Return the file that a mention names, and the marks of the sentence that follow its name."""
    name = match["quoted"] or match["plain"]
    for shorter in (name, name.rstrip(SENTENCE_ENDS)):
        if (found := _find(shorter, workspace)) is not None:
            return found, name[len(shorter) :]
    return None, ""


def _find(name: str, workspace: Path) -> Path | None:
    """Return a file or folder of the working folder or of the workspace, or a file by its path.

    A relative name may be a link that somebody else put there, so it must lead to a file inside.
    """
    try:
        path = Path(name).expanduser()
        if path.is_absolute():
            return path.resolve() if path.is_file() else None
        for folder in (Path.cwd(), workspace):
            real = (folder / path).resolve()
            if real.exists() and real.is_relative_to(folder.resolve()):
                return real
        return None
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
    """Return the files and folders that have the typed letters in this order, whatever their case.

    Those that begin with them come first. Folders have a slash.
    """
    folder, _, beginning = typed.rpartition("/")
    prefix = f"{folder}/" if typed != beginning else ""
    like = re.compile(".*".join(map(re.escape, beginning)), re.IGNORECASE)
    found = dict[str, None]()
    for place in places:
        try:
            entries = sorted((place / Path(prefix).expanduser()).iterdir())
        except (OSError, RuntimeError):
            continue
        for entry in entries:
            name = entry.name
            hidden = name.startswith(".") and not beginning.startswith(".")
            if hidden or not like.search(name) or printable(name) != name:
                continue
            found[f"{prefix}{name}{'/' if entry.is_dir() else ''}"] = None
    return sorted(found, key=lambda one: not one.startswith(typed))[:SHOWN_FILES]


async def next_message(line: LineEditor, prompt: str, draft: str) -> str | None:
    """Return the next message; None when the person leaves.

    KeyboardInterrupt: Ctrl-C was typed twice in an empty line.
    """
    warned = False
    while True:
        try:
            typed = await line.read(prompt, draft=draft)
        except KeyboardInterrupt:
            if warned and not line.unsent:
                raise
            warned = not line.unsent
            if warned:
                sys.stderr.write("Ctrl-C again, Ctrl-D or /exit leaves.\n")
            prompt, draft = PROMPT, ""
            continue
        if typed is None or typed.strip() in EXIT_WORDS:
            return None
        if typed.strip():
            return typed
        draft = ""
