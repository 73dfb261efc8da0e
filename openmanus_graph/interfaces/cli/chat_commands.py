"""The commands of the chat, such as `/model`; MCP prompts and files are commands, too."""

import asyncio
import textwrap
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from openmanus_graph.backends.files.overview import list_folder
from openmanus_graph.backends.models.spec import model_name, parse_spec
from openmanus_graph.backends.persistence.threads import Thread
from openmanus_graph.config.claude_files import usable_prompts, with_command
from openmanus_graph.errors import ConfigError
from openmanus_graph.graphs.catalog import agent_names, agent_tools, check_agent
from openmanus_graph.interfaces.cli import fork, mcp
from openmanus_graph.interfaces.cli.call_view import diff_texts, edit_diff
from openmanus_graph.interfaces.cli.chat_session import EDITOR, ChatSession
from openmanus_graph.interfaces.cli.console import Rendered, SafeConsole, say
from openmanus_graph.interfaces.cli.process import StdinLines
from openmanus_graph.interfaces.cli.show import export, read_thread
from openmanus_graph.interfaces.cli.skills import list_skills
from openmanus_graph.interfaces.cli.threads import list_notes, list_threads
from openmanus_graph.interfaces.service import run_setup
from openmanus_graph.interfaces.service.call_titles import describe_call
from openmanus_graph.interfaces.service.options import InputOptions
from openmanus_graph.interfaces.service.own_process import RunError
from openmanus_graph.interfaces.service.thread_view import plan_in
from openmanus_graph.interfaces.service.threads import (
    find_thread,
    known_thread,
    open_threads,
    short_id,
    thread_id,
)
from openmanus_graph.planning.plan import plan_document
from openmanus_graph.runtime.output import money
from openmanus_graph.runtime.workspace import Workspace
from openmanus_graph.state.context import SERVER_TOOL_PREFIX
from openmanus_graph.state.manus import active_plan, no_plans

OPEN = ("waiting", "stopped", "cancelled", "failed", "running")
"""Statuses of threads that can be resumed."""
DIFF_LINES, DIFF_CHARS = 1_000, 10_000
SHOWN_THREADS = 20
DESCRIPTION_CHARS = 200
_PAGES, _MARKDOWN = (".html", ".htm"), ("", ".md", ".markdown", ".txt")
PROMPT_PREFIX = f"/{SERVER_TOOL_PREFIX}"


async def run_command(typed: str, session: ChatSession) -> None:
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
    say("  !COMMAND  runs in the workspace as you; the agent reads its output")
    say("Enter sends, Alt+Enter makes a line, Tab completes, Escape interrupts.")
    say("@FILE gives a file or a picture to the agent.")


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
    for args, output in session.edits:
        say(describe_call(EDITOR, args))
        for line in diff_texts(edit_diff(EDITOR, args, DIFF_LINES, output=output), DIFF_CHARS):
            say(f"  {line.plain}", str(line.style))
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
    known = await _conversation(session)
    asked = (await run_setup.read_thread_state(known.id, known.agent)).state.interrupts
    if not asked:
        raise ConfigError("No call waits for you.")
    if len(asked) > 1 and not argument:
        raise ConfigError(
            "Several calls wait for you. /approve all allows them all; /resume asks one by one."
        )
    await session.resume(run_setup.ResumeAnswer(approve=True, every=argument == "all"))


async def _compact(session: ChatSession, argument: str) -> None:
    await _conversation(session)
    session.compact = True
    say("Before your next message is answered, the conversation is summarized.")


async def _conversation(session: ChatSession) -> Thread:
    """Return the chat's thread. ConfigError if nothing was said in it."""
    known = await asyncio.to_thread(find_thread, session.thread)
    if known is None:
        raise ConfigError("There is no conversation yet.")
    return known


