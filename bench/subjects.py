"""The agents that are compared: the same in-process tools, no streaming, checkpoints in SQLite.

With `OPENMANUS_DATABASE_URL` set, those in the PostgreSQL database that it names.
"""

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TEXT = "y" * 700
UNLIMITED = 10**9
TOOL_SCHEMAS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": {
                "type": "object",
                "properties": {field: {"type": kind} for field, kind in fields.items()},
                "required": list(fields),
            },
        },
    }
    for name, description, fields in (
        ("note", "Note.", {"n": "integer", "text": "string"}),
        ("wait", "Wait a second.", {"n": "integer"}),
    )
]
"""`Work.note` and `Work.wait`, for clients that do not make it themselves."""


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

    async def note(self, n: int, text: str) -> str:
        """Note.

        Args:
            n: Number.
            text: Text.
        """
        self.mark()
        return f"noted {n} {TEXT}"

    async def wait(self, n: int) -> str:
        """Wait a second.

        Args:
            n: Number.
        """
        await asyncio.sleep(1)
        self.mark()
        return f"waited {n}"


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
    from openmanus_graph import manus_tool

    return [manus_tool(effect="workspace")(work.note), manus_tool(effect="read_only")(work.wait)]


@asynccontextmanager
async def create_agent(home: Path) -> AsyncGenerator[Agent]:
    """LangChain's agent with the same durability; its agents share a saver, too."""
    import langchain.agents

    make: Any = langchain.agents.create_agent  # pyright: ignore[reportUnknownVariableType]
    async with _saver(home) as saver:
        yield lambda work: _prebuilt(work, make, saver)


@asynccontextmanager
async def deepagents(home: Path) -> AsyncGenerator[Agent]:
    """LangChain's agent with the middleware that deepagents adds, as it comes."""
    from deepagents import graph

    make: Any = graph.create_deep_agent  # pyright: ignore[reportUnknownVariableType]
    async with _saver(home) as saver:
        yield lambda work: _prebuilt(work, make, saver)


async def _prebuilt(work: Work, make: Callable[..., Any], saver: Any) -> None:
    from langchain_openai import ChatOpenAI
    from pydantic import SecretStr

    model = ChatOpenAI(
        model="bench",
        base_url=work.base_url,
        api_key=SecretStr("none"),
        disable_streaming=not work.streams,
        profile={"max_input_tokens": work.window},  # deepagents: makes notes near its end
    )
    agent = make(model, [work.note, work.wait], checkpointer=saver)
    async for _ in _run(agent, work, stream_mode="custom"):
        pass


@asynccontextmanager
async def langgraph(home: Path) -> AsyncGenerator[Agent]:
    """The least agent on LangGraph: openmanus's client and saver, and nothing else of it."""
    from openmanus_graph.backends.models.build import prepare_model
    from openmanus_graph.backends.persistence.checkpoints import open_checkpointer
    from openmanus_graph.config.resolve import database_url
    from openmanus_graph.state.model_settings import ModelSettings

    async with open_checkpointer(database_url()) as saver:

        async def agent(work: Work) -> None:
            options = {} if work.streams else {"disable_streaming": True}
            settings = ModelSettings("openai:bench", base_url=work.base_url, options=options)
            graph = _least_graph(work, await prepare_model(settings), saver)
            async for _ in _run(graph, work, stream_mode="custom"):
                pass

        yield agent


