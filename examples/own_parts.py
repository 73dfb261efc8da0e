"""A plain script with its own tools, prompt, model instance, checkpointer and policy.

export OPENAI_API_KEY=...
python own_parts.py "Refund order 1001 if it is less than 50 euros"
"""

import asyncio
import sys
from typing import Any

from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableConfig
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.types import Command

from openmanus_graph import Context, ToolError, build_manus_graph, close, manus_tool
from openmanus_graph.tools.closing import terminate

ORDERS = {"1001": 40, "1002": 900}


@manus_tool(effect="read_only")
def find_order(number: str) -> str:
    """Look an order up.

    Args:
        number: The order's number.
    """
    if number not in ORDERS:
        raise ToolError(f"There is no order {number}. Known: {', '.join(ORDERS)}.")
    return f"Order {number}: {ORDERS[number]} euros."


@manus_tool(effect="external", timeout_s=10)  # asked about first, and never repeated unnoticed
async def refund(number: str, euros: int) -> str:
    """Give money back.

    Args:
        number: The order's number.
        euros: How much.
    """
    return f"{euros} euros of order {number} were paid back."


async def ask(question: str) -> str:
    """Ask the person at the terminal: `approve`, `reject`, or the result in words."""
    return await asyncio.to_thread(input, f"{question} ")


async def main() -> None:
    """Do one task, asking before money is paid."""
    model = ChatOpenAI(model="gpt-5-mini", temperature=0)
    async with AsyncSqliteSaver.from_conn_string("refunds.db") as checkpointer:
        graph = build_manus_graph(
            tools=[find_order, refund, terminate],
            prompts={"system": "You handle refunds. Look an order up before you pay for it."},
            checkpointer=checkpointer,
        )
        config = RunnableConfig(configurable={"thread_id": "refund"})
        context = Context(
            model=model,
            workspace="refunds",
            policy_rules=({"tool": "refund", "args": {"number": "1002"}, "decision": "deny"},),
        )
        given: Any = {"messages": [HumanMessage(sys.argv[1])]}
        result = await graph.ainvoke(given, config, context=context)
        while asked := result.get("__interrupt__"):
            answers = {one.id: await ask(one.value["question"]) for one in asked}
            result = await graph.ainvoke(Command(resume=answers), config, context=context)
        sys.stdout.write(f"{result['answer']}\n")
    await close()


if __name__ == "__main__":
    asyncio.run(main())
