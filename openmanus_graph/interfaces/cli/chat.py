"""`openmanus chat`: several turns on one thread, with its kernel and shell kept open.

At a terminal it also has commands, `/model`, `/files` and others, and MCP prompts as commands.
"""

import asyncio
import sys
import tempfile
import textwrap
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from openmanus_graph.backends.files.overview import list_folder
from openmanus_graph.backends.models.build import prepare_model
from openmanus_graph.backends.models.resolved import resolve_model
from openmanus_graph.backends.models.spec import model_name, parse_spec
from openmanus_graph.backends.persistence.threads import Thread
from openmanus_graph.config.claude_files import usable_prompts, with_command
from openmanus_graph.config.resolve import resolve_settings
from openmanus_graph.errors import ConfigError
from openmanus_graph.graphs.catalog import agent_names, check_agent
from openmanus_graph.interfaces.cli import editor, fork, mcp, process, screen
from openmanus_graph.interfaces.cli.console import Rendered, SafeConsole, say
from openmanus_graph.interfaces.cli.run import log_file, make_sink, require_stdout, show_worktree
from openmanus_graph.interfaces.cli.show import read_thread
from openmanus_graph.interfaces.cli.skills import ask_before_run
from openmanus_graph.interfaces.cli.terminal import TerminalInput
from openmanus_graph.interfaces.cli.threads import list_threads
from openmanus_graph.interfaces.service import run_setup
from openmanus_graph.interfaces.service.options import (
    InputOptions,
    OutputOptions,
    RunOptions,
    StorageOptions,
    takes,
)
from openmanus_graph.interfaces.service.own_process import RunError
from openmanus_graph.interfaces.service.run_view import plan_in
from openmanus_graph.interfaces.service.runner import EventSink, Run, run_graph
from openmanus_graph.interfaces.service.threads import (
    find_thread,
    known_thread,
    short_id,
    thread_id,
)
from openmanus_graph.planning.plan import plan_document
from openmanus_graph.runtime.session_registry import open_session
from openmanus_graph.runtime.workspace import Workspace
from openmanus_graph.state.context import SERVER_TOOL_PREFIX
from openmanus_graph.state.manus import Origin, Usage, active_plan, add_usage, no_plans, no_usage
from openmanus_graph.state.settings import Settings

CANCELLED, WAITING = 130, 4
SIGNALLED = (143, 129)
HISTORY = "chat-history"
"""In the home folder: what was typed at the prompt."""
GREETING = "Enter sends, Alt+Enter makes a line, /help lists the commands."
"""Part of the first prompt, so that the editor is ready when a person reads it."""
NO_COMMANDS = (
    "This terminal (TERM=dumb) has no commands but /exit. Nothing was sent; begin with another "
    "character to send it."
)
DIFF_LINES = 1_000
SHOWN_TITLE_CHARS = 100
DESCRIPTION_CHARS = 200
PROMPT_PREFIX = f"/{SERVER_TOOL_PREFIX}"
OPEN = ("waiting", "stopped", "cancelled", "failed", "running")
"""Statuses of threads that can be resumed."""
Taken = tuple[str, str, RunOptions]
"""Thread, agent and options, as `take_thread` returns them."""
FILE_PASTE_CHARS = 50_000
"""A paste of this size is a file of the workspace instead of a part of the message: no model's
window holds 10 MB, and the agent's tools read files in parts."""
EDITOR = "str_replace_editor"


@takes(InputOptions, RunOptions, OutputOptions, StorageOptions)
def chat(given: InputOptions, options: RunOptions, output: OutputOptions) -> int:
    """Talk with the agent: several turns on one thread."""
    require_stdout()
    ask_before_run(options.config)
    with log_file(output.log):
        try:
            taken = run_setup.take_thread(given, options)
            with make_sink(output) as sink:
                at_editor = process.has_line_editor() and not output.json
                code = asyncio.run((_converse if at_editor else _read_turns)(given, taken, sink))
            show_worktree(taken[2].workspace, code, output)
            return code
        except KeyboardInterrupt:  # at the prompt; a turn handles the signal itself
            sys.stderr.write("\n")
            return CANCELLED


