"""Calling one tool without a graph."""

from pathlib import Path
from typing import Any

from langchain_core.language_models import FakeListChatModel
from langgraph.prebuilt import ToolRuntime

from openmanus_graph.sessions import SESSION_KEY, Session
from openmanus_graph.settings import ModelSettings, SandboxSettings, Settings


def tool_session(workspace: Path, *, sandbox: SandboxSettings | None = None) -> Session:
    """Open a session on a folder; close it when done."""
    root = workspace.resolve()
    settings = Settings(
        main=ModelSettings(FakeListChatModel(responses=[])),
        vision=None,
        workspace=root,
        home=root / ".openmanus",
        protected=(root / ".openmanus",),
        sandbox=sandbox or SandboxSettings(),
    )
    session = Session("test", settings)
    session.workspace.prepare()
    return session


def tool_runtime(session: Session, call_id: str = "call_1") -> ToolRuntime[Any, Any]:
    """Make the runtime a tool is called with: `await tool.coroutine(..., runtime=this)`."""
    return ToolRuntime(
        state={},
        context=None,
        config={"configurable": {SESSION_KEY: session}},
        stream_writer=lambda _: None,
        tool_call_id=call_id,
        store=None,
    )
