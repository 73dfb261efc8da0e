"""`openmanus chat`: several turns on one thread, with its kernel and shell kept open."""

import asyncio
import sys

from openmanus_graph.interfaces.cli.run import log_file, require_stdout
from openmanus_graph.interfaces.service.options import InputOptions, OutputOptions, RunOptions
from openmanus_graph.interfaces.service.run_setup import new_run, take_thread

EXIT_WORDS = {"/exit", "/quit", "exit", "quit"}
CANCELLED, SIGNALLED, WAITING = 130, (143, 129), 4


def chat_with(given: InputOptions, options: RunOptions, output: OutputOptions) -> int:
    """Talk until the person leaves; return the last turn's exit code."""
    require_stdout()
    from openmanus_graph.interfaces.cli.trust import ask_for_trust

    ask_for_trust(options.config)
    with log_file(output.log):
        try:
            return asyncio.run(_turns(given, options, output))
        except KeyboardInterrupt:  # at the prompt; a turn obeys the signal itself
            sys.stderr.write("\n")
            return CANCELLED


async def _turns(given: InputOptions, options: RunOptions, output: OutputOptions) -> int:
    from openmanus_graph.interfaces.cli.person import StdinLines, TerminalPerson
    from openmanus_graph.interfaces.cli.views import make_view
    from openmanus_graph.interfaces.service.runner import run_graph
    from openmanus_graph.runtime.session_registry import open_session

    taken = await asyncio.to_thread(take_thread, given, options)
    lines = StdinLines()
    code = 0
    first = given
    with make_view(output) as view:
        async with open_session(taken[0]):
            while (text := await lines.ask("> ")) is not None and text.strip() not in EXIT_WORDS:
                if not text.strip():
                    continue
                run = new_run(text, first, taken)
                first = InputOptions()  # files and pictures go with the first turn
                code = await run_graph(run, view, TerminalPerson(view))
                if code in SIGNALLED or (code in (CANCELLED, WAITING) and not lines.interactive):
                    break  # a pipe is never asked, and its next line is no answer
    return code