async def _read_turns(given: InputOptions, taken: Taken, sink: EventSink) -> int:
    """Take each line of a pipe as a turn; return the exit code of the last one."""
    lines = process.StdinLines()
    code = 0
    async with open_session(taken[0]):
        while (text := await lines.ask(editor.PROMPT)) is not None:
            if text.strip() in editor.EXIT_WORDS:
                break
            if not text.strip():
                continue
            if lines.interactive and text.split()[0] in PURPOSES:
                say(NO_COMMANDS)
                continue
            run = run_setup.new_run(text, given, taken)
            given = InputOptions()  # only the first turn gets files and pictures
            code = await run_graph(run, sink, TerminalInput(sink))
            if code in SIGNALLED or (code in (CANCELLED, WAITING) and not lines.interactive):
                break  # a pipe is never asked, and its next line is not an answer
    return code


async def _converse(given: InputOptions, taken: Taken, sink: EventSink) -> int:
    """Talk with the person at the terminal; return the exit code of the last turn."""
    settings = await asyncio.to_thread(resolve_settings, run_setup.to_context(taken[2]), taken[0])
    session = ChatSession(taken, settings, sink)
    if known := await asyncio.to_thread(find_thread, session.thread):
        say(_describe_open(known))
    completer = editor.MessageCompleter(PURPOSES, settings.workspace)
    history = settings.home / HISTORY
    line = editor.LineEditor(history=history, completer=completer, status=session.status)
    prompt = f"{GREETING}\n{editor.PROMPT}"
    while not session.left:
        thread, completer.workspace = session.thread, session.settings.workspace
        async with open_session(thread):
            while not session.left and session.thread == thread:
                draft, session.draft = session.draft, ""
                typed, prompt = await editor.next_message(line, prompt, draft), editor.PROMPT
                if typed is None:
                    session.left = True
                elif typed.startswith("/"):
                    await _run_command(typed, session)
                else:
                    if await session.say(typed, given, line.pastes, draft):
                        given = InputOptions()  # only the first turn gets files and pictures
    return session.code


class ChatSession:
    """A chat at a terminal: a thread, what it has so far, and its turns.

    It is the sink of its runs: it passes events on and keeps what the commands show.
    """

    def __init__(self, taken: Taken, settings: Settings, sink: EventSink) -> None:
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
        self.edits: list[Mapping[str, Any]] = []
        """Arguments of the edits that were made."""
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
                self.edits += [args] if event["ok"] else []
            case "final":
                self.spent = add_usage(self.spent, event["usage"])
            case _:
                pass
        self._sink.show(event)

    def status(self) -> str:
        """Return the status line: model, context used, cost, folder, which may be long."""
        used = self._context_tokens / self._window if self._window else 0
        folder, here, home = self.settings.workspace, Path.cwd(), Path.home()
        if folder.is_relative_to(here):
            shown = str(folder.relative_to(here))
        else:
            shown = f"~/{folder.relative_to(home)}" if folder.is_relative_to(home) else str(folder)
        cost = f"${self.spent['cost_usd']:.4f}"
        model, effort = model_name(self.settings.main), self.settings.main.effort
        model = f"{model} ({effort})" if effort else model
        return f"{model} · context {used:.0%} · {cost} · {shown}"

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
            added = editor.own_words(typed, draft)
            words = await asyncio.to_thread(editor.without_mentions, added, workspace)
            own = Origin(words=words, urls=[], tainted=bool(draft or pastes), names=True)
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
            self.code = await run_graph(run, self, TerminalInput(self))
        except (ConfigError, RunError) as error:
            say(str(error))
            return False
        self.left = self.code in SIGNALLED
        self._window = (await resolve_model(self.settings.main)).window
        return True

    async def resume(self, reply: run_setup.ResumeAnswer) -> None:
        resuming = run_setup.resuming_run
        await self.do(await asyncio.to_thread(resuming, self.thread, reply, RunOptions()))


