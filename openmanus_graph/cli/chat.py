"""`openmanus chat`: several turns on one thread, with its kernel and shell kept open."""

import asyncio
import sys
from typing import TYPE_CHECKING

from openmanus_graph.cli.launch import log_file, prepare_input, take_thread, to_context
from openmanus_graph.cli.options import InputOptions, OutputOptions, RunOptions

if TYPE_CHECKING:
    from openmanus_graph.cli.runner import Run

LEAVE = {"/exit", "/quit", "exit", "quit"}
CANCELLED, TERMINATED, WAITING = 130, 143, 4


def chat_with(given: InputOptions, options: RunOptions, output: OutputOptions) -> int:
    """Talk until the person leaves; return the last turn's exit code."""
    from openmanus_graph.cli.trust import ask_for_trust

    ask_for_trust(options.config)
    with log_file(output.log):
        try:
            return asyncio.run(_turns(given, options, output))
        except KeyboardInterrupt:  # at the prompt; a turn obeys the signal itself
            sys.stderr.write("\n")
            return CANCELLED


async def _turns(given: InputOptions, options: RunOptions, output: OutputOptions) -> int:
    from openmanus_graph.cli.lines import Lines
    from openmanus_graph.cli.person import TerminalPerson
    from openmanus_graph.cli.runner import run_graph
    from openmanus_graph.cli.views import make_view
    from openmanus_graph.registry import open_session

    thread, agent, merged = await asyncio.to_thread(take_thread, given, options)
    lines = Lines()
    code = 0
    first = given
    with make_view(output) as view:
        async with open_session(thread):
            while (text := await lines.ask("> ")) is not None and text.strip() not in LEAVE:
                if not text.strip():
                    continue
                run = _turn(text, first, thread, agent, merged)
                first = InputOptions()  # files and pictures go with the first turn
                code = await run_graph(run, view, TerminalPerson(view))
                if code == TERMINATED or (code in (CANCELLED, WAITING) and not lines.interactive):
                    break  # a pipe is never asked, and its next line is no answer
    return code


def _turn(text: str, given: InputOptions, thread: str, agent: str, options: RunOptions) -> "Run":
    from openmanus_graph.cli.runner import Run

    context = to_context(options)
    return Run(
        thread=thread,
        agent=agent,
        task=text,
        context=context,
        options=options.stored(),
        make_input=lambda: prepare_input(text, given, context, thread),
    )
