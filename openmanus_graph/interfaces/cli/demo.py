"""`openmanus demo`: a real task on real data; only the model's replies come from a recording."""

import importlib.util
from contextlib import AbstractContextManager
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openmanus_graph.errors import ConfigError
from openmanus_graph.interfaces.cli.run import execute_run
from openmanus_graph.interfaces.cli.safe_console import say
from openmanus_graph.interfaces.service.options import InputOptions, OutputOptions
from openmanus_graph.interfaces.service.run_setup import new_thread, prepare_input

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

    from openmanus_graph.interfaces.service.runner import Run
    from openmanus_graph.state.context import Context

TASK = (
    "Clean the penguin measurements in penguins-raw.csv, find out how the species differ in size, "
    "draw a chart and write a short report."
)
PLAN_TASK = (
    "Clean the penguin measurements in penguins-raw.csv, find out how the species differ in size "
    "and where and when they were measured, draw charts and write a report."
)


def run_demo(workspace: str | None, output: OutputOptions, *, plans: bool) -> int:
    """Run the demo, by a plan if wished, and return its exit code."""
    needed = ("pandas", "altair", "vl_convert") if plans else ("pandas", "matplotlib")
    missing = [name for name in needed if not importlib.util.find_spec(name)]
    if missing:
        raise ConfigError(
            f"The demo needs {' and '.join(missing)}: pip install 'openmanus-graph[data]'."
        )
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
    with _demo_folder() as folder:
        model = _recorded_model(folder, plans=plans)
    context = Context(model=model, workspace=workspace)
    return Run(
        thread=thread,
        agent=agent,
        task=task,
        context=context,
        options={},
        make_input=lambda: _make_input(task, context, thread),
    )


def _recorded_model(folder: Path, *, plans: bool) -> "BaseChatModel":
    from openmanus_graph.testing import (
        RecordedChatModel,
        RecordedPlanModel,
        load_conversations,
        load_recording,
    )

    if not plans:
        return RecordedChatModel(load_recording(folder / "penguins.json"))
    conversations = load_conversations(folder / "penguins-plan.json")
    # The charts go to the model as to one that sees them.
    return RecordedPlanModel(conversations, profile={"image_inputs": True})


def _make_input(task: str, context: "Context", thread: str) -> dict[str, Any]:
    with _demo_folder() as folder:
        given = InputOptions(file=[str(folder / "penguins-raw.csv")])
        return prepare_input(task, given, context, thread)


def _demo_folder() -> AbstractContextManager[Path]:
    return resources.as_file(resources.files("openmanus_graph.demo"))