def _describe_open(known: Thread) -> str:
    """Describe the thread of a chat, and how to continue what is open in it.

    An open question is not asked by itself: the person may have come to say something else.
    """
    title = " ".join((known.title or known.task).split())[:SHOWN_TITLE_CHARS]
    hint = " /resume continues what was begun." if known.status in OPEN else ""
    if known.status == "waiting":
        hint = " It waits for you: /resume asks again; a message leaves the question."
    return f"Thread {short_id(known.id)}, {known.status}: {title}{hint}"


async def _run_command(typed: str, session: ChatSession) -> None:
    name, _, argument = typed.strip().partition(" ")
    if name in _COMMANDS:
        command, _ = _COMMANDS[name]
    elif (found := await asyncio.to_thread(usable_prompts, "commands")) and name[1:] in found:
        command = _use_command
        argument = typed
    elif name.startswith(PROMPT_PREFIX):
        command = partial(_use_prompt, name)
    else:
        similar = [known for known in _COMMANDS if known.startswith(name)]
        hint = f"Did you mean {', '.join(similar)}?" if similar else "/help lists them."
        say(f"There is no command {name}. {hint} A message begins without a slash.")
        return
    try:
        await command(session, argument.strip())
    except (ConfigError, RunError) as error:
        say(str(error))


async def _help(session: ChatSession, argument: str) -> None:
    width = max(map(len, PURPOSES))
    for name, purpose in PURPOSES.items():
        say(f"  {name:<{width}}  {purpose}")
    for command in (await asyncio.to_thread(usable_prompts, "commands")).values():
        say(f"  /{command.name}  {command.about}")
    say("Enter sends, Alt+Enter makes a line. @FILE gives a file or a picture to the agent.")


async def _model(session: ChatSession, argument: str) -> None:
    if argument:
        parse_spec(argument)
        await session.change_model(argument)
    say(f"model {model_name(session.settings.main)}")


async def _agent(session: ChatSession, argument: str) -> None:
    if argument:
        check_agent(argument)
        session.agent = argument
    say(f"agent {session.agent} (there are: {', '.join(agent_names())})")


async def _files(session: ChatSession, argument: str) -> None:
    workspace = Workspace.of(session.settings)
    if workspace.root.is_dir():
        say(await asyncio.to_thread(list_folder, workspace, workspace.root))
    else:
        say(f"There are no files in {workspace.root} yet.")


async def _diff(session: ChatSession, argument: str) -> None:
    styles = {"+": "green", "-": "red"}
    for args in session.edits:
        say(screen.describe_call(EDITOR, args))
        for mark, line in screen.edit_diff(EDITOR, args, DIFF_LINES):
            say(f"  {mark} {line}", styles.get(mark, "dim"))
    if not session.edits:
        say("The editor has changed nothing in this chat.")


async def _plan(session: ChatSession, argument: str) -> None:
    known = await asyncio.to_thread(find_thread, session.thread)
    values = (await read_thread(known))[0] if known else {}
    plan = plan_in(values) or active_plan(values.get("plans") or no_plans())
    if plan is None:
        say("This thread has no plan. /agent planning makes one for the next task.")
    else:
        SafeConsole(stderr=True, highlight=False).print(Rendered(plan_document(plan)))


async def _approve(session: ChatSession, argument: str) -> None:
    if argument not in ("", "all"):
        raise ConfigError("Write /approve for the open question, or /approve all.")
    await session.resume(run_setup.ResumeAnswer(approve=True, every=argument == "all"))


