"""Asking the person at the terminal."""

import asyncio
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from openmanus_graph.cli.lines import Lines
from openmanus_graph.cli.runner import View
from openmanus_graph.cli.views import JsonView
from openmanus_graph.events import interrupt_event
from openmanus_graph.interrupts import is_plan_request, plan_of_request

DECISIONS = {
    **dict.fromkeys(("a", "y", "yes", "ok"), "approve"),
    **dict.fromkeys(("r", "n", "no"), "reject"),
}
EDIT = ("e", "edit")


class TerminalPerson:
    """Asks on the terminal, if there is one; a pipe is never asked."""

    def __init__(self, view: View) -> None:
        self.view = view

    async def answer(self, interrupt: Any) -> Any:
        """Return the person's answer, or None when nobody is there."""
        lines = Lines()
        if isinstance(self.view, JsonView) or not lines.interactive:
            return None
        event = interrupt_event(interrupt)
        if event["kind"] == "question":
            return await lines.ask("Your answer: ")
        if is_plan_request(event):
            return await _of_plan(lines, plan_of_request(event))
        return _decision(await lines.ask("[a]pprove, [r]eject, or type an answer: "))


async def _of_plan(lines: Lines, plan: str) -> Any:
    """Ask about a plan until there is an answer; an editor that changed nothing is none."""
    while True:
        word = await lines.ask("[a]pprove, [e]dit, [r]eject, or say what to change: ")
        if word is None or word.strip().lower() not in EDIT:
            return _decision(word)
        edited = await asyncio.to_thread(_edited, plan)
        if edited is not None:
            return edited


def _decision(word: str | None) -> Any:
    return None if word is None else DECISIONS.get(word.strip().lower(), word)


def _edited(text: str) -> str | None:
    """Let the person edit a text; None if nothing came of it."""
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
