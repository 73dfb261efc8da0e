"""The input line below a run: what is sent steers the run, or waits until it has ended."""

import asyncio
import contextlib
import os
import signal
import sys
import threading
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO, cast

from prompt_toolkit.formatted_text import ANSI
from prompt_toolkit.keys import Keys
from prompt_toolkit.renderer import CPR_Support

from openmanus_graph.backends.persistence.steering import SteeringMessages, open_steering
from openmanus_graph.config.resolve import database_url
from openmanus_graph.interfaces.cli import editor
from openmanus_graph.interfaces.cli.screen import REFRESH_S, ScreenSink
from openmanus_graph.interfaces.cli.terminal import TerminalInput, TerminalSink
from openmanus_graph.interfaces.service.runner import EventSink
from openmanus_graph.runtime.output import printable

SHOWN_QUEUE = 5


@dataclass
class _Queued:
    text: str
    steering: str = ""
    """Its id as a steering message; empty if it waits for the end of the run."""
    after_end: bool = False
    """Whether the person had seen the end of the run."""


class LiveLine:
    """Shows the line while the agent works; answers its questions in place of it."""

    def __init__(self, line: editor.LineEditor, sink: EventSink) -> None:
        self.unsent = ""
        """What was in the line when the run ended."""
        self.queue: list[_Queued] = []
        """What was sent and is not read yet, oldest first."""
        self._line, self._sink = line, sink
        self._screen = sink if isinstance(sink, ScreenSink) else None
        self._sending = asyncio.Lock()
        self._tasks = set[asyncio.Task[None]]()
        self._drawn = -1, ""

    @contextlib.asynccontextmanager
    async def below(self, thread: str, workspace: Path) -> AsyncGenerator[None]:
        """Show the line below a run of a thread."""
        self._thread, self._workspace, self._state = thread, workspace, "begins"
        self._steering: SteeringMessages = open_steering(await asyncio.to_thread(database_url))
        self._show("")
        try:
            yield
        finally:
            await self._hide()
            for one in [one for one in self.queue if one.steering]:
                if not await self._steering.take_back(one.steering):
                    self.queue.remove(one)
                one.steering = ""

    def note(self, event: Mapping[str, Any]) -> None:
        """Forget a message that the agent has read; note that the run has ended."""
        states = {"run_start": "works", "final": "ended"}
        self._state = states.get(event["type"], self._state)
        self.queue = [q for q in self.queue if not q.steering or q.steering != event.get("message")]

    async def answer(self, interrupt: Any) -> Any | None:
        await self._hide()
        try:
            return await TerminalInput(self._sink).answer(interrupt)
        finally:
            self._show(self.unsent)

    def _show(self, draft: str) -> None:
        self.unsent = ""
        self._line.on_send, self._line.on_key = self._send, self._take_key
        self._stderr, sys.stderr = sys.stderr, cast("TextIO", _AboveLine(self._line))
        if isinstance(self._sink, TerminalSink):
            self._sink.has_line = True
        reading = self._line.read(self._prompt, draft=draft, refresh=REFRESH_S)
        self._reading = asyncio.ensure_future(reading)

    async def _hide(self) -> None:
        self._reading.cancel()
        await asyncio.wait([self._reading, *self._tasks])
        self.unsent = self._line.unsent
        sys.stderr = self._stderr
        self._line.on_send = None

    def _prompt(self) -> ANSI:
        counter = self._line.app.render_counter
        if self._drawn[0] != counter:  # the line asks for it several times
            shown = self._screen.live_text() if self._screen else ""
            queue = self.queue[-SHOWN_QUEUE:]
            room = self._line.app.output.get_size().columns - 6
            rows = [" ".join(printable(one.text).split())[: max(room, 1)] for one in queue]
            if rows:
                rows.append("↑ takes it back")
            queued = "".join(f"\x1b[2m  {row}\x1b[0m\n" for row in rows)
            self._drawn = counter, f"{shown}{queued}{editor.PROMPT}"
        return ANSI(self._drawn[1])

    def _send(self, text: str) -> None:
        if text.strip():
            self.queue.append(_Queued(text, after_end=self._state == "ended"))
            self._start(self._steer(self.queue[-1]))

    async def _steer(self, sent: _Queued) -> None:
        """Give a message to the run, unless it is a command, or has files or long pastes.

        These and what follows them wait: a steering message is all in the person's words.
        """
        async with self._sending:
            before = self.queue[: self.queue.index(sent)] if sent in self.queue else []
            waits = sent.after_end or any(not one.steering for one in before)
            waits |= sent.text.startswith(("/", "!"))
            waits |= sent.text.strip() in editor.EXIT_WORDS
            waits |= any(label in sent.text for label in self._line.pastes)
            if not waits:
                place = self._workspace
                text, named = await asyncio.to_thread(editor.read_mentions, sent.text, place)
                waits = bool(text != sent.text or named.file or named.image)
            if not waits:
                sent.steering = await self._steering.add(self._thread, sent.text)

    def _take_key(self, key: str) -> None:
        if key == Keys.ControlD:
            self._send("/exit")
        elif key == Keys.Up:
            if self.queue:
                self._start(self._edit(self.queue.pop()))
        elif self._state == "works" or (key == Keys.ControlC and self._state == "begins"):
            os.kill(os.getpid(), signal.SIGINT)  # handled as without a line

    async def _edit(self, sent: _Queued) -> None:
        """Put a message into the line again, if the agent has not read it."""
        async with self._sending:
            if not sent.steering or await self._steering.take_back(sent.steering):
                self._line.app.current_buffer.insert_text(sent.text)

    def _start(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class _AboveLine:
    """Stderr while a line is shown: what is written goes above it, and the line is drawn again.

    `patch_stdout` of the line's library does so later, from a thread, and with the terminal's own
    echo on: keys and parts of pastes would appear in between.
    """

    def __init__(self, line: editor.LineEditor) -> None:
        self._app, self._stderr = line.app, sys.stderr
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()

    def write(self, text: str) -> int:
        if threading.get_ident() != self._thread:
            self._loop.call_soon_threadsafe(self.write, text)
        else:
            renderer = self._app.renderer
            renderer.erase()
            self._stderr.write(text)
            self._stderr.flush()
            if self._app.is_running and renderer.cpr_support == CPR_Support.SUPPORTED:
                renderer.request_absolute_cursor_position()  # for the status line
            self._app.invalidate()
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stderr, name)
