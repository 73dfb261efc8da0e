"""The commands of the chat: `/model`, `/files` and the others, each with what it does."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from openmanus_graph.backends.files.overview import list_folder
from openmanus_graph.backends.models.spec import model_name, parse_spec
from openmanus_graph.backends.persistence.threads import Thread
from openmanus_graph.errors import ConfigError
from openmanus_graph.graphs.catalog import agent_names, check_agent
from openmanus_graph.interfaces.cli.call_lines import describe_call, edit_diff
from openmanus_graph.interfaces.cli.chat_session import EDITOR, ChatSession
from openmanus_graph.interfaces.cli.fork import list_points, new_fork
from openmanus_graph.interfaces.cli.mcp_prompts import PROMPT_PREFIX, show_prompts, use_prompt
from openmanus_graph.interfaces.cli.safe_console import SafeConsole, say
from openmanus_graph.interfaces.cli.screen import Rendered
from openmanus_graph.interfaces.cli.thread_list import list_threads
from openmanus_graph.interfaces.cli.threads import read_thread
from openmanus_graph.interfaces.service.failures import RunError
from openmanus_graph.interfaces.service.options import RunOptions
from openmanus_graph.interfaces.service.run_setup import ResumeAnswer, new_thread, resuming_run
from openmanus_graph.interfaces.service.threads import find_thread, known_thread, thread_id
from openmanus_graph.interfaces.service.transcript import plan_in
from openmanus_graph.planning.plan_view import plan_document
from openmanus_graph.runtime.workspace import Workspace
from openmanus_graph.state.plan import active_plan, no_plans

DIFF_LINES = 1_000
SHOWN_TITLE_CHARS = 100
OPEN = ("waiting", "stopped", "cancelled", "failed", "running")
"""Statuses of threads that can be resumed."""


def goes_on_with(known: Thread) -> str:
    """Say which thread a chat goes on with, and what is open in it.

    A question that waits is not asked by itself: the person may have come to say something else.
    """
    title = " ".join((known.title or known.task).split())[:SHOWN_TITLE_CHARS]
    hint = " /resume goes on with what was begun." if known.status in OPEN else ""
    if known.status == "waiting":
        hint = " It waits for you: /resume asks again; a message leaves the question."
    return f"Thread {known.id}, {known.status}: {title}{hint}"


async def run_command(typed: str, chat: ChatSession) -> None:
    """Run a command as it was typed; say what is wrong with one that cannot be run."""
    name, _, argument = typed.strip().partition(" ")
    command = _COMMANDS.get(name)
    if command is None and name.startswith(PROMPT_PREFIX):
        command = partial(use_prompt, name)
    if command is None:
        similar = [known for known in _COMMANDS if known.startswith(name)]
        hint = f"Did you mean {', '.join(similar)}?" if similar else "/help lists them."
        say(f"There is no command {name}. {hint} A message begins without a slash.")
        return
    try:
        await command(chat, argument.strip())
    except (ConfigError, RunError) as error:
        say(str(error))


async def _help(chat: ChatSession, argument: str) -> None:
    width = max(map(len, PURPOSES))
    for name, purpose in PURPOSES.items():
        say(f"  {name:<{width}}  {purpose}")
    say("Enter sends, Alt+Enter makes a line. @FILE gives a file or a picture to the agent.")


async def _model(chat: ChatSession, argument: str) -> None:
    if argument:
        parse_spec(argument)
        await chat.change(model=argument)
    say(f"model {model_name(chat.settings.main)}")


async def _agent(chat: ChatSession, argument: str) -> None:
    if argument:
        check_agent(argument)
        chat.agent = argument
    say(f"agent {chat.agent} (there are: {', '.join(agent_names())})")


async def _files(chat: ChatSession, argument: str) -> None:
    workspace = Workspace.of(chat.settings)
    if not workspace.root.is_dir():
        say(f"There are no files in {workspace.root} yet.")
        return
    say(await asyncio.to_thread(list_folder, workspace, workspace.root))


async def _diff(chat: ChatSession, argument: str) -> None:
    styles = {"+": "green", "-": "red"}
    for args in chat.sink.edits:
        say(describe_call(EDITOR, args))
        for mark, line in edit_diff(EDITOR, args, DIFF_LINES):
            say(f"  {mark} {line}", styles.get(mark, "dim"))
    if not chat.sink.edits:
        say("The editor has changed nothing in this chat.")


async def _plan(chat: ChatSession, argument: str) -> None:
    known = await asyncio.to_thread(find_thread, chat.thread)
    values = (await read_thread(known))[0] if known else {}
    plan = plan_in(values) or active_plan(values.get("plans") or no_plans())
    if plan is None:
        say("This thread has no plan. /agent planning makes one for the next task.")
        return
    SafeConsole(stderr=True, highlight=False).print(Rendered(plan_document(plan)))


async def _approve(chat: ChatSession, argument: str) -> None:
    if argument not in ("", "all"):
        raise ConfigError("Write /approve for the open question, or /approve all.")
    await _go_on(chat, ResumeAnswer(approve=True, every=argument == "all"))


async def _compact(chat: ChatSession, argument: str) -> None:
    chat.compact = await asyncio.to_thread(find_thread, chat.thread) is not None
    if not chat.compact:
        say("There is no conversation yet.")
        return
    say("Before your next message is answered, the conversation becomes notes.")


async def _resume(chat: ChatSession, argument: str) -> None:
    if argument:
        chosen = await asyncio.to_thread(lambda: known_thread(thread_id(argument)))
        await chat.switch(chosen.id)
        say(f"thread {chat.thread}")
    known = await asyncio.to_thread(find_thread, chat.thread)
    if known is not None and known.status in OPEN:
        await _go_on(chat, ResumeAnswer())
    elif not argument:
        await asyncio.to_thread(list_threads)
        say("Go on with one of them: /resume ID")


async def _go_on(chat: ChatSession, reply: ResumeAnswer) -> None:
    await chat.do(await asyncio.to_thread(resuming_run, chat.thread, reply, RunOptions()))


async def _fork(chat: ChatSession, argument: str) -> None:
    await asyncio.to_thread(lambda: known_thread(chat.thread))
    if not argument:
        await asyncio.to_thread(list_points, chat.thread)
        say("Go back to one of them: /fork NUMBER")
        return
    new = new_thread()
    for line in (await asyncio.to_thread(new_fork, chat.thread, argument, new)).lines:
        say(line)
    await chat.switch(new)


async def _cost(chat: ChatSession, argument: str) -> None:
    spent = chat.sink.spent
    say(
        f"${spent['cost_usd']:.4f} in this chat: {spent['model_calls']} model calls, "
        f"{spent['input_tokens']:,} tokens in ({spent['cached_tokens']:,} cached), "
        f"{spent['output_tokens']:,} out"
    )


async def _exit(chat: ChatSession, argument: str) -> None:
    chat.left = True


PURPOSES = {
    "/help": "list the commands",
    "/model": "show the model, or change it: /model PROVIDER:NAME",
    "/agent": "show the agent, or change it: /agent NAME",
    "/files": "list the files in the workspace",
    "/diff": "show what the editor has changed in this chat",
    "/plan": "show the thread's plan",
    "/approve": "allow the call that waits for you; /approve all: all of them",
    "/compact": "make notes of the conversation so far, which cost less from then on",
    "/resume": "go on with what was stopped; /resume ID: with another thread",
    "/fork": "list the thread's points; /fork N: go back to one, as a new thread",
    "/mcp": "list the prompts of MCP servers; /mcp_SERVER_PROMPT: use one",
    "/cost": "show what this chat has cost",
    "/exit": "leave; the thread is kept",
}
_COMMANDS: dict[str, Callable[[ChatSession, str], Awaitable[None]]] = {
    "/help": _help,
    "/model": _model,
    "/agent": _agent,
    "/files": _files,
    "/diff": _diff,
    "/plan": _plan,
    "/approve": _approve,
    "/compact": _compact,
    "/resume": _resume,
    "/fork": _fork,
    "/mcp": show_prompts,
    "/cost": _cost,
    "/exit": _exit,
    "/quit": _exit,
}
