"""`openmanus chat`: several turns on one thread, with its kernel and shell kept open.

At a terminal it also has commands, `/model`, `/files` and others, and MCP prompts as commands.
"""

import asyncio
import shlex
import sys
import textwrap
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from openmanus_graph.backends.files.overview import list_folder
from openmanus_graph.backends.models.spec import model_name, parse_spec
from openmanus_graph.backends.persistence.threads import Thread
from openmanus_graph.config.resolve import resolve_settings
from openmanus_graph.errors import ConfigError
from openmanus_graph.graphs.catalog import agent_names, check_agent
from openmanus_graph.interfaces.cli.chat_session import EDITOR, SIGNALLED, ChatSession, ChatSink
from openmanus_graph.interfaces.cli.console import SafeConsole, say
from openmanus_graph.interfaces.cli.editor import LineEditor, MessageCompleter
from openmanus_graph.interfaces.cli.fork import list_points, new_fork
from openmanus_graph.interfaces.cli.markdown import Rendered
from openmanus_graph.interfaces.cli.run import log_file, make_sink, require_stdout
from openmanus_graph.interfaces.cli.screen import describe_call, edit_diff
from openmanus_graph.interfaces.cli.show import read_thread
from openmanus_graph.interfaces.cli.skills import ask_for_trust
from openmanus_graph.interfaces.cli.threads import list_threads
from openmanus_graph.interfaces.cli.user_input import StdinLines, TerminalInput, has_line_editor
from openmanus_graph.interfaces.service import run_setup
from openmanus_graph.interfaces.service.failures import RunError
from openmanus_graph.interfaces.service.options import (
    InputOptions,
    OutputOptions,
    RunOptions,
    StorageOptions,
    takes,
)
from openmanus_graph.interfaces.service.runner import run_graph
from openmanus_graph.interfaces.service.threads import find_thread, known_thread, thread_id
from openmanus_graph.interfaces.service.transcript import plan_in
from openmanus_graph.planning.plan_view import plan_document
from openmanus_graph.runtime.output import printable
from openmanus_graph.runtime.session_registry import open_session
from openmanus_graph.runtime.workspace import Workspace
from openmanus_graph.state.mcp_server import SERVER_TOOL_PREFIX
from openmanus_graph.state.plan import active_plan, no_plans
from openmanus_graph.tool_calls.agent import load_client

if TYPE_CHECKING:
    from openmanus_graph.backends.mcp.tool import ServerPrompt
    from openmanus_graph.state.mcp_server import MCPServer

EXIT_WORDS = {"/exit", "/quit", "exit", "quit"}
CANCELLED, WAITING = 130, 4
HISTORY = "chat-history"
"""In the home folder: what was typed at the prompt."""
PROMPT = "> "
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


@takes(InputOptions, RunOptions, OutputOptions, StorageOptions)
def chat(given: InputOptions, options: RunOptions, output: OutputOptions) -> int:
    """Talk with the agent: several turns on one thread."""
    require_stdout()
    ask_for_trust(options.config)
    with log_file(output.log):
        try:
            if has_line_editor() and not output.json:
                return asyncio.run(_converse(given, options, output))
            return asyncio.run(_read_turns(given, options, output))
        except KeyboardInterrupt:  # at the prompt; a turn handles the signal itself
            sys.stderr.write("\n")
            return CANCELLED


async def _read_turns(given: InputOptions, options: RunOptions, output: OutputOptions) -> int:
    """Take each line of a pipe as a turn; return the exit code of the last one."""
    taken = await asyncio.to_thread(run_setup.take_thread, given, options)
    lines = StdinLines()
    code = 0
    with make_sink(output) as sink:
        async with open_session(taken[0]):
            while (text := await lines.ask(PROMPT)) is not None and text.strip() not in EXIT_WORDS:
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


