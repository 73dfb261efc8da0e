"""Replays a recorded run on a graph: no model is reached, no tool runs, nothing is written.

`openmanus replay` works by this, and the tests that it writes.
"""

import dataclasses
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langchain_core.language_models import FakeListChatModel
from langchain_core.runnables import RunnableConfig
from langgraph.prebuilt import ToolRuntime

from openmanus_graph.backends.models.build import MissingModel
from openmanus_graph.backends.persistence.bundles import load_bundle
from openmanus_graph.backends.persistence.recording import Recording, put_beginning
from openmanus_graph.model_calls.replay import Difference, Divergence, RecordReplay, WhatIf
from openmanus_graph.runtime.limits import RECURSION_LIMIT
from openmanus_graph.runtime.replaying import ReplayEndedError, RunLeftError, replaying
from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.session_registry import open_session
from openmanus_graph.runtime.tool_runtime import AskModel, CallRuntime, ManusToolRuntime
from openmanus_graph.state.addresses import DatabaseUrl
from openmanus_graph.state.context import Context
from openmanus_graph.state.model_settings import ModelSettings
from openmanus_graph.state.settings import SandboxSettings, Settings

__all__ = ["Replayed", "load_bundle", "replay"]
_KEY_VARIABLE = "OPENAI_API_KEY"


@dataclass(frozen=True)
class Replayed:
    """The result of a replay."""

    model_calls: int
    """In the record."""
    differences: list[Difference]
    """In the order in which the requests were sent."""
    ended: str
    """Why it ended before the record did; empty if it did not."""
    tool_calls: list[str]
    """Each call that the record answered, as `NAME ARGUMENTS`, in order."""
    answers: list[str]
    """Of the runs, in order."""
    divergence: Divergence | None = None
    """Where the replay stopped, if `what_if` made a difference."""
    repeated: int = 0
    """Number of calls that were really made again."""

    @property
    def is_equal(self) -> bool:
        """Return True if the runs are the same as in the record."""
        return not self.differences and not self.ended

    def first_difference(self) -> str:
        """Return the first request that differs as a diff, or why it ended; empty if neither."""
        return self.differences[0].diff() if self.differences else self.ended


async def replay(
    record: Recording,
    graph: Any,
    context: Context | None = None,
    *,
    elsewhere: bool = True,
    what_if: WhatIf | None = None,
) -> Replayed:
    """Do a record's runs again on a graph.

    Args:
        record: From `load_bundle`.
        graph: Built as the recorded one, with an `InMemorySaver` as its checkpointer.
        context: Of its runs: a changed prompt, say. The workspace is an empty folder.
        elsewhere: Use the instructions (`AGENTS.md`) and skills of the record, because another
            machine has different ones. If False, the present ones are read.
        what_if: A change to try on the runs.

    Raises:
        ConfigError: The settings are wrong.
    """
    run = RecordReplay(record, elsewhere=elsewhere, what_if=what_if)
    asks_model = what_if is not None and what_if.asks_model
    async with open_session(record.thread), _needing_no_key(is_asked=asks_model):
        answers: list[str] = []
        ended = await _run_all(record, graph, _with_recorded_model(context, record), run, answers)
    return Replayed(
        model_calls=len(record.calls),
        differences=run.differences,
        ended=ended,
        tool_calls=run.tool_calls,
        answers=answers,
        divergence=run.divergence,
        repeated=run.repeated,
    )


@asynccontextmanager
async def _needing_no_key(*, is_asked: bool) -> AsyncGenerator[None]:
    """Let settings name OpenAI's models without a key, unless a model is really asked."""
    is_missing = not is_asked and not os.environ.get(_KEY_VARIABLE)
    if is_missing:
        os.environ[_KEY_VARIABLE] = "none"
    try:
        yield
    finally:
        if is_missing:
            del os.environ[_KEY_VARIABLE]


def _with_recorded_model(given: Context | None, record: Recording) -> Context:
    """Set the recorded model, or a placeholder for a model without a name, if none is given."""
    context = given or Context()
    if context.model is not None:
        return context
    name = record.model
    model = name if ":" in name else MissingModel(model_name=name, why="A replay asks no model.")
    return dataclasses.replace(context, model=model)


async def _run_all(
    record: Recording, graph: Any, context: Context, run: RecordReplay, answers: list[str]
) -> str:
    """Do the runs, add their answers, and return why they ended too early; empty if not."""
    config: RunnableConfig = {
        "configurable": {"thread_id": record.thread},
        "recursion_limit": RECURSION_LIMIT,
    }
    await put_beginning(graph.checkpointer, record.thread, record.beginning)
    with replaying(run):
        for given in record.inputs:
            run_context = dataclasses.replace(context, **run.limits_changed())
            try:
                values = await graph.ainvoke(given, config, context=run_context)
            except RunLeftError:
                continue
            except ReplayEndedError as error:
                return str(error)
            if (await graph.aget_state(config)).interrupts:
                return "The run waits for a person here, and the record holds no answer."
            if run.ended:  # the question was skipped
                return run.ended
            answers.append(values["answer"])
    if run.unused:
        return f"The runs ended before model call {run.unused[0]} of the record."
    return ""


def tool_session(workspace: Path, *, sandbox: SandboxSettings | None = None) -> Session:
    """Open a session on a folder; close it when done. Its home is a folder next to it."""
    root = workspace.resolve()
    home = root.with_name(f"{root.name}.openmanus")
    settings = Settings(
        main=ModelSettings(FakeListChatModel(responses=[])),
        vision=None,
        workspace=root,
        home=home,
        database=DatabaseUrl.in_folder(home),
        private=home / "threads" / "test",
        protected=(home,),
        sandbox=sandbox or SandboxSettings(),
    )
    session = Session("test", settings)
    session.workspace.prepare()
    return session


def tool_runtime(
    session: Session, call_id: str = "call_1", *, ask_model: AskModel | None = None
) -> ToolRuntime[Any, Any]:
    """Make the runtime for calling a tool: `await tool.coroutine(..., runtime=this)`.

    Args:
        session: Made by `tool_session`.
        call_id: The model's id of the call.
        ask_model: Answers what the tool asks the run's model: system prompt, question -> text.
    """
    return ManusToolRuntime(
        state={},
        context=None,
        config={},
        stream_writer=lambda _: None,
        tool_call_id=call_id,
        store=None,
        call=CallRuntime(session, ask_model=ask_model),
    )
