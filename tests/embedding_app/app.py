"""An app that embeds manus, has a package `tools` of its own, and runs a real sandbox."""

import asyncio
import tempfile

from langchain_core.messages import AIMessage, HumanMessage
from tools import double

from openmanus_graph import Context, build_manus_graph
from openmanus_graph.testing import ScriptedChatModel


async def main() -> None:
    """Run manus on a scripted model with a tool of the app and Python in the sandbox."""
    calls = [
        {"name": "double", "args": {"number": 21}, "id": "1", "type": "tool_call"},
        {
            "name": "python_execute",
            "args": {"code": "print(6 * 7)"},
            "id": "2",
            "type": "tool_call",
        },
    ]
    model = ScriptedChatModel([AIMessage("", tool_calls=calls), "The answer is 42."])
    graph = build_manus_graph(extra_tools=[double])
    with tempfile.TemporaryDirectory() as workspace:
        result = await graph.ainvoke(
            {"messages": [HumanMessage("What is 42?")]},
            context=Context(model=model, workspace=workspace),
        )
    results = [message.text for message in result["messages"] if message.type == "tool"]
    if results != ["42", "42"] or result["answer"] != "The answer is 42.":
        raise SystemExit(f"unexpected: {results}, {result['answer']}")


asyncio.run(main())