async def _compact(session: ChatSession, argument: str) -> None:
    session.compact = await asyncio.to_thread(find_thread, session.thread) is not None
    if session.compact:
        say("Before your next message is answered, the conversation is summarized.")
    else:
        say("There is no conversation yet.")


async def _resume(session: ChatSession, argument: str) -> None:
    if argument:
        chosen = await asyncio.to_thread(lambda: known_thread(thread_id(argument)))
        await session.switch(chosen.id)
        say(f"thread {short_id(session.thread)}")
    known = await asyncio.to_thread(find_thread, session.thread)
    if known is not None and known.status in OPEN:
        await session.resume(run_setup.ResumeAnswer())
    elif not argument:
        await asyncio.to_thread(list_threads)
        say("Continue one of them: /resume ID")


async def _fork(session: ChatSession, argument: str) -> None:
    await asyncio.to_thread(known_thread, session.thread)
    if not argument:
        await asyncio.to_thread(fork.list_points, session.thread)
        say("Go back to one of them: /fork NUMBER")
        return
    new = run_setup.new_thread()
    _, _, lines = await asyncio.to_thread(fork.new_fork, session.thread, argument, new)
    for line in lines:
        say(line)
    await session.switch(new)


async def _show_prompts(session: ChatSession, argument: str) -> None:
    prompts = await mcp.prompts_by_command(session.settings.mcp_servers)
    for command, prompt in prompts.items():
        about = textwrap.shorten(prompt.description, DESCRIPTION_CHARS, placeholder=" ...")
        say(f"  {mcp.usage(command, prompt)}  {about}".rstrip())
    if not prompts:
        say("The configured MCP servers have no prompts.")


async def _use_prompt(command: str, session: ChatSession, argument: str) -> None:
    """Put an MCP prompt into the input line, for the person to read and to send."""
    text = await mcp.read_prompt(session.settings.mcp_servers, command, argument)
    session.draft = f" {text}" if text.startswith("/") else text  # never a command
    say("Enter sends the prompt. It comes from the server: read it first.")


async def _use_command(session: ChatSession, typed: str) -> None:
    """Send what a file says for a slash command, with its model."""
    text, model = await asyncio.to_thread(with_command, typed)
    before = session.options
    session.options = replace(before, model=model or before.model)
    try:
        await session.say(text, InputOptions(), {}, "")
    finally:
        session.options = before


async def _cost(session: ChatSession, argument: str) -> None:
    spent = session.spent
    say(
        f"${spent['cost_usd']:.4f} in this chat: {spent['model_calls']} model calls, "
        f"{spent['input_tokens']:,} tokens in ({spent['cached_tokens']:,} cached), "
        f"{spent['output_tokens']:,} out"
    )


async def _exit(session: ChatSession, argument: str) -> None:
    session.left = True


_COMMANDS: Mapping[str, tuple[Callable[[ChatSession, str], Awaitable[None]], str]] = {
    "/help": (_help, "list the commands"),
    "/model": (_model, "show the model, or change it: /model PROVIDER:NAME"),
    "/agent": (_agent, "show the agent, or change it: /agent NAME"),
    "/files": (_files, "list the files in the workspace"),
    "/diff": (_diff, "show what the editor has changed in this chat"),
    "/plan": (_plan, "show the thread's plan"),
    "/approve": (_approve, "allow the call that waits for you; /approve all: all of them"),
    "/compact": (_compact, "summarize the conversation so far, to make later messages cheaper"),
    "/resume": (_resume, "continue what was stopped; /resume ID: another thread"),
    "/fork": (_fork, "list the thread's points; /fork N: go back to one, as a new thread"),
    "/mcp": (_show_prompts, "list the prompts of MCP servers; /mcp_SERVER_PROMPT: use one"),
    "/cost": (_cost, "show what this chat has cost"),
    "/exit": (_exit, "leave; the thread is kept"),
}
PURPOSES = {name: purpose for name, (_, purpose) in _COMMANDS.items()}
