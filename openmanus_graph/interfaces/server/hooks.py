"""Triggers in the server: their webhooks, their worker, and what the page shows of them."""

import asyncio
import contextlib
import logging
import time
import uuid
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, Literal

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from openmanus_graph.backends.persistence.deliveries import Deliveries, Settled, open_deliveries
from openmanus_graph.config.triggers import CHANNEL_PREFIX, read_automation
from openmanus_graph.errors import ConfigError, StorageError
from openmanus_graph.interfaces.server import store
from openmanus_graph.interfaces.service import runs
from openmanus_graph.interfaces.service.accounts import Refused, authorize, current_user
from openmanus_graph.interfaces.triggers.channels import BaseChannel
from openmanus_graph.interfaces.triggers.conversations import events_of, open_channel
from openmanus_graph.interfaces.triggers.overview import overview, waiting
from openmanus_graph.interfaces.triggers.sources import manual_event, webhook_event
from openmanus_graph.interfaces.triggers.worker import Worker
from openmanus_graph.state.triggers import Trigger

router = APIRouter()
log = logging.getLogger(__name__)
_workers: list[Worker] = []


@router.post("/hooks/{name}")
async def receive(name: str, request: Request) -> JSONResponse:
    """Store a signed event, and answer when it is on disk. A repeat is answered alike."""
    hook = await asyncio.to_thread(_hook, name)
    body = await request.body()  # of which the guard limits the size
    headers = {key.lower(): value for key, value in request.headers.items()}
    try:
        answer = await asyncio.to_thread(_store, hook, headers, body)
    except StorageError as error:
        log.warning("An event for /hooks/%s cannot be stored: %s", name, error)
        raise Refused(503, "The event cannot be stored now. Send it again later.") from error
    for worker in _workers:
        worker.wake.set()
    return JSONResponse(answer)


def _store(
    hook: Trigger | BaseChannel, headers: Mapping[str, str], body: bytes
) -> Mapping[str, Any]:
    """Store what a request brings, and return the answer to it. Blocks."""
    now, table, name = time.time(), open_deliveries(), hook.name
    if isinstance(hook, Trigger):
        events = [webhook_event(hook, headers, body, now)]
        if events[0].fields.get("type") == "url_verification":  # Slack asks whether we are there
            return {"challenge": events[0].fields.get("challenge")}
    else:
        name = f"{CHANNEL_PREFIX}{name}"
        try:
            found = hook.receive(headers, body, now)
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise Refused(400, "The body is none of this channel's messages.") from error
        if isinstance(found, dict):
            return found
        events = events_of(hook, name, found, table)
    for event in events:
        table.receive(name, event, now)
    return {"received": True}


@router.get("/app/api/inbox")
async def show_inbox() -> dict[str, Any]:
    """Return what waits for the user, and an admin's triggers."""
    user, rows, problems = current_user(), list[dict[str, Any]](), list[str]()
    if user.role == "admin":
        rows, problems = await asyncio.to_thread(overview, time.time())
    return {"waiting": await waiting(user.name), "triggers": rows, "problems": problems}


@router.post("/app/api/triggers/{name:path}/{action}", status_code=204)
async def change_trigger(name: str, action: Literal["pause", "resume", "run"]) -> None:
    """Pause or resume a trigger, or run a schedule now."""

    def make(table: Deliveries) -> None:
        trigger = read_automation().trigger(name)
        if action == "run":
            table.receive(name, manual_event(trigger, None), time.time())
        else:
            table.pause(name, on=action == "pause")

    await _administer(make)


@router.post("/app/api/deliveries/{number}/{action}", status_code=204)
async def replay(number: int, action: Literal["replay"] | Settled) -> None:
    await _administer(lambda table: table.replay(number, None if action == "replay" else action))


async def _administer(change: Callable[[Deliveries], None]) -> None:
    await authorize("administer")
    await asyncio.to_thread(lambda: change(open_deliveries()))
    for worker in _workers:
        worker.wake.set()


def _hook(name: str) -> Trigger | BaseChannel:
    """Return a trigger or channel. Blocks.

    Refused (404): there is none, and why is nothing for strangers.
    """
    try:
        found = read_automation()
        trigger, channel = found.triggers.get(name), found.channels.get(name)
        if trigger is not None and trigger.kind == "webhook":
            return trigger
        if channel is not None and channel.allow:
            return open_channel(channel)
    except ConfigError as error:
        log.warning("Requests to hooks are refused: %s", error)
    raise Refused(404, "There is no such hook.")


@contextlib.asynccontextmanager
async def working() -> AsyncGenerator[None]:
    """Work on deliveries during the block."""
    worker = Worker(_recorded)
    _workers.append(worker)
    serving = asyncio.create_task(worker.serve())
    try:
        yield
    finally:
        _workers.remove(worker)
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


def stop_run(thread: str) -> int:
    """Stop a run of a trigger on a thread; return how many there were."""
    found = [one.stops[thread] for one in _workers if thread in one.stops]
    for stop in found:
        stop.now()
    return len(found)


@contextlib.asynccontextmanager
async def _recorded(thread: str) -> AsyncGenerator[runs.Show]:
    """Keep the events of a run, so that the page follows it."""
    journal, run = store.current().journal, uuid.uuid4().hex
    await journal.acquire(thread)

    def show(event: Mapping[str, Any]) -> None:
        journal.add(thread, run, str(event.get("plan_step", "")), dict(event))

    try:
        yield show
    finally:
        await journal.release(thread)
