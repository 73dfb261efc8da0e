"""What people see of triggers: the next run, the newest one, and what waits for an answer."""

import asyncio
import shlex
from typing import Any

from openmanus_graph.backends.persistence.deliveries import open_deliveries
from openmanus_graph.backends.persistence.threads import Threads
from openmanus_graph.config.resolve import automation
from openmanus_graph.config.triggers import CHANNEL_PREFIX, read_automation
from openmanus_graph.interfaces.service import run_setup, runs
from openmanus_graph.interfaces.triggers import sources
from openmanus_graph.runtime.events import interrupt_event

MOST_SHOWN = 100
_SETTLES = {"unknown_outcome": "--sent | --dismiss", "dead": "--dismiss"}


def overview(now: float) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the triggers as rows, and why others cannot work. Blocks."""
    found, table, rows = read_automation(), open_deliveries(), list[dict[str, Any]]()
    paused = table.paused()
    for name, trigger in found.triggers.items():
        newest = table.history(name, 1)
        following = ""
        if trigger.kind == "schedule" and name not in paused:
            slot = next(sources.slots(trigger, now), None)
            following = sources.slot_event(trigger, slot).fields["slot"] if slot else "never"
        rows.append({
            "name": name,
            "kind": trigger.kind,
            "state": "paused" if name in paused else "active",
            "next": following,
            "last": newest[0].state if newest else "",
            "thread": newest[0].thread if newest else "",
        })  # fmt: skip
    return rows, list(found.problems.values())


async def waiting(owner: str | None) -> list[dict[str, Any]]:
    """Return what waits for a user, or (None) for anybody: questions, then deliveries."""
    table = await asyncio.to_thread(open_deliveries)
    triggers, channels = await asyncio.to_thread(automation)
    users = {name: one.user for name, one in triggers.items()}
    users |= {f"{CHANNEL_PREFIX}{name}": one.user for name, one in channels.items()}
    threads, rows = Threads(table.database), list[dict[str, Any]]()
    for thread in await asyncio.to_thread(threads.of_status, "waiting", MOST_SHOWN, owner):
        state = (await run_setup.read_thread_state(thread.id, thread.agent)).state
        for question in map(interrupt_event, state.interrupts):
            name = shlex.quote(thread.id)
            reply = "--answer TEXT" if question["kind"] == "question" else "--approve"
            rows.append({
                "kind": question["kind"],
                "thread": thread.id,
                "title": thread.title,
                "what": runs.question_text(question),
                "answer": f"openmanus resume {name} --id {question['id']} {reply}",
            })  # fmt: skip
    ends = await asyncio.to_thread(table.history, None, MOST_SHOWN, "unknown_outcome", "dead")
    rows += [
        {
            "kind": one.state,
            "thread": one.thread,
            "what": f"{one.trigger}: {one.reason}",
            "answer": f"openmanus triggers replay {one.number} [{_SETTLES[one.state]}]",
            "number": one.number,
        }
        for one in ends
        if one.event and (owner is None or users.get(one.trigger, "") == owner)
    ]
    return rows
