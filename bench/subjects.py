"""The agents that are compared: one in-process tool, no streaming, checkpoints in SQLite.

With `OPENMANUS_DATABASE_URL` set, those in the PostgreSQL database that it names.
"""

import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TEXT = "y" * 700
UNLIMITED = 10**9


@dataclass
class Work:
    """What an agent is to do."""

    base_url: str
    home: Path
    """For its files; the thread has the folder's name."""
    mark: Callable[[], None]
    """To be called by the tool: a step's reply has come and its request was answered."""
    seed: int = 0
    """Steps that the conversation has had before."""
    window: int = UNLIMITED
    """Tokens that the model takes; a longer conversation is compacted."""
    own_tools: bool = False
    """openmanus: its own tools instead of the one."""
    streams: bool = False
    seconds: list[float] = field(default_factory=list[float])
    """openmanus: what each call of a tool took."""


Agent = Callable[[Work], Awaitable[None]]


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


@asynccontextmanager
async def openmanus(home: Path) -> AsyncGenerator[Agent]:
    """Manus, with its effect ledger. All agents of a process share a saver, as a server's do."""
    from openmanus_graph import build_manus_graph
    from openmanus_graph.backends.persistence.checkpoints import open_checkpointer
    from openmanus_graph.config.resolve import database_url

    async with open_checkpointer(database_url()) as checkpointer:
        yield lambda work: _openmanus(work, build_manus_graph, checkpointer)


async def _openmanus(work: Work, build: Any, checkpointer: Any) -> None:
    from openmanus_graph import Context

    settings = work.home / "bench.toml"
    settings.write_text(f"[llm]\ncontext_window = {work.window}\n")
    context = Context(
        model="openai:bench",
        base_url=work.base_url,
        workspace=str(work.home / "work"),
        max_steps=10**6,
        model_options={} if work.streams else {"disable_streaming": True},
        config=str(settings),
    )
    tools = None if work.own_tools else _tools(work)
    graph = build(tools=tools, checkpointer=checkpointer)
    async for event in _run(graph, work, context=context, stream_mode="custom"):
        if event["type"] == "tool_start" and work.own_tools:
            work.mark()
        if event["type"] == "tool_end":
            work.seconds.append(event["seconds"])


def _tools(work: Work) -> list[Any]:
    import asyncio

    from openmanus_graph import manus_tool

    async def note(n: int, text: str) -> str:
        """Note.

        Args:
            n: Number.
            text: Text.
        """
        work.mark()
        return f"noted {n} {TEXT}"

    async def wait(n: int) -> str:
        """Wait a second.

        Args:
            n: Number.
        """
        await asyncio.sleep(1)
        work.mark()
        return f"waited {n}"

    return [manus_tool(effect="workspace")(note), manus_tool(effect="pure")(wait)]


@asynccontextmanager
async def create_agent(home: Path) -> AsyncGenerator[Agent]:
    """LangChain's agent with the same durability; its agents share a saver, too."""
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

    if address := os.environ.get("OPENMANUS_DATABASE_URL"):
        async with postgres_saver(address) as saver:
            yield lambda work: _create_agent(work, saver)
        return
    async with AsyncSqliteSaver.from_conn_string(str(home / "checkpoints.db")) as saver:
        yield lambda work: _create_agent(work, saver)


@asynccontextmanager
async def postgres_saver(address: str) -> AsyncGenerator[Any]:
    """Open LangGraph's saver as its documentation does for an application: with a pool."""
    from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
    from psycopg.rows import dict_row
    from psycopg_pool import AsyncConnectionPool

    options: dict[str, Any] = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
    async with AsyncConnectionPool(address, kwargs=options, max_size=8, open=False) as pool:
        saver = AsyncPostgresSaver(pool)  # type: ignore[arg-type]  # rows are dicts
        await saver.setup()
        yield saver


async def _create_agent(work: Work, saver: Any) -> None:
    from langchain.agents import create_agent as make  # pyright: ignore  # in the group `bench`
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI
    from pydantic import SecretStr

    @tool
    async def note(n: int, text: str) -> str:
        """Note."""
        work.mark()
        return f"noted {n} {TEXT}"

    model = ChatOpenAI(
        model="bench",
        base_url=work.base_url,
        api_key=SecretStr("none"),
        disable_streaming=not work.streams,
    )
    agent = make(model, [note], checkpointer=saver)  # pyright: ignore[reportUnknownVariableType]
    async for _ in _run(agent, work, stream_mode="custom"):
        pass


@asynccontextmanager
async def bare(home: Path) -> AsyncGenerator[Agent]:
    """A loop over the openai client: no graph, nothing saved."""
    from openai import AsyncOpenAI

    clients: list[AsyncOpenAI] = []

    def shared(work: Work) -> AsyncOpenAI:
        if not clients:
            clients.append(AsyncOpenAI(base_url=work.base_url, api_key="none"))
        return clients[0]

    yield lambda work: _bare(work, shared(work))
    for client in clients:
        await client.close()


async def _bare(work: Work, client: Any) -> None:
    import json

    parameters = {
        "type": "object",
        "properties": {"n": {"type": "integer"}, "text": {"type": "string"}},
        "required": ["n", "text"],
    }
    function = {"name": "note", "description": "Note.", "parameters": parameters}
    tools = [{"type": "function", "function": function}]
    messages = _plain_history(work.seed)
    while True:
        reply = await client.chat.completions.create(model="bench", messages=messages, tools=tools)
        message = reply.choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        if not message.tool_calls:
            return
        for call in message.tool_calls:
            given = json.loads(call.function.arguments)
            work.mark()
            text = f"noted {given['n']} {TEXT}"
            messages.append({"role": "tool", "tool_call_id": call.id, "content": text})


def _plain_history(steps: int) -> list[Any]:
    if not steps:
        return [{"role": "user", "content": "go"}]
    from langchain_core.messages import convert_to_openai_messages

    messages: Any = convert_to_openai_messages(history(steps))
    return list(messages)


def _run(graph: Any, work: Work, **more: Any) -> Any:
    config = {"configurable": {"thread_id": work.home.name}, "recursion_limit": 10**6}
    return graph.astream({"messages": history(work.seed)}, config, durability="sync", **more)


SUBJECTS = {"openmanus": openmanus, "create_agent": create_agent, "openai client": bare}
