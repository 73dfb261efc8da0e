"""The chat at a terminal: a thread, what it has so far, and its turns."""

import asyncio
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from difflib import SequenceMatcher
from hashlib import sha256
from pathlib import Path
from typing import Any

from openmanus_graph.backends.models.build import prepare_model
from openmanus_graph.backends.models.resolved import resolve_model
from openmanus_graph.backends.models.spec import model_name
from openmanus_graph.config.resolve import resolve_settings
from openmanus_graph.errors import ConfigError
from openmanus_graph.interfaces.cli.console import say
from openmanus_graph.interfaces.cli.editor import read_mentions, without_mentions
from openmanus_graph.interfaces.cli.user_input import TerminalInput
from openmanus_graph.interfaces.service.options import InputOptions, RunOptions
from openmanus_graph.interfaces.service.own_process import RunError
from openmanus_graph.interfaces.service.run_setup import new_run, take_thread, to_context
from openmanus_graph.interfaces.service.runner import EventSink, Run, run_graph
from openmanus_graph.state.manus import Origin, Usage, add_usage, no_usage
from openmanus_graph.state.settings import Settings

SIGNALLED = (143, 129)
FILE_PASTE_CHARS = 50_000
"""A paste of this size is a file of the workspace instead of a part of the message: no model's
window holds 10 MB, and the agent's tools read files in parts."""
EDITOR = "str_replace_editor"


class ChatSink:
    """Passes the events of a chat on, and keeps what the chat's commands show."""

    def __init__(self, sink: EventSink) -> None:
        self._sink = sink
        self.spent: Usage = no_usage()
        self.context_tokens = 0
        """Of the newest request."""
        self.edits: list[Mapping[str, Any]] = []
        """Arguments of the edits that were made."""
        self._under_way: dict[str, Mapping[str, Any]] = {}

    def show(self, event: Mapping[str, Any]) -> None:
        match event["type"]:
            case "think_end" if not event.get("plan_step"):
                self.context_tokens = event["usage"]["input_tokens"]
            case "tool_start" if event["tool"] == EDITOR:
                self._under_way[event["call_id"]] = event["args"]
            case "tool_end" if event["call_id"] in self._under_way:
                args = self._under_way.pop(event["call_id"])
                self.edits += [args] if event["ok"] else []
            case "final":
                self.spent = add_usage(self.spent, event["usage"])
            case _:
                pass
        self._sink.show(event)


class ChatSession:
    """A chat at a terminal."""

    def __init__(
        self, taken: tuple[str, str, RunOptions], settings: Settings, sink: ChatSink
    ) -> None:
        self.thread, self.agent, self.options = taken
        self.settings = settings
        """Of the next turn."""
        self.sink = sink
        self.left = False
        self.compact = False
        """Whether the conversation is summarized before the next message is answered."""
        self.draft = ""
        """The beginning of the next line; the person may change it."""
        self.code = 0
        """The exit code of the last turn."""
        self._window = 0

    def status(self) -> str:
        """Return the status line: model, context used, cost, folder, which may be long."""
        used = self.sink.context_tokens / self._window if self._window else 0
        cost = f"${self.sink.spent['cost_usd']:.4f}"
        folder, here, home = self.settings.workspace, Path.cwd(), Path.home()
        if folder.is_relative_to(here):
            shown = str(folder.relative_to(here))
        else:
            shown = f"~/{folder.relative_to(home)}" if folder.is_relative_to(home) else str(folder)
        return f"{model_name(self.settings.main)} · context {used:.0%} · {cost} · {shown}"

    async def change(self, **options: Any) -> None:
        """Change the options of the next turns. ConfigError if they cannot work."""
        changed = replace(self.options, **options)
        settings = await asyncio.to_thread(resolve_settings, to_context(changed), self.thread)
        await prepare_model(settings.main)
        self.options, self.settings, self._window = changed, settings, 0

    async def switch(self, thread: str) -> None:
        """Continue with another thread. ConfigError if there is no such thread."""
        given = InputOptions(thread=thread)
        taken = await asyncio.to_thread(take_thread, given, RunOptions())
        context = to_context(taken[2])
        self.settings = await asyncio.to_thread(resolve_settings, context, taken[0])
        self.thread, self.agent, self.options = taken
        self._window = 0

    async def say(
        self, typed: str, given: InputOptions, pastes: Mapping[str, str], draft: str
    ) -> None:
        """Do a turn with a message that was typed, possibly into a draft by somebody else.

        The draft, long pastes and names of files are not the user's words: they verify nothing.
        """
        workspace = self.settings.workspace
        text, named = await asyncio.to_thread(read_mentions, typed, workspace, draft)
        with tempfile.TemporaryDirectory() as folder:
            files = [*(given.file or ()), *(named.file or ())]
            for label, pasted in pastes.items():
                if label in text and len(pasted) >= FILE_PASTE_CHARS:
                    path = _save_paste(Path(folder), pasted)
                    files.append(str(path))
                    text = text.replace(label, f"{label} (in the file {path.name})")
                else:
                    text = text.replace(label, pasted)
            images = [*(given.image or ()), *(named.image or ())]
            given = InputOptions(file=files, image=images)
            taken = (self.thread, self.agent, self.options)
            words = await asyncio.to_thread(without_mentions, own_words(typed, draft), workspace)
            own = Origin(words=words, urls=[], tainted=bool(draft or pastes), names=True)
            origin = own if own["tainted"] or words != typed else None
            await self.do(new_run(text, given, taken, origin=origin, compact=self.compact))
            self.compact = False

    async def do(self, run: Run) -> None:
        """Do a run, and show why if it cannot begin."""
        try:
            self.code = await run_graph(run, self.sink, TerminalInput(self.sink))
        except (ConfigError, RunError) as error:
            say(str(error))
            return
        self.left = self.code in SIGNALLED
        self._window = (await resolve_model(self.settings.main)).window


def own_words(typed: str, draft: str) -> str:
    """Return the words that the user added to a draft."""
    if not draft.strip():
        return typed
    drafted, words = draft.split(), typed.split()
    changes = SequenceMatcher(None, drafted, words).get_opcodes()
    return "\n".join(
        " ".join(words[start:end]) for kind, *_, start, end in changes if kind != "equal"
    )


def _save_paste(folder: Path, text: str) -> Path:
    """Write a paste to a file whose name no other content has."""
    data = text.encode("utf-8", "replace")
    path = folder / f"paste-{sha256(data).hexdigest()[:8]}.txt"
    path.write_bytes(data)
    return path
