"""Reads a line from stdin, and asks the person at the terminal; a pipe is never asked."""

import asyncio
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from openmanus_graph.interfaces.cli.event_sinks import JsonSink
from openmanus_graph.interfaces.service.runner import EventSink
from openmanus_graph.planning.plan import PlanError, is_plan_request, plan_of_request
from openmanus_graph.runtime.events import interrupt_event
from openmanus_graph.runtime.output import printable
from openmanus_graph.state.interrupts import read_decision_on

EDIT = "e"
QUESTION_PROMPT = "Your answer: "
PROMPTS = {
    "approval": "[a]pprove, [always] in this run, [e]dit, [r]eject WHY, or = RESULT: ",
    "unknown_outcome": "[a]pprove, [r]eject WHY, or type its result: ",
}
PLAN_PROMPT = "[a]pprove, [e]dit, [r]eject, or say what to change: "
NO_DECISION = "That is not a decision, and nothing was done."


def has_line_editor() -> bool:
    """Return True if there is a terminal that the line editor can work with."""
    is_terminal = sys.stdin.isatty() and sys.stderr.isatty()
    return is_terminal and os.environ.get("TERM", "dumb") != "dumb"


class StdinLines:
    """Reads stdin, a terminal's or a pipe's, line by line."""

    def __init__(self) -> None:
        self._descriptor = sys.stdin.fileno()
        self._buffer = b""
        self._ended = False
        self.interactive = sys.stdin.isatty() and sys.stderr.isatty()

    async def ask(self, prompt: str, *, draft: str = "") -> str | None:
        """Return the next line, None at the end of the input.

        Only a terminal shows the prompt, and only the line editor the draft, which can be changed.
        """
        if has_line_editor():
            from openmanus_graph.interfaces.cli.editor import LineEditor

            return await LineEditor().ask(prompt, draft=draft)
        if self.interactive:
            sys.stderr.write(prompt)
            sys.stderr.flush()
        while b"\n" not in self._buffer and not self._ended:
            await self._wait_until_readable()
            piece = os.read(self._descriptor, 65536)
            self._buffer += piece
            self._ended = not piece
        line, newline, self._buffer = self._buffer.partition(b"\n")
        return line.decode("utf-8", "replace") if line or newline else None

    async def _wait_until_readable(self) -> None:
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        try:
            loop.add_reader(self._descriptor, ready.set)
        except PermissionError:
            return  # a file, which is always readable
        try:
            await ready.wait()
        finally:
            loop.remove_reader(self._descriptor)


class TerminalInput:
    """The person at the terminal."""

    def __init__(self, sink: EventSink) -> None:
        self.sink = sink

    async def answer(self, interrupt: Any) -> Any | None:
        """Return the answer to a question, None if there is no terminal or the input ends."""
        lines = StdinLines()
        if isinstance(self.sink, JsonSink) or not lines.interactive:
            return None
        asked = interrupt_event(interrupt)
        if is_plan_request(asked):
            return await _review_plan(lines, plan_of_request(asked))
        kind = asked["kind"]
        if kind == "question":
            return await lines.ask(QUESTION_PROMPT)
        while (typed := await lines.ask(PROMPTS[kind])) is not None:
            if kind == "approval" and typed.strip().lower() == EDIT:
                typed = await _edited_arguments(lines, asked["calls"])
            if typed and read_decision_on(kind, typed) is not None:
                return typed
            sys.stderr.write(f"{NO_DECISION}\n")
        return None


async def _review_plan(lines: StdinLines, plan: str) -> Any | None:
    """Ask about a plan until there is an answer; an unchanged plan in the editor is none."""
    from openmanus_graph.nodes.create_plan import read_review  # most runs do not need it

    while (typed := await lines.ask(PLAN_PROMPT)) is not None:
        if typed.strip().lower() == EDIT:
            edited = await asyncio.to_thread(_edited_text, plan)
            if edited is not None:
                return edited
            continue
        try:
            if read_review(typed) is not None:
                return typed
            problem = NO_DECISION
        except PlanError as error:
            problem = f"That cannot be done: {error}."
        sys.stderr.write(f"{problem}\n")
    return None


async def _edited_arguments(lines: StdinLines, calls: Sequence[Mapping[str, Any]]) -> str | None:
    """Return an edit decision as JSON, None if what was typed is not an object of arguments."""
    draft = ""
    if len(calls) == 1:
        draft = json.dumps(calls[0]["args"], ensure_ascii=False)
        if printable(draft) != draft:  # the editor must show all that it holds
            draft = json.dumps(calls[0]["args"])
    typed = await lines.ask("New arguments, as JSON: ", draft=draft)
    try:
        args = json.loads(typed or "")
    except (ValueError, RecursionError):
        return None
    return json.dumps({"type": "edit", "args": {"args": args}}) if isinstance(args, dict) else None


def _edited_text(text: str) -> str | None:
    """Let the person edit a text; None if it was not changed."""
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plan.json"
        path.write_text(text, encoding="utf-8")
        try:
            subprocess.run([*shlex.split(editor), str(path)], check=True)
        except (OSError, ValueError, subprocess.CalledProcessError) as error:
            sys.stderr.write(f"The editor {editor!r} failed: {error}. Set EDITOR.\n")
            return None
        edited = path.read_text(encoding="utf-8", errors="replace")
    return None if edited == text else edited
