"""`openmanus run`."""

import sys
from typing import Any

from openmanus_graph.agents import check_agent
from openmanus_graph.cli.launch import launch, prepare_input, take_thread, to_context
from openmanus_graph.cli.options import InputOptions, OutputOptions, RunOptions
from openmanus_graph.errors import ConfigError
from openmanus_graph.models.spec import parse_spec


def run_task(task: str, given: InputOptions, options: RunOptions, output: OutputOptions) -> int:
    """Do one task and return the exit code."""
    text = _standard_input() if task == "-" else _as_text(task)
    if not text.strip():
        raise ConfigError(
            "The task is empty. Say what to do, or pipe it in: openmanus run - < FILE."
        )

    check_agent(given.agent)
    if options.model is not None:
        parse_spec(options.model)  # here, before a second of imports
    from openmanus_graph.cli.trust import ask_for_trust

    ask_for_trust(options.config)

    def plan() -> Any:
        thread, agent, merged = take_thread(given, options)
        from openmanus_graph.cli.runner import Run

        context = to_context(merged)
        return Run(
            thread=thread,
            agent=agent,
            task=text,
            context=context,
            options=merged.stored(),
            make_input=lambda: prepare_input(text, given, context, thread),
        )

    return launch(plan, output)


def _standard_input() -> str:
    return sys.stdin.buffer.read().decode("utf-8", "replace")


def _as_text(argument: str) -> str:
    """Read an argument as UTF-8 whatever the locale: what it cannot read are lone surrogates."""
    return argument.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
