"""A chat at a terminal: its thread, its settings, and what its turns have used."""

import asyncio
import itertools
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage

from openmanus_graph.backends.models.build import prepare_model
from openmanus_graph.backends.models.resolved import resolve_model
from openmanus_graph.backends.models.spec import model_name
from openmanus_graph.backends.persistence.threads import Thread
from openmanus_graph.config.resolve import resolve_settings
from openmanus_graph.errors import ConfigError
from openmanus_graph.interfaces.cli import editor
from openmanus_graph.interfaces.cli.console import say
from openmanus_graph.interfaces.cli.live_line import LiveLine
from openmanus_graph.interfaces.cli.process import StdinLines
from openmanus_graph.interfaces.cli.show import print_markdown, read_thread
from openmanus_graph.interfaces.service import run_setup
from openmanus_graph.interfaces.service.options import InputOptions, RunOptions
from openmanus_graph.interfaces.service.own_process import RunError, continue_after_cancellation
from openmanus_graph.interfaces.service.runner import EventSink, Run, run_graph
from openmanus_graph.interfaces.service.thread_view import transcript
from openmanus_graph.interfaces.service.threads import find_thread, short_id
from openmanus_graph.runtime.output import money, printable, shorten
from openmanus_graph.runtime.workspace import Workspace
from openmanus_graph.state.manus import Origin, Usage, add_usage, no_usage
from openmanus_graph.state.settings import Settings

SIGNALLED = (143, 129)
Taken = tuple[str, str, RunOptions]
"""Thread, agent and options, as `take_thread` returns them."""
FILE_PASTE_CHARS = 50_000
"""A paste of this size is a file of the workspace instead of a part of the message: no model's
window holds 10 MB, and the agent's tools read files in parts."""
EDITOR = "str_replace_editor"


