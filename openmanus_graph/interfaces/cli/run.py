"""`openmanus run`."""

import sys

from openmanus_graph.backends.models.spec import parse_spec
from openmanus_graph.errors import ConfigError
from openmanus_graph.graphs.catalog import check_agent
from openmanus_graph.interfaces.cli.launch import launch
from openmanus_graph.interfaces.service.launch import new_run, take_thread
from openmanus_graph.interfaces.service.options import InputOptions, OutputOptions, RunOptions
from openmanus_graph.interfaces.service.resume import Reply, plan_resume


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
    from openmanus_graph.interfaces.cli.trust import ask_for_trust

    ask_for_trust(options.config)

    return launch(lambda: new_run(text, given, take_thread(given, options)), output)


def _standard_input() -> str:
    return sys.stdin.buffer.read().decode("utf-8", "replace")


def _as_text(argument: str) -> str:
    """Read an argument as UTF-8 whatever the locale: what it cannot read are lone surrogates."""
    return argument.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def resume_thread(thread: str, reply: Reply, options: RunOptions, output: OutputOptions) -> int:
    """Go on with a thread and return the exit code."""
    reply.value()  # wrong usage is told before anything is opened
    from openmanus_graph.interfaces.cli.trust import ask_for_trust

    ask_for_trust(options.config)
    return launch(lambda: plan_resume(thread, reply, options), output)
