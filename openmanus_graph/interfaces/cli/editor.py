"""The line editor of a terminal: history, several lines, completion, and pastes of any size."""

import contextlib
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app
from prompt_toolkit.completion import Completer
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.history import FileHistory
from prompt_toolkit.input import create_input
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.input.vt100_parser import Vt100Parser
from prompt_toolkit.key_binding import KeyBindings, KeyPress, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout.processors import TabsProcessor
from prompt_toolkit.output import create_output
from prompt_toolkit.styles import Style
from typing_extensions import override

from openmanus_graph.interfaces.service.failures import prepare_home
from openmanus_graph.runtime.output import line_count, printable

SHOWN_PASTE_CHARS, SHOWN_PASTE_LINES = 2_000, 20
"""Of a paste that stands in the line as it is; of a longer one only its size does."""
MENU_ROWS = 6
_PASTE_BEGINS, _PASTE_ENDS = "\x1b[200~", "\x1b[201~"
_STYLE = Style.from_dict({"bottom-toolbar": "noreverse", "bottom-toolbar.text": "dim"})


class LineEditor:
    """Asks the person at the terminal. Enter sends, Alt+Enter makes a line."""

    def __init__(
        self,
        *,
        history: Path | None = None,
        completer: Completer | None = None,
        status: Callable[[], str] | None = None,
    ) -> None:
        """Open the terminal of stdin and stderr.

        Args:
            history: The file of what was typed before; None keeps nothing.
            completer: Completes while the person types.
            status: Returns the line below the prompt.
        """
        self.pastes: dict[str, str] = {}
        """Long pastes, by what stands for them in the line."""
        source = create_input(sys.stdin)
        if isinstance(source, Vt100Input):
            source.vt100_parser = PasteParser(source.vt100_parser.feed_key_callback)
        self._session: PromptSession[str] = PromptSession(
            history=None if history is None else PrivateHistory(history),
            completer=completer,
            complete_in_thread=True,
            multiline=True,
            key_bindings=self._key_bindings(),
            input_processors=[TabsProcessor(char1=" ", char2=" ")],
            prompt_continuation="  ",
            bottom_toolbar=None if status is None else lambda: _status(status()),
            reserve_space_for_menu=0 if completer is None else MENU_ROWS,
            style=_STYLE,
            input=source,
            output=create_output(sys.stderr),
        )
        # Where the terminal does not say where its cursor is, there is no status line: no warning.
        self._session.app.renderer.cpr_not_supported_callback = None

    async def ask(self, prompt: str, *, draft: str = "") -> str | None:
        """Return what the person typed, with long pastes whole; None at Ctrl-C or Ctrl-D."""
        try:
            typed = await self.read(prompt, draft=draft)
        except KeyboardInterrupt:
            return None
        for label, pasted in self.pastes.items():
            typed = typed and typed.replace(label, pasted)
        return typed

    async def read(self, prompt: str, *, secret: bool = False, draft: str = "") -> str | None:
        """Return what the person typed, in which labels stand for long pastes; None at Ctrl-D.

        Args:
            prompt: What stands before it.
            secret: Show dots instead, and keep it out of the history.
            draft: What is in the line already.

        Raises:
            KeyboardInterrupt: At Ctrl-C.
        """
        try:
            return await self._session.prompt_async(
                prompt,
                default=self._shown_paste(printable(draft)),
                is_password=secret,
                handle_sigint=False,
                set_exception_handler=False,
            )
        except EOFError:
            return None

    @property
    def unsent(self) -> str:
        """What stood in the line when Ctrl-C was typed."""
        return self._session.default_buffer.text

    def _key_bindings(self) -> KeyBindings:
        keys = KeyBindings()

        @keys.add("enter", filter=~_is_choosing)
        def send(event: KeyPressEvent) -> None:
            event.current_buffer.validate_and_handle()

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

        return keys

    def _shown_paste(self, text: str) -> str:
        lines = line_count(text)
        if len(text) <= SHOWN_PASTE_CHARS and lines <= SHOWN_PASTE_LINES:
            return text
        label = f"[paste {len(self.pastes) + 1}: {len(text):,} characters, {lines:,} lines]"
        self.pastes[label] = text
        return label


@Condition
def _is_choosing() -> bool:
    """Whether one of several completions is selected; after the only one, Enter sends."""
    state = get_app().current_buffer.complete_state
    return state is not None and state.complete_index is not None and len(state.completions) > 1


def _status(text: str) -> FormattedText:
    return FormattedText([("", printable(text))])


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
    """Takes pastes in time in proportion to their size.

    The parser that it replaces looks through the whole paste again for each kilobyte that comes.
    """

    def __init__(self, feed_key_callback: Callable[[KeyPress], None]) -> None:
        super().__init__(feed_key_callback)
        self._pieces: list[str] | None = None
        """Of the paste under way."""

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
        """Take a piece of a paste; return what comes after it."""
        kept = pieces.pop() if pieces else ""  # the end's mark may come in two pieces
        content, ends, rest = (kept + data).partition(_PASTE_ENDS)
        if ends:
            self._pieces = None
            self.feed_key_callback(KeyPress(Keys.BracketedPaste, "".join([*pieces, content])))
            return rest
        whole = len(content) - len(_PASTE_ENDS)
        pieces += [content[:whole], content[whole:]] if whole > 0 else [content]
        return ""