class ChatSession:
    """A chat at a terminal: a thread, what it has so far, and its turns.

    It is the sink of its runs: it passes events on and keeps what the commands show.
    """

    def __init__(
        self, taken: Taken, settings: Settings, sink: EventSink, line: editor.LineEditor
    ) -> None:
        self.line, self.live = line, LiveLine(line, sink)
        self.thread, self.agent, self.options = taken
        self.settings = settings
        """Of the next turn."""
        self.left = False
        self.compact = False
        """Whether the conversation is summarized before the next message is answered."""
        self.draft = ""
        """The beginning of the next line; the person may change it."""
        self.code = 0
        """The exit code of the last turn."""
        self.spent: Usage = no_usage()
        self.edits: list[tuple[Mapping[str, Any], str]] = []
        """Arguments and results of the edits that were made."""
        self.ran = ""
        """Commands that the person has run since the last message, with their output."""
        self._may_run = False
        self._sink = sink
        self._running_edits: dict[str, Mapping[str, Any]] = {}
        self._context_tokens = 0
        """Of the newest request."""
        self._window = 0

    def show(self, event: Mapping[str, Any]) -> None:
        match event["type"]:
            case "think_end" if not event.get("plan_step"):
                self._context_tokens = event["usage"]["input_tokens"]
            case "tool_start" if event["tool"] == EDITOR:
                self._running_edits[event["call_id"]] = event["args"]
            case "tool_end" if event["call_id"] in self._running_edits:
                args = self._running_edits.pop(event["call_id"])
                self.edits += [(args, event["output"])] if event["ok"] else []
            case "final":
                self.spent = add_usage(self.spent, event["usage"])
            case _:
                pass
        self.live.note(event)
        self._sink.show(event)

    def status(self) -> str:
        """Return the status line: model, context used, cost, folder, which may be long."""
        used = self._context_tokens / self._window if self._window else 0
        cost = money(self.spent["cost_usd"])
        model, effort = model_name(self.settings.main), self.settings.main.effort
        model = f"{model} ({effort})" if effort else model
        return f"{model} · context {used:.0%} · {cost} · {self.folder()}"

    def folder(self) -> str:
        """Return the path of the workspace, short if it is here or at home."""
        folder, here, home = self.settings.workspace, Path.cwd(), Path.home()
        if folder.is_relative_to(here):
            return str(folder.relative_to(here))
        return f"~/{folder.relative_to(home)}" if folder.is_relative_to(home) else str(folder)

    async def change_model(self, model: str) -> None:
        """Change the model of the next turns. ConfigError if it cannot work."""
        changed = replace(self.options, model=model)
        context = run_setup.to_context(changed)
        settings = await asyncio.to_thread(resolve_settings, context, self.thread)
        await prepare_model(settings.main)
        self.options, self.settings, self._window = changed, settings, 0

    async def switch(self, thread: str) -> None:
        """Continue with another thread. ConfigError if it does not exist."""
        given = InputOptions(thread=thread)
        taken = await asyncio.to_thread(run_setup.take_thread, given, RunOptions())
        context = run_setup.to_context(taken[2])
        self.settings = await asyncio.to_thread(resolve_settings, context, taken[0])
        self.thread, self.agent, self.options = taken
        self._window = 0

    async def begin(self, thread: str) -> None:
        """Continue with a new thread."""
        context = run_setup.to_context(self.options)
        self.settings = await asyncio.to_thread(resolve_settings, context, thread)
        self.thread, self._window = thread, 0
        self.edits.clear()

    async def say(
        self, typed: str, given: InputOptions, pastes: Mapping[str, str], draft: str
    ) -> bool:
        """Do a turn with a message that was typed, possibly into a draft by somebody else.

        Return whether it began.

        The draft, long pastes and names of files are not the user's words: they verify nothing.
        """
        workspace = self.settings.workspace
        text, named = await asyncio.to_thread(editor.read_mentions, typed, workspace, draft)
        with tempfile.TemporaryDirectory() as folder:
            files = [*(given.file or ()), *(named.file or ())]
            for label, pasted in pastes.items():
                if label in text and len(pasted) >= FILE_PASTE_CHARS:
                    data = pasted.encode("utf-8", "replace")
                    path = Path(folder) / f"paste-{sha256(data).hexdigest()[:8]}.txt"
                    path.write_bytes(data)
                    files.append(str(path))
                    pasted = f"{label} (in the file {path.name})"
                text = text.replace(label, pasted)
            for missing in () if draft else editor.MENTION.finditer(text):
                say(f"There is no file {missing[0]}: it is sent as text.")
            ran, self.ran = self.ran, ""
            text += ran
            added = editor.own_words(typed, draft)
            words = await asyncio.to_thread(editor.without_mentions, added, workspace)
            own = Origin(words=words, urls=[], tainted=bool(draft or pastes or ran), names=True)
            origin = own if own["tainted"] or words != typed else None
            images = [*(given.image or ()), *(named.image or ())]
            given = replace(given, file=files, image=images)
            taken = (self.thread, self.agent, self.options)
            run = run_setup.new_run(text, given, taken, origin=origin, compact=self.compact)
            self.compact = False
            return await self.do(run)

    async def do(self, run: Run) -> bool:
        """Do a run, and show why if it cannot begin. Return whether it did."""
        try:
            async with self.live.below(run.thread, self.settings.workspace):
                self.code = await run_graph(run, self, self.live)
        except (ConfigError, RunError) as error:
            say(str(error))
            return False
        self.left = self.code in SIGNALLED
        self._window = (await resolve_model(self.settings.main)).window
        return True

    async def next_message(self, prompt: str) -> tuple[str | None, str]:
        """Return what the person says next, None when they leave, and the draft that it was.

        What was sent while the agent worked comes first. If the run did not finish after that, it
        is put into the line instead, to be read again.
        """
        queue, unsent = self.live.queue, self.live.unsent
        if queue and (self.code == 0 or queue[0].after_end):
            text = queue.pop(0).text
            sys.stderr.write(f"{editor.PROMPT}{printable(text)}\n")
            return None if text.strip() in editor.EXIT_WORDS else text, ""
        draft, self.draft = self.draft, ""
        begun = draft or "\n".join(filter(None, (*(one.text for one in queue), unsent)))
        queue.clear()
        self.live.unsent = ""
        return await editor.next_message(self.line, prompt, begun), draft

    async def say_how_to_continue(self) -> None:
        if await asyncio.to_thread(find_thread, self.thread):
            say(f"Continue with: openmanus chat --thread {shlex.quote(short_id(self.thread))}")

    async def look_back(self, known: Thread) -> None:
        """Show the end of a thread's conversation, and measure what its requests hold."""
        messages = (await read_thread(known))[0].get("messages", [])
        used = [one.usage_metadata for one in messages if isinstance(one, AIMessage)]
        self._context_tokens = next((one["input_tokens"] for one in reversed(used) if one), 0)
        self._window = (await resolve_model(self.settings.main)).window
        said = [n for n, one in enumerate(messages) if isinstance(one, HumanMessage)][-1:]
        values: dict[str, Any] = {"messages": messages[said[0] :] if said else []}
        print_markdown(itertools.islice(transcript(known, values, {}, cut=True), 1, None))

    async def run_shell(self, command: str) -> None:
        """Run a command of the person in the workspace; its output goes with the next message."""
        if not self._may_run:
            ask = "It runs as you, without a sandbox; the agent reads its output. Run it? [y/N] "
            answer = await StdinLines().ask(ask)
            self._may_run = (answer or "").strip().lower() in ("y", "yes")
        if not self._may_run or not command.strip():
            return
        workspace = Workspace.of(self.settings)
        root, _ = workspace.root, await asyncio.to_thread(workspace.prepare)

        def shell() -> subprocess.CompletedProcess[bytes]:
            pipe, both, nothing = subprocess.PIPE, subprocess.STDOUT, subprocess.DEVNULL
            return subprocess.run(
                command, shell=True, cwd=root, stdin=nothing, stdout=pipe, stderr=both, check=False
            )

        run = asyncio.ensure_future(asyncio.to_thread(shell))
        try:
            done = await asyncio.shield(run)
        except asyncio.CancelledError:  # Ctrl-C, which the command has got, too
            continue_after_cancellation()
            done = await run
        text = done.stdout.decode("utf-8", "replace").rstrip()
        say(text or "(no output)")
        if done.returncode:
            say(f"exit code {done.returncode}", "red")
        shown = await asyncio.to_thread(shorten, text, workspace)
        self.ran += f"\n\nI ran `{command.strip()}` (exit code {done.returncode}):\n{shown}"

    async def resume(self, reply: run_setup.ResumeAnswer) -> None:
        resuming = run_setup.resuming_run
        await self.do(await asyncio.to_thread(resuming, self.thread, reply, RunOptions()))
