"""`openmanus demo`: a real task on real data; only the model's replies come from a recording."""

import importlib.util
import sys
from contextlib import AbstractContextManager
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openmanus_graph.cli.launch import launch, new_thread, prepare_input
from openmanus_graph.cli.options import InputOptions, OutputOptions
from openmanus_graph.errors import ConfigError

if TYPE_CHECKING:
    from openmanus_graph.cli.runner import Run
    from openmanus_graph.state.context import Context

TASK = (
    "Clean the penguin measurements in penguins-raw.csv, find out how the species differ in size, "
    "draw a chart and write a short report."
)


def run_demo(workspace: str | None, output: OutputOptions) -> int:
    """Run the demo and return its exit code."""
    missing = [name for name in ("pandas", "matplotlib") if not importlib.util.find_spec(name)]
    if missing:
        raise ConfigError(
            f"The demo needs {' and '.join(missing)}: pip install 'openmanus-graph[data]'."
        )
    if not output.json and not output.quiet:
        sys.stderr.write(
            "DEMO: the model's replies come from a recording. Graph, tools, sandbox, limits and "
            "files are real.\n"
        )
    return launch(lambda: _plan(workspace), output)


def _plan(workspace: str | None) -> "Run":
    from openmanus_graph.cli.runner import Run
    from openmanus_graph.state.context import Context
    from openmanus_graph.testing import RecordedChatModel, load_recording

    thread = f"demo-{new_thread()}"
    with _demo_folder() as folder:
        recording = load_recording(folder / "penguins.json")
    context = Context(model=RecordedChatModel(recording), workspace=workspace)
    return Run(
        thread=thread,
        agent="manus",
        task=TASK,
        context=context,
        options={},
        make_input=lambda: _input(context, thread),
    )


def _input(context: "Context", thread: str) -> dict[str, Any]:
    with _demo_folder() as folder:
        given = InputOptions(file=[str(folder / "penguins-raw.csv")])
        return prepare_input(TASK, given, context, thread)


def _demo_folder() -> AbstractContextManager[Path]:
    return resources.as_file(resources.files("openmanus_graph.demo"))