async def _resume(session: ChatSession, argument: str) -> None:
    if argument:
        chosen = await asyncio.to_thread(lambda: known_thread(thread_id(argument)))
        await session.switch(chosen.id)
        await session.look_back(chosen)
        say(f"thread {short_id(session.thread)}")
    known = await asyncio.to_thread(find_thread, session.thread)
    if known is not None and known.status in OPEN:
        await session.resume(run_setup.ResumeAnswer())
    elif not argument:
        await asyncio.to_thread(list_threads, SHOWN_THREADS)
        say("Continue one of them: /resume ID, or choose with the arrows.")
        page = await asyncio.to_thread(
            open_threads().page, SHOWN_THREADS, None, "", archived=False, batch=False
        )
        ids = [short_id(one.id) for _, one in page]
        if ids and (chosen_id := await StdinLines().ask("Thread: ", choices=ids)):
            await _resume(session, chosen_id.strip())


async def _fork(session: ChatSession, argument: str) -> None:
    await _conversation(session)
    if not argument:
        await asyncio.to_thread(fork.list_points, session.thread)
        say("Go back to one of them: /fork NUMBER")
        return
    await _go_back(session, argument)


async def _go_back(session: ChatSession, point: str, files: fork.FilesChoice = "copy") -> None:
    new = run_setup.new_thread()
    _, _, lines = await asyncio.to_thread(fork.new_fork, session.thread, point, new, files)
    for line in lines:
        say(line)
    await session.switch(new)


async def _undo(session: ChatSession, argument: str) -> None:
    await _conversation(session)
    ends: list[str] = []
    before = ""
    for point in await fork.read_points(session.thread):
        if point.what.startswith("you: ") and ends:
            before = ends[-1]
        if point.ended:
            ends.append(point.checkpoint)
    if not before:
        raise ConfigError("Nothing was said before the last message. /new begins another thread.")
    await _go_back(session, before, "in place")


async def _new(session: ChatSession, argument: str) -> None:
    await session.begin(run_setup.new_thread())
    say(f"New thread {short_id(session.thread)}.")


async def _export(session: ChatSession, argument: str) -> None:
    if not argument:
        raise ConfigError("Write /export FILE: a page if it ends in .html, else Markdown.")
    kind = Path(argument).suffix.lower()
    if kind not in (*_PAGES, *_MARKDOWN):
        raise ConfigError(f"A conversation is written as .md or .html, not as {kind}.")
    await _conversation(session)
    is_page = kind in _PAGES
    target = {"html": argument} if is_page else {"output": argument}
    await asyncio.to_thread(export, thread=session.thread, **target)
    if not is_page:
        say(f"{argument} holds the conversation.")


async def _tools(session: ChatSession, argument: str) -> None:
    for tool in await asyncio.to_thread(agent_tools, session.agent):
        say(f"  {tool.name:<22} {tool.description.strip().partition(chr(10))[0]}")
    if servers := session.settings.mcp_servers:
        say(f"MCP servers, with tools of their own: {', '.join(one.name for one in servers)}")


async def _skills(session: ChatSession, argument: str) -> None:
    await asyncio.to_thread(list_skills)


async def _memory(session: ChatSession, argument: str) -> None:
    await asyncio.to_thread(list_notes)


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
    session.draft = f" {text}" if text.startswith(("/", "!")) else text  # never a command
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
        f"{money(spent['cost_usd'])} in this chat: {spent['model_calls']} model calls, "
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
    "/new": (_new, "begin another thread, with the same model and options"),
    "/clear": (_new, "the same"),
    "/undo": (_undo, "go back to before the last message, with the files of then"),
    "/export": (_export, "write the conversation: /export FILE.md or FILE.html"),
    "/tools": (_tools, "list the agent's tools"),
    "/skills": (_skills, "list the skills"),
    "/memory": (_memory, "list the notes of agents"),
    "/resume": (_resume, "continue what was stopped; /resume ID: another thread"),
    "/fork": (_fork, "list the thread's points; /fork N: go back to one, as a new thread"),
    "/mcp": (_show_prompts, "list the prompts of MCP servers; /mcp_SERVER_PROMPT: use one"),
    "/cost": (_cost, "show what this chat has cost"),
    "/exit": (_exit, "leave; the thread is kept"),
}
PURPOSES = {name: purpose for name, (_, purpose) in _COMMANDS.items()}
