"""Running compiled graphs with a scripted model."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage
from langchain_core.messages.tool import tool_call
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool

from openmanus_graph import Context
from openmanus_graph.testing import ScriptedChatModel

Answer = str | AIMessage | Exception | Callable[[list[BaseMessage]], Any]


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@dataclass
class Ran:
    """What a run came to."""

    values: dict[str, Any]
    nodes: list[str]
    events: list[dict[str, Any]]
    model: ScriptedChatModel

    @property
    def messages(self) -> list[AnyMessage]:
        messages: list[AnyMessage] = self.values["messages"]
        return messages

    def results(self) -> list[str]:
        return [message.text for message in self.messages if message.type == "tool"]

    def kinds(self) -> list[str]:
        return [event["type"] for event in self.events if event["type"] != "notice"]


def calls(*made: tuple[str, dict[str, Any]], text: str = "", prefix: str = "c") -> AIMessage:
    """Make a reply that calls tools."""
    return AIMessage(
        text,
        tool_calls=[
            tool_call(name=name, args=args, id=f"{prefix}{number}")
            for number, (name, args) in enumerate(made, 1)
        ],
    )


def scripted(*answers: Answer, **fields: Any) -> ScriptedChatModel:
    return ScriptedChatModel(list(answers), **fields)


async def run_graph(
    graph: Any,
    *answers: Answer,
    task: Any = "the task",
    config: RunnableConfig | None = None,
    model: Any = None,
    **context: Any,
) -> Ran:
    """Run a graph to its end or to a question, and return what happened on the way."""
    model = model or scripted(*answers)
    given = {"messages": [HumanMessage(task)]} if isinstance(task, str) else task
    values: dict[str, Any] = {}
    nodes: list[str] = []
    events: list[dict[str, Any]] = []
    context.setdefault("workspace", str(Path("work")))
    parts = graph.astream(
        given,
        config,
        context=Context(model=model, **context),
        stream_mode=["updates", "custom", "values"],
        version="v2",
        subgraphs=True,
        durability="sync" if graph.checkpointer else None,
    )
    async for part in parts:
        if part["type"] == "custom":
            events.append(part["data"])
        elif part["ns"]:
            continue  # of a graph inside this one
        elif part["type"] == "updates":
            nodes += [name for name in part["data"] if not name.startswith("__")]
        else:
            values = part["data"]
    return Ran(values, nodes, events, model)


def own_text(message: BaseMessage) -> str:
    """Return a request's message without what it tells of the environment."""
    return own_words(message.text)


def own_words(content: str) -> str:
    """Return the text of a user message without what stands before it of the environment."""
    return content.rpartition("[The message:]\n")[2]
