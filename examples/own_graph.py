"""Manus as one node of your own graph, with your own state.

    export OPENAI_API_KEY=... OPENMANUS_MODEL=openai:gpt-5-mini
    python own_graph.py "the price of copper"

Your state knows nothing of messages; the node turns it into a task and the result back. Questions
and approvals of the agent pause your graph, whose checkpointer keeps them.
"""

import asyncio
import sys
from typing import Any

from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command
from typing_extensions import TypedDict

from openmanus_graph import Context, build_manus_graph, close

manus = build_manus_graph()


class Report(TypedDict):
    """The state of this app."""

    topic: str
    findings: str
    files: list[str]
    text: str


async def research(state: Report) -> dict[str, Any]:
    """Have manus find out about the topic."""
    task = f"Find out about {state['topic']}. Ask me which sources to use."
    result = await manus.ainvoke(
        {"messages": [HumanMessage(task)]}, context=Context(max_steps=10, max_cost_usd=0.5)
    )
    if result["status"] != "finished":
        raise RuntimeError(f"The research ended as {result['stop_reason']}: {result['answer']}")
    files = [artifact["path"] for artifact in result["artifacts"]]
    return {"findings": result["answer"], "files": files}


async def write(state: Report) -> dict[str, Any]:
    """Write the report: an ordinary node of this app."""
    return {"text": f"# {state['topic']}\n\n{state['findings']}\n\nFiles: {state['files']}"}


def build() -> Any:
    """Wire this app's graph."""
    builder = StateGraph(Report)
    builder.add_node("research", research)
    builder.add_node("write", write)
    builder.add_edge(START, "research")
    builder.add_edge("research", "write")
    builder.add_edge("write", END)
    return builder.compile(checkpointer=InMemorySaver())


async def ask(question: str) -> str:
    """Ask the person at the terminal, while other runs go on."""
    return await asyncio.to_thread(input, f"{question} ")


async def main() -> None:
    """Write a report, answering what is asked on the way."""
    graph, config = build(), RunnableConfig(configurable={"thread_id": "report"})
    result = await graph.ainvoke({"topic": sys.argv[1]}, config)
    while asked := result.get("__interrupt__"):
        answers = {one.id: await ask(one.value["question"]) for one in asked}
        result = await graph.ainvoke(Command(resume=answers), config)
    sys.stdout.write(result["text"] + "\n")
    await close()


if __name__ == "__main__":
    asyncio.run(main())