async def _converse(given: InputOptions, options: RunOptions, output: OutputOptions) -> int:
    """Talk with the person at the terminal; return the exit code of the last turn."""
    taken = await asyncio.to_thread(run_setup.take_thread, given, options)
    settings = await asyncio.to_thread(resolve_settings, run_setup.to_context(taken[2]), taken[0])
    if known := await asyncio.to_thread(find_thread, taken[0]):
        say(_describe_open(known))
    with make_sink(output) as sink:
        session = ChatSession(taken, settings, ChatSink(sink))
        completer = MessageCompleter(PURPOSES, settings.workspace)
        editor = LineEditor(
            history=settings.home / HISTORY, completer=completer, status=session.status
        )
        prompt = f"{GREETING}\n{PROMPT}"
        while not session.left:
            thread, completer.workspace = session.thread, session.settings.workspace
            async with open_session(thread):
                while not session.left and session.thread == thread:
                    draft, session.draft = session.draft, ""
                    typed, prompt = await _next_message(editor, prompt, draft), PROMPT
                    if typed is None:
                        session.left = True
                    elif typed.startswith("/"):
                        await _run_command(typed, session)
                    else:
                        await session.say(typed, given, editor.pastes, draft)
                        given = InputOptions()  # only the first turn gets files and pictures
    return session.code


def _describe_open(known: Thread) -> str:
    """Describe the thread of a chat, and how to continue what is open in it.

    An open question is not asked by itself: the person may have come to say something else.
    """
    title = " ".join((known.title or known.task).split())[:SHOWN_TITLE_CHARS]
    hint = " /resume continues what was begun." if known.status in OPEN else ""
    if known.status == "waiting":
        hint = " It waits for you: /resume asks again; a message leaves the question."
    return f"Thread {known.id}, {known.status}: {title}{hint}"


