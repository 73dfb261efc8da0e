"""`openmanus chat`: several turns on one thread, with its kernel and shell kept open."""

import asyncio
import sys
from typing import TYPE_CHECKING

from openmanus_graph.interfaces.cli.run import log_file, require_stdout
from openmanus_graph.interfaces.service.options import InputOptions, OutputOptions, RunOptions
from openmanus_graph.interfaces.service.run_setup import new_run, take_thread, to_context

if TYPE_CHECKING:
    from openmanus_graph.interfaces.cli.editor import LineEditor

EXIT_WORDS = {"/exit", "/quit", "exit", "quit"}
CANCELLED, SIGNALLED, WAITING = 130, (143, 129), 4
HISTORY = "chat-history"
"""In the home folder: what was typed at the prompt."""
PROMPT = "> "
GREETING = "Enter sends, Alt+Enter makes a line, /help lists the commands."
"""Part of the first prompt: who reads it types into an editor that is ready, and can paste."""

NO_COMMANDS = (
    "This terminal (TERM=dumb) has no commands but /exit. Nothing was sent; begin with another "
    "character to send it."
)


def chat_with(given: InputOptions, options: RunOptions, output: OutputOptions) -> int:
    """Talk until the person leaves; return the last turn's exit code."""
    require_stdout()
    from openmanus_graph.interfaces.cli.trust import ask_for_trust
    from openmanus_graph.interfaces.cli.user_input import has_line_editor

    ask_for_trust(options.config)
    with log_file(output.log):
        try:
            if has_line_editor() and not output.json:
                return asyncio.run(_converse(given, options, output))
            return asyncio.run(_turns(given, options, output))
        except KeyboardInterrupt:  # at the prompt; a turn obeys the signal itself
            sys.stderr.write("\n")
            return CANCELLED


async def _turns(given: InputOptions, options: RunOptions, output: OutputOptions) -> int:
    """Take each line of a pipe as a turn."""
    from openmanus_graph.interfaces.cli.choose_sink import make_sink
    from openmanus_graph.interfaces.cli.safe_console import say
    from openmanus_graph.interfaces.cli.slash_commands import PURPOSES
    from openmanus_graph.interfaces.cli.user_input import StdinLines, TerminalInput
    from openmanus_graph.interfaces.service.runner import run_graph
    from openmanus_graph.runtime.session_registry import open_session

    taken = await asyncio.to_thread(take_thread, given, options)
    lines = StdinLines()
    code = 0
    first = given
    with make_sink(output) as sink:
        async with open_session(taken[0]):
            while (text := await lines.ask("> ")) is not None and text.strip() not in EXIT_WORDS:
                if not text.strip():
                    continue
                if lines.interactive and text.split()[0] in PURPOSES:
                    say(NO_COMMANDS)
                    continue
                run = new_run(text, first, taken)
                first = InputOptions()  # files and pictures go with the first turn
                code = await run_graph(run, sink, TerminalInput(sink))
                if code in SIGNALLED or (code in (CANCELLED, WAITING) and not lines.interactive):
                    break  # a pipe is never asked, and its next line is no answer
    return code


async def _converse(given: InputOptions, options: RunOptions, output: OutputOptions) -> int:
    """Talk with the person at the terminal."""
    from openmanus_graph.config import resolve_settings
    from openmanus_graph.interfaces.cli.chat_session import ChatSession, ChatSink
    from openmanus_graph.interfaces.cli.choose_sink import make_sink
    from openmanus_graph.interfaces.cli.editor import LineEditor
    from openmanus_graph.interfaces.cli.mentions import MessageCompleter
    from openmanus_graph.interfaces.cli.safe_console import say
    from openmanus_graph.interfaces.cli.slash_commands import PURPOSES, goes_on_with, run_command
    from openmanus_graph.interfaces.service.threads import find_thread
    from openmanus_graph.runtime.session_registry import open_session

    taken = await asyncio.to_thread(take_thread, given, options)
    settings = await asyncio.to_thread(resolve_settings, to_context(taken[2]), taken[0])
    if known := await asyncio.to_thread(find_thread, taken[0]):
        say(goes_on_with(known))
    with make_sink(output) as sink:
        chat = ChatSession(taken, settings, ChatSink(sink))
        completer = MessageCompleter(PURPOSES, settings.workspace)
        editor = LineEditor(
            history=settings.home / HISTORY, completer=completer, status=chat.status
        )
        prompt = f"{GREETING}\n{PROMPT}"
        while not chat.left:
            thread, completer.workspace = chat.thread, chat.settings.workspace
            async with open_session(thread):
                while not chat.left and chat.thread == thread:
                    draft, chat.draft = chat.draft, ""
                    typed, prompt = await _next_message(editor, prompt, draft), PROMPT
                    if typed is None:
                        chat.left = True
                    elif typed.startswith("/"):
                        await run_command(typed, chat)
                    else:
                        await chat.say(typed, given, editor.pastes, draft)
                        given = InputOptions()  # files and pictures go with the first turn
    return chat.code


async def _next_message(editor: "LineEditor", prompt: str, draft: str) -> str | None:
    """Return what the person says next; None when he leaves.

    Args:
        editor: Reads it.
        prompt: What stands before it at first.
        draft: What is in the line at first.

    Raises:
        KeyboardInterrupt: At Ctrl-C twice in an empty line.
    """
    warned = False
    while True:
        try:
            shown, draft = draft, ""
            typed = await editor.read(prompt, draft=shown)
        except KeyboardInterrupt:
            prompt = PROMPT
            if editor.unsent:
                warned = False
                continue
            if warned:
                raise
            warned = True
            sys.stderr.write("Ctrl-C again, Ctrl-D or /exit leaves.\n")
            continue
        if typed is None or typed.strip() in EXIT_WORDS:
            return None
        if typed.strip():
            return typed
