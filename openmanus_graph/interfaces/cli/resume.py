"""`openmanus resume`: go on with a thread that was stopped, waits, or was cut off."""

from openmanus_graph.interfaces.cli.launch import launch
from openmanus_graph.interfaces.service.options import OutputOptions, RunOptions
from openmanus_graph.interfaces.service.resume import Reply, plan_resume


def resume_thread(thread: str, reply: Reply, options: RunOptions, output: OutputOptions) -> int:
    """Go on with a thread and return the exit code."""
    reply.value()  # wrong usage is told before anything is opened
    from openmanus_graph.interfaces.cli.trust import ask_for_trust

    ask_for_trust(options.config)
    return launch(lambda: plan_resume(thread, reply, options), output)