async def _next_message(editor: LineEditor, prompt: str, draft: str) -> str | None:
    """Return the next message; None when the person leaves.

    KeyboardInterrupt: Ctrl-C was typed twice in an empty line.
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


async def _run_command(typed: str, session: ChatSession) -> None:
    name, _, argument = typed.strip().partition(" ")
    if name in _COMMANDS:
        command, _ = _COMMANDS[name]
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
    say("Enter sends, Alt+Enter makes a line. @FILE gives a file or a picture to the agent.")


async def _model(session: ChatSession, argument: str) -> None:
    if argument:
        parse_spec(argument)
        await session.change(model=argument)
    say(f"model {model_name(session.settings.main)}")


async def _agent(session: ChatSession, argument: str) -> None:
    if argument:
        check_agent(argument)
        session.agent = argument
    say(f"agent {session.agent} (there are: {', '.join(agent_names())})")


async def _files(session: ChatSession, argument: str) -> None:
    workspace = Workspace.of(session.settings)
    if not workspace.root.is_dir():
        say(f"There are no files in {workspace.root} yet.")
        return
    say(await asyncio.to_thread(list_folder, workspace, workspace.root))


async def _diff(session: ChatSession, argument: str) -> None:
    styles = {"+": "green", "-": "red"}
    for args in session.sink.edits:
        say(describe_call(EDITOR, args))
        for mark, line in edit_diff(EDITOR, args, DIFF_LINES):
            say(f"  {mark} {line}", styles.get(mark, "dim"))
    if not session.sink.edits:
        say("The editor has changed nothing in this chat.")


async def _plan(session: ChatSession, argument: str) -> None:
    known = await asyncio.to_thread(find_thread, session.thread)
    values = (await read_thread(known))[0] if known else {}
    plan = plan_in(values) or active_plan(values.get("plans") or no_plans())
    if plan is None:
        say("This thread has no plan. /agent planning makes one for the next task.")
        return
    SafeConsole(stderr=True, highlight=False).print(Rendered(plan_document(plan)))


async def _approve(session: ChatSession, argument: str) -> None:
    if argument not in ("", "all"):
        raise ConfigError("Write /approve for the open question, or /approve all.")
    await _continue(session, run_setup.ResumeAnswer(approve=True, every=argument == "all"))


async def _compact(session: ChatSession, argument: str) -> None:
    session.compact = await asyncio.to_thread(find_thread, session.thread) is not None
    if not session.compact:
        say("There is no conversation yet.")
        return
    say("Before your next message is answered, the conversation is summarized.")


async def _resume(session: ChatSession, argument: str) -> None:
    if argument:
        chosen = await asyncio.to_thread(lambda: known_thread(thread_id(argument)))
        await session.switch(chosen.id)
        say(f"thread {session.thread}")
    known = await asyncio.to_thread(find_thread, session.thread)
    if known is not None and known.status in OPEN:
        await _continue(session, run_setup.ResumeAnswer())
    elif not argument:
        await asyncio.to_thread(list_threads)
        say("Continue one of them: /resume ID")


async def _continue(session: ChatSession, reply: run_setup.ResumeAnswer) -> None:
    await session.do(
        await asyncio.to_thread(run_setup.resuming_run, session.thread, reply, RunOptions())
    )


async def _fork(session: ChatSession, argument: str) -> None:
    await asyncio.to_thread(lambda: known_thread(session.thread))
    if not argument:
        await asyncio.to_thread(list_points, session.thread)
        say("Go back to one of them: /fork NUMBER")
        return
    new = run_setup.new_thread()
    _, _, lines = await asyncio.to_thread(new_fork, session.thread, argument, new)
    for line in lines:
        say(line)
    await session.switch(new)


async def _show_prompts(session: ChatSession, argument: str) -> None:
    prompts = await _prompts_by_command(session)
    for command, prompt in prompts.items():
        purpose = textwrap.shorten(prompt.description, DESCRIPTION_CHARS, placeholder=" ...")
        say(f"  {_usage(command, prompt)}  {purpose}".rstrip())
    if not prompts:
        say("The configured MCP servers have no prompts.")


async def _use_prompt(command: str, session: ChatSession, argument: str) -> None:
    """Put an MCP prompt into the input line, for the person to read and to send."""
    prompt = (await _prompts_by_command(session)).get(command)
    if prompt is None:
        raise ConfigError(f"There is no prompt {command}. /mcp lists them.")
    try:
        values = shlex.split(argument)
    except ValueError as error:
        raise ConfigError(f"The arguments cannot be read: {error}.") from error
    required = sum(prompt.arguments.values())
    if not required <= len(values) <= len(prompt.arguments):
        raise ConfigError(f"Write {_usage(command, prompt)}")
    from openmanus_graph.backends.mcp.failures import ServerError
    from openmanus_graph.backends.mcp.tool import get_prompt

    args = dict(zip(prompt.arguments, values, strict=False))
    try:
        text = printable(await get_prompt(prompt, args))
    except ServerError as error:
        raise ConfigError(f"The MCP server {prompt.server.name} {error}") from error
    # A server's text is never a command.
    session.draft = f" {text}" if text.startswith("/") else text
    say("Enter sends the prompt. It comes from the server: read it first.")


async def _prompts_by_command(session: ChatSession) -> "dict[str, ServerPrompt]":
    servers = [server for server in session.settings.mcp_servers if server.enabled]
    if not servers:
        raise ConfigError("No MCP server is configured: mcp.json or [mcp.servers.NAME] names them.")
    await asyncio.to_thread(load_client)
    from openmanus_graph.backends.mcp.tool import tool_name

    found: dict[str, ServerPrompt] = {}
    for prompts in await asyncio.gather(*map(_prompts_of, servers)):
        for prompt in prompts:
            taken = [command.removeprefix("/") for command in found]
            found[f"/{tool_name(prompt.server.name, prompt.name, taken)}"] = prompt
    return found


async def _prompts_of(server: "MCPServer") -> "list[ServerPrompt]":
    from openmanus_graph.backends.mcp.failures import ServerError
    from openmanus_graph.backends.mcp.tool import list_prompts

    try:
        return await list_prompts(server)
    except ServerError as error:
        say(f"The MCP server {server.name} {error}")
        return []


def _usage(command: str, prompt: "ServerPrompt") -> str:
    given = prompt.arguments.items()
    names = [name.upper() if needed else f"[{name.upper()}]" for name, needed in given]
    return " ".join([command, *names])


async def _cost(session: ChatSession, argument: str) -> None:
    spent = session.sink.spent
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
