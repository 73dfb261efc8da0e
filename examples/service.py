"""A FastAPI service for several users: it streams what an agent does, and takes answers.

    pip install fastapi uvicorn
    export OPENAI_API_KEY=... OPENMANUS_MODEL=openai:gpt-5-mini
    export USER_TOKENS='{"anna": "TOKEN-1", "bob": "TOKEN-2"}'
    uvicorn service:app

    curl -N localhost:8000/threads/17/runs -d '{"task": "Summarise sales.csv"}' \
         -H 'authorization: Bearer TOKEN-1' -H 'content-type: application/json'

Each user has threads, files and programs of his own.
"""

import hmac
import json
import os
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Header, HTTPException, Path, Request
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


def user_of(authorization: Annotated[str, Header()] = "") -> str:
    """Return whose token it is. Put your own login here."""
    users: dict[str, str] = json.loads(os.environ["USER_TOKENS"])
    for name, token in users.items():
        if hmac.compare_digest(authorization.encode(), f"Bearer {token}".encode()):
            return name
    raise HTTPException(401, "Send the header Authorization: Bearer TOKEN.")


def own_thread(
    user: Annotated[str, Depends(user_of)], thread: Annotated[str, Path(pattern=r"^[\w-]{1,64}$")]
) -> str:
    """Return the id of a user's thread. It holds the user's name: nobody reaches another's."""
    return f"{user}.{thread}"


Thread = Annotated[str, Depends(own_thread)]


@app.post("/threads/{thread}/runs")
async def run(thread: Thread, task: Task, request: Request) -> StreamingResponse:
    """Do a task and stream its events. Who hangs up, stops it: it can go on later."""
    given = {"messages": [HumanMessage(task.task)]}
    return StreamingResponse(events(request, thread, given), media_type="text/event-stream")


@app.post("/threads/{thread}/answers")
async def answer(thread: Thread, answers: Answers, request: Request) -> StreamingResponse:
    """Answer what the agent asked, all of it or one question, and stream what follows."""
    given: Any = Command(resume=answers.answers)
    return StreamingResponse(events(request, thread, given), media_type="text/event-stream")


@app.post("/threads/{thread}/remarks")
async def remark(thread: Thread, said: Remark) -> dict[str, str]:
    """Tell a running agent something, which it reads at its next step."""
    return {"id": await tell(thread, said.text)}


async def events(request: Request, thread: str, given: Any) -> AsyncIterator[str]:
    """Yield the events of a run as server-sent events, from `run_start` to `final`."""
    graph = request.app.state.graph
    config: RunnableConfig = {"configurable": {"thread_id": thread}}
    # Files are in ./workspace/USER.THREAD. The sandbox keeps programs in there.
    context = Context(max_steps=30, max_cost_usd=1, sandbox="bwrap")
    async with open_session(thread):  # the kernel and the shell end with the request
        async for event in stream_events(graph, given, config, context=context):
            yield f"event: {event['type']}\ndata: {json.dumps(event, default=str)}\n\n"
