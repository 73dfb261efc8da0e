"""The agents that are compared: one in-process tool, no streaming, checkpoints in SQLite."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

TEXT = "y" * 700
Mark = Callable[[], None]
"""Called by the tool: a step's reply has come and its request was answered."""


def history(steps: int) -> list[Any]:
    """Make the conversation that an agent has had after so many steps, 1.7 KB each."""
    from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
    from langchain_core.messages.tool import tool_call

    messages: list[Any] = [HumanMessage("go")]
    for step in range(steps):
        args = {"n": step, "text": "x" * 700}
        call = tool_call(name="note", args=args, id=f"call_{step}")
        messages.append(AIMessage(f"step {step}", tool_calls=[call]))
        messages.append(
            ToolMessage(f"noted {step} {TEXT}", name="note", tool_call_id=f"call_{step}")
        )
    return messages


async def openmanus(base_url: str, seed: int, home: Path, mark: Mark, *, streams: bool) -> None:
    """Run manus, with its effect ledger."""
    from openmanus_graph import Context, build_manus_graph, manus_tool
    from openmanus_graph.persistence.checkpoints import open_checkpointer

    async def note(n: int, text: str) -> str:
        """Note.

        Args:
            n: Number.
            text: Text.
        """
        mark()
        return f"noted {n} {TEXT}"

    context = Context(
        model="openai:bench",
        base_url=base_url,
        workspace=str(home / "work"),
        max_steps=10**6,
        model_options={} if streams else {"disable_streaming": True},
    )
    async with open_checkpointer(home) as checkpointer:
        graph = build_manus_graph(
            tools=[manus_tool(effect="workspace")(note)], checkpointer=checkpointer
        )
        await _run(graph, seed, context=context)


async def create_agent(base_url: str, seed: int, home: Path, mark: Mark, *, streams: bool) -> None:
    """Run LangChain's agent with the same saver and durability."""
    from langchain.agents import create_agent as make  # pyright: ignore  # in the group `bench`
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
    from pydantic import SecretStr

    @tool
    async def note(n: int, text: str) -> str:
        """Note."""
        mark()
        return f"noted {n} {TEXT}"

    model = ChatOpenAI(
        model="bench", base_url=base_url, api_key=SecretStr("none"), disable_streaming=not streams
    )
    async with AsyncSqliteSaver.from_conn_string(str(home / "checkpoints.db")) as saver:
        await _run(make(model, [note], checkpointer=saver), seed)


async def bare(base_url: str, seed: int, home: Path, mark: Mark, *, streams: bool) -> None:
    """Loop over the openai client: no graph, nothing saved."""
    import json

    from langchain_core.messages import convert_to_openai_messages
    from openai import AsyncOpenAI

    parameters = {
        "type": "object",
        "properties": {"n": {"type": "integer"}, "text": {"type": "string"}},
        "required": ["n", "text"],
    }
    tools: Any = [
        {
            "type": "function",
            "function": {"name": "note", "description": "Note.", "parameters": parameters},
        }
    ]
    messages: Any = convert_to_openai_messages(history(seed))
    async with AsyncOpenAI(base_url=base_url, api_key="none") as client:
        while True:
            reply = await client.chat.completions.create(
                model="bench", messages=messages, tools=tools
            )
            message = reply.choices[0].message
            messages.append(message.model_dump(exclude_none=True))
            if not message.tool_calls:
                return
            for call in message.tool_calls:
                given = json.loads(call.function.arguments)  # type: ignore[union-attr]
                mark()
                text = f"noted {given['n']} {TEXT}"
                messages.append({"role": "tool", "tool_call_id": call.id, "content": text})


async def _run(graph: Any, seed: int, **more: Any) -> None:
    config = {"configurable": {"thread_id": "bench"}, "recursion_limit": 10**6}
    await graph.ainvoke({"messages": history(seed)}, config, durability="sync", **more)


SUBJECTS: dict[str, Callable[..., Awaitable[None]]] = {
    "openmanus": openmanus,
    "create_agent": create_agent,
    "openai client": bare,
}
