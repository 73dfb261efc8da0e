"""`openmanus demo`: a real task on real data; only the model's replies come from a recording."""

from typing import TYPE_CHECKING, Any

from openmanus_graph.demo.recorded import (
    DATA,
    MODEL,
    PLAN_MODEL,
    PLAN_TASK,
    TASK,
    demo_folder,
    recorded_model,
    require_packages,
)
from openmanus_graph.interfaces.cli.run import execute_run
from openmanus_graph.interfaces.cli.safe_console import say
from openmanus_graph.interfaces.service.options import InputOptions, OutputOptions
from openmanus_graph.interfaces.service.run_setup import new_thread, prepare_input

if TYPE_CHECKING:
    from openmanus_graph.interfaces.service.runner import Run
    from openmanus_graph.state.context import Context


def run_demo(workspace: str | None, output: OutputOptions, *, plans: bool) -> int:
    """Run the demo, by a plan if wished, and return its exit code."""
    require_packages(PLAN_MODEL if plans else MODEL)
    if not output.json and not output.quiet:
        say(
            "DEMO: the model's replies come from a recording. Graph, tools, sandbox, limits and "
            "files are real."
        )
    return execute_run(lambda: _make_run(workspace, plans=plans), output)


def _make_run(workspace: str | None, *, plans: bool) -> "Run":
    from openmanus_graph.interfaces.service.runner import Run
    from openmanus_graph.state.context import Context

    thread = f"demo-{new_thread()}"
    agent, task = ("planning", PLAN_TASK) if plans else ("manus", TASK)
    model = recorded_model(PLAN_MODEL if plans else MODEL)
    context = Context(model=model, workspace=workspace)
    return Run(
        thread=thread,
        agent=agent,
        task=task,
        context=context,
        options={},
        make_input=lambda: _make_input(task, context, thread),
    )


def _make_input(task: str, context: "Context", thread: str) -> dict[str, Any]:
    with demo_folder() as folder:
        given = InputOptions(file=[str(folder / DATA)])
        return prepare_input(task, given, context, thread)
