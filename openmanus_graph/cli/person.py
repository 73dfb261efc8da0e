"""Asking the person at the terminal, if there is one; a pipe is never asked."""

import json
from typing import Any

from openmanus_graph.cli.lines import Lines
from openmanus_graph.cli.runner import View
from openmanus_graph.cli.views import JsonView
from openmanus_graph.events import interrupt_event

DECISIONS = {
    **dict.fromkeys(("a", "y", "yes", "ok"), "approve"),
    **dict.fromkeys(("r", "n", "no"), "reject"),
}
PROMPTS = {
    "question": "Your answer: ",
    "approval": "[a]pprove, [always] in this run, [e]dit, [r]eject WHY, or type its result: ",
    "unknown_outcome": "[a]pprove, [r]eject WHY, or type its result: ",
}


class TerminalPerson:
    """Somebody at a terminal."""

    def __init__(self, view: View) -> None:
        self.view = view

    async def answer(self, interrupt: Any) -> Any:
        """Return the person's answer, or None when nobody is there."""
        lines = Lines()
        if isinstance(self.view, JsonView) or not lines.interactive:
            return None
        asked = interrupt_event(interrupt)
        word = await lines.ask(PROMPTS.get(asked["kind"], PROMPTS["question"]))
        if word is None or asked["kind"] == "question":
            return word
        if asked["kind"] == "approval" and word.strip().lower() in ("e", "edit"):
            return await _edited(lines)
        return decision_of(word)


def decision_of(typed: str) -> Any:
    """Return what typed words mean: `r WHY` is a rejection, other words are the call's result."""
    first, _, rest = typed.strip().partition(" ")
    if rest and first.lower() in ("r", "reject"):
        return {"type": "reject", "message": rest.strip()}
    return DECISIONS.get(typed.strip().lower(), typed)


async def _edited(lines: Lines) -> Any:
    """Return an edit. What is no JSON object is no decision, and asked about again."""
    typed = await lines.ask("New arguments, as JSON: ")
    if typed is None:
        return None
    try:
        return {"type": "edit", "args": {"args": json.loads(typed)}}
    except ValueError:
        return {"type": "edit"}
