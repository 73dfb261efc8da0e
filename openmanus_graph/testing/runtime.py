"""Session and runtime for calling one tool without a graph."""

from pathlib import Path
from typing import Any

from langchain_core.language_models import FakeListChatModel
from langgraph.prebuilt import ToolRuntime

from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.tool_runtime import AskModel, CallRuntime, ManusToolRuntime
from openmanus_graph.state.addresses import DatabaseUrl
from openmanus_graph.state.model_settings import ModelSettings
from openmanus_graph.state.settings import SandboxSettings, Settings


def tool_session(workspace: Path, *, sandbox: SandboxSettings | None = None) -> Session:
    """Open a session on a folder; close it when done. Its home is a folder beside that one."""
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
    """Make the runtime a tool is called with: `await tool.coroutine(..., runtime=this)`.

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
