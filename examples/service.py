"""A FastAPI service that streams what an agent does, and lets people answer and correct it.

    pip install fastapi uvicorn
    export OPENAI_API_KEY=... OPENMANUS_MODEL=openai:gpt-5-mini
    uvicorn service:app

    curl -N localhost:8000/threads/17/runs -d '{"task": "Summarise sales.csv"}' \
         -H 'content-type: application/json'

It listens to whoever reaches it: put your own authentication in front, as of any service.
"""

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse
from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.types import Command
from pydantic import BaseModel

import openmanus_graph
from openmanus_graph import Context, build_manus_graph, open_session, stream_events, tell


class Task(BaseModel):
    """What is to be done."""

    task: str


class Answers(BaseModel):
    """What people decided, by the question's id."""

    answers: dict[str, Any]


class Remark(BaseModel):
    """What the agent should know while it works."""

    text: str


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
    """Open the checkpoints; close them, and all that agents left open, when the service ends."""
    async with AsyncSqliteSaver.from_conn_string("threads.db") as checkpointer:
        app.state.graph = build_manus_graph(checkpointer=checkpointer)
        yield
        await openmanus_graph.close()


app = FastAPI(lifespan=lifespan)


@app.post("/threads/{thread}/runs")
async def run(thread: str, task: Task, request: Request) -> StreamingResponse:
    """Do a task and stream its events. Who hangs up, stops it: it can go on later."""
    given = {"messages": [HumanMessage(task.task)]}
    return StreamingResponse(events(request, thread, given), media_type="text/event-stream")


@app.post("/threads/{thread}/answers")
async def answer(thread: str, answers: Answers, request: Request) -> StreamingResponse:
    """Answer what the agent asked, all of it or one question, and stream what follows."""
    given: Any = Command(resume=answers.answers)
    return StreamingResponse(events(request, thread, given), media_type="text/event-stream")


@app.post("/threads/{thread}/remarks")
async def remark(thread: str, said: Remark) -> dict[str, str]:
    """Tell a running agent something, which it reads at its next step."""
    return {"id": await tell(thread, said.text)}


async def events(request: Request, thread: str, given: Any) -> AsyncIterator[str]:
    """Yield the events of a run as server-sent events, from `run_start` to `final`."""
    graph = request.app.state.graph
    config: RunnableConfig = {"configurable": {"thread_id": thread}}
    async with open_session(thread):  # the kernel and the shell end with the request
        async for event in stream_events(graph, given, config, context=Context(max_steps=30)):
            yield f"event: {event['type']}\ndata: {json.dumps(event, default=str)}\n\n"
