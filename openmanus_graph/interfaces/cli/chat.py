"""`openmanus chat`: several turns on one thread, with its kernel and shell kept open.

At a terminal it also has commands, `/model`, `/files` and others, and MCP prompts as commands.
"""

import asyncio
import sys
import textwrap

from openmanus_graph.backends.persistence.threads import Thread
from openmanus_graph.config.resolve import resolve_settings
from openmanus_graph.interfaces.cli import editor, process
from openmanus_graph.interfaces.cli.chat_commands import OPEN, PURPOSES, run_command
from openmanus_graph.interfaces.cli.chat_session import ChatSession, Taken
from openmanus_graph.interfaces.cli.console import say
from openmanus_graph.interfaces.cli.run import log_file, make_sink, require_stdout, show_worktree
from openmanus_graph.interfaces.cli.skills import ask_before_run
from openmanus_graph.interfaces.cli.terminal import TerminalInput
from openmanus_graph.interfaces.service import run_setup
from openmanus_graph.interfaces.service.options import (
    InputOptions,
    OutputOptions,
    RunOptions,
    StorageOptions,
    takes,
)
from openmanus_graph.interfaces.service.runner import EventSink, run_graph
from openmanus_graph.interfaces.service.threads import find_thread, short_id
from openmanus_graph.runtime.session_registry import open_session

CANCELLED, WAITING = 130, 4
SIGNALLED = (143, 129)
HISTORY = "chat-history"
"""In the home folder: what was typed at the prompt."""
GREETING = (
    "OpenManus. Enter sends, Alt+Enter makes a line, @ names a file, Escape interrupts.",
    "/help lists the commands.",
)
"""Part of the first prompt, so that the editor is ready when a person reads it."""
NO_COMMANDS = (
    "This terminal (TERM=dumb) has no commands but /exit. Nothing was sent; begin with another "
    "character to send it."
)
SHOWN_TITLE_CHARS = 100


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
    completer = editor.MessageCompleter(PURPOSES, settings.workspace)
    history = settings.home / HISTORY
    line = editor.LineEditor(history=history, completer=completer, status=lambda: session.status())
    session = ChatSession(taken, settings, sink, line)
    if known := await asyncio.to_thread(find_thread, session.thread):
        await session.look_back(known)
        say(_describe_open(known))
    width = line.app.output.get_size().columns - 1
    hint = "" if taken[2].workspace else "; to work here: openmanus chat --workspace ."
    parts = (GREETING[0], f"Files are in {session.folder()}{hint}", GREETING[1])
    greeting = [textwrap.fill(part, width) for part in parts]
    prompt = "\n".join([*greeting, editor.PROMPT])
    with line.keep_brackets():
        while not session.left:
            thread, completer.workspace = session.thread, session.settings.workspace
            async with open_session(thread):
                while not session.left and session.thread == thread:
                    typed, draft = await session.next_message(prompt)
                    prompt = f"\n{editor.PROMPT}"
                    if typed is None:
                        session.left = True
                    elif typed.startswith("/"):
                        await run_command(typed, session)
                    elif typed.startswith("!"):
                        await session.run_shell(typed[1:])
                    elif await session.say(typed, given, line.pastes, draft):
                        given = InputOptions()  # only the first turn gets files and pictures
    await session.say_how_to_continue()
    return session.code


def _describe_open(known: Thread) -> str:
    """Describe the thread of a chat, and how to continue what is open in it.

    An open question is not asked by itself: the person may have come to say something else.
    """
    title = " ".join((known.title or known.task).split())[:SHOWN_TITLE_CHARS]
    hint = " /resume continues what was begun." if known.status in OPEN else ""
    if known.status == "waiting":
        hint = " It waits for you: /resume asks again; a message leaves the question."
    return f"Thread {short_id(known.id)}, {known.status}: {title.rstrip('.')}.{hint}"