def _least_graph(work: Work, client: Any, saver: Any) -> Any:
    from langgraph.graph import END, START, MessagesState, StateGraph
    from langgraph.prebuilt import ToolNode, tools_condition

    model = client.bind_tools([work.note, work.wait])

    async def think(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    async def stuck_check(state: MessagesState) -> dict[str, Any]:
        return {}

    builder: Any = StateGraph(MessagesState)
    builder.add_node("think", think)
    builder.add_node("act", ToolNode([work.note, work.wait]))
    builder.add_node("stuck_check", stuck_check)
    builder.add_edge(START, "think")
    builder.add_conditional_edges("think", tools_condition, {"tools": "act", END: END})
    builder.add_edge("act", "stuck_check")
    builder.add_edge("stuck_check", "think")
    return builder.compile(checkpointer=saver)


@asynccontextmanager
async def _saver(home: Path) -> AsyncGenerator[Any]:
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

    if address := os.environ.get("OPENMANUS_DATABASE_URL"):
        async with postgres_saver(address) as saver:
            yield saver
        return
    async with AsyncSqliteSaver.from_conn_string(str(home / "checkpoints.db")) as saver:
        yield saver


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
    messages = _plain_history(work.seed)
    while True:
        reply = await client.chat.completions.create(
            model="bench", messages=messages, tools=TOOL_SCHEMAS
        )
        message = reply.choices[0].message.model_dump(exclude_none=True)
        messages.append(message)
        if "tool_calls" not in message:
            return
        messages += await _results(work, message["tool_calls"])


@asynccontextmanager
async def floor(home: Path) -> AsyncGenerator[Agent]:
    """What hardly can be left out: the request, of ready-made parts, and what has to be saved."""
    import contextlib
    import sqlite3

    import aiohttp

    file = home / "checkpoints.db"
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("PRAGMA synchronous=NORMAL")
        database.execute("CREATE TABLE messages (thread TEXT, message BLOB)")
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as client:
            yield lambda work: _floor(work, client, database)


async def _floor(work: Work, client: Any, database: Any) -> None:
    """Save each superstep in a transaction: the reply before its calls, and then their results."""
    url, headers = f"{work.base_url}/chat/completions", {"Content-Type": "application/json"}
    begin = b'{"model":"bench","tools":%b,"messages":[' % json.dumps(TOOL_SCHEMAS).encode()
    messages = _encoded(_plain_history(work.seed))

    def save(new: list[bytes]) -> None:
        messages.extend(new)
        rows = [(work.home.name, message) for message in new]
        database.execute("BEGIN IMMEDIATE")
        database.executemany("INSERT INTO messages VALUES (?, ?)", rows)
        database.execute("COMMIT")

    while True:
        body = b"%b%b]}" % (begin, b",".join(messages))
        async with client.post(url, data=body, headers=headers) as answer:
            reply = json.loads(await answer.read())
        message = reply["choices"][0]["message"]
        save(_encoded([message]))
        if "tool_calls" not in message:
            return
        save(_encoded(await _results(work, message["tool_calls"])))


def _encoded(messages: list[Any]) -> list[bytes]:
    return [json.dumps(message).encode() for message in messages]


async def _results(work: Work, calls: list[Any]) -> list[Any]:
    """Run a reply's calls at the same time and return their messages."""
    tools: dict[str, Any] = {"note": work.note, "wait": work.wait}
    functions = [call["function"] for call in calls]
    running = (tools[one["name"]](**json.loads(one["arguments"])) for one in functions)
    return [
        {"role": "tool", "tool_call_id": call["id"], "content": result}
        for call, result in zip(calls, await asyncio.gather(*running), strict=True)
    ]


def _plain_history(steps: int) -> list[Any]:
    if not steps:
        return [{"role": "user", "content": "go"}]
    from langchain_core.messages import convert_to_openai_messages

    messages: Any = convert_to_openai_messages(history(steps))
    return list(messages)


def _run(graph: Any, work: Work, **more: Any) -> Any:
    config = {"configurable": {"thread_id": work.home.name}, "recursion_limit": 10**6}
    return graph.astream({"messages": history(work.seed)}, config, durability="sync", **more)


SUBJECTS = {
    "openmanus": openmanus,
    "create_agent": create_agent,
    "deepagents": deepagents,
    "langgraph": langgraph,
    "openai client": bare,
    "floor": floor,
}
