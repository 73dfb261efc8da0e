"""Agents that work in the shop and are killed, and what the shop's database then holds.

Each agent has its checkpoints, and its ledger if it has one, in PostgreSQL, and is a process of its
own, forked from one that has imported everything. It is killed by SIGKILL at a moment of its work;
others then go on with its thread until it ends, and a person who can look into the shop answers
what they ask.
"""

import asyncio
import contextlib
import multiprocessing
import os
import signal
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

from langchain_core.messages import AIMessage, BaseMessage
from langgraph.types import Command

from bench.shop import Moment, Shop, Task, shop_tools, tasks
from bench.subjects import postgres_saver
from openmanus_graph.testing import ScriptedChatModel
from tests.support.postgres import Postgres

CONFIG: Any = {"configurable": {"thread_id": "customer"}, "recursion_limit": 1000}
RESUMES = 20
_FORK = multiprocessing.get_context("fork")


@dataclass
class Outcome:
    """What came of killed runs."""

    kills: int = 0
    wanted: int = 0
    doubled: int = 0
    lost: int = 0
    wrong: int = 0
    """Shops that do not hold in the end what they should."""
    asked: int = 0
    """Questions that a person answered."""

    def add(self, shop: Shop, gold: Shop) -> None:
        """Compare a shop with what it should be."""
        wanted, done = gold.done(), shop.done()
        self.kills += 1
        self.wanted += wanted.total()
        self.doubled += (done - wanted).total()
        self.lost += (wanted - done).total()
        self.wrong += shop.rows() != gold.rows()


def moments(task: Task) -> list[str]:
    """Name the boundaries of a task: around each request, and around each effect."""
    found: list[str] = []
    for number, reply in enumerate((*task.replies, ())):
        found += [f"asked {number}", f"replied {number}"]
        for place, action in enumerate(reply):
            if action in task.effects():
                found += [f"begun {number}-{place}", f"done {number}-{place}"]
    return found


def sample(*, whole: int, of: int) -> list[tuple[Task, str]]:
    """Choose kills: every moment of the first tasks, and one, in turn, of the others."""
    chosen = tasks()[:of]
    each = [(task, moment) for task in chosen[:whole] for moment in moments(task)]
    one = [
        (task, names[task.number % len(names)])
        for task in chosen[whole:]
        if (names := moments(task))
    ]
    return each + one


def killed_at(server: Postgres, subject: str, kills: Iterable[tuple[Task, str]]) -> Outcome:
    """Kill an agent at each of some moments, and have it go on to the end."""
    outcome, gold = Outcome(), dict[int, Shop]()
    for task, moment in kills:
        shop, storage = Shop(server.database()).open(), server.database()
        with TemporaryDirectory() as home:
            run = _Run(subject, task, shop, storage, home)
            assert run.process(kill=moment) is None, f"{subject} was not killed at {moment}"
            outcome.asked += run.to_the_end()
        if task.number not in gold:
            gold[task.number] = Shop(server.database()).open()
            asyncio.run(_do(task, gold[task.number]))
        outcome.add(shop, gold[task.number])
    return outcome


async def _do(task: Task, shop: Shop) -> None:
    for action in task.effects():
        await shop.do(action)


@dataclass
class _Run:
    """One thread of one agent, in one process after another."""

    subject: str
    task: Task
    shop: Shop
    storage: str
    home: str
    answers: dict[str, Any] = field(default_factory=dict[str, Any])

    def to_the_end(self) -> int:
        """Go on until nothing is asked; return how many questions were answered."""
        asked = 0
        for _ in range(RESUMES):
            questions = self.process()
            assert questions is not None, "a process that nobody killed ended"
            if not questions:
                return asked
            asked += len(questions)
            self.answers = {one: self._answer(value) for one, value in questions.items()}
        raise AssertionError(f"it did not end: {self}")

    def _answer(self, question: dict[str, Any]) -> dict[str, str]:
        """Answer as a person does who looks into the shop."""
        known = asyncio.run(self.shop.known(call=question["calls"][0]["call_id"]))
        return {"type": "respond", "message": known} if known else {"type": "approve"}

    def process(self, kill: str = "") -> dict[str, Any] | None:
        """Run a process; return what it asks at its end, by id, or None if it was killed."""
        ours, theirs = _FORK.Pipe(duplex=False)
        child = _FORK.Process(target=self._child, args=(theirs, kill))
        child.start()
        theirs.close()
        with ours, contextlib.suppress(EOFError):
            return dict(ours.recv())
        child.join()
        assert child.exitcode == -signal.SIGKILL, "it failed"
        return None

    def _child(self, reported: Any, kill: str) -> None:
        os.chdir(self.home)
        os.environ |= {"OPENMANUS_HOME": self.home, "OPENMANUS_DATABASE_URL": self.storage}

        def at(moment: str) -> None:
            if moment == kill:
                os.kill(os.getpid(), signal.SIGKILL)

        reported.send(asyncio.run(self._go_on(at)))

    async def _go_on(self, at: Moment) -> dict[str, Any]:
        async with SUBJECTS[self.subject](self, at) as (graph, options):
            state = await graph.aget_state(CONFIG)
            if self.answers:
                given: Any = Command(resume=self.answers)
            else:
                given = None if state.values else {"messages": [("user", self.task.text)]}
            done = await graph.ainvoke(given, CONFIG, durability="sync", **options)
            return {one.id: one.value for one in done.get("__interrupt__", ())}

    def model(self, at: Moment) -> ScriptedChatModel:
        """Return the model: its next reply is the one after those of the conversation."""
        return ScriptedChatModel([partial(_reply, self.task, at)] * RESUMES)


def _reply(task: Task, at: Moment, messages: list[BaseMessage]) -> AIMessage:
    number = sum(isinstance(message, AIMessage) for message in messages)
    at(f"asked {number}")
    reply = AIMessage("All that was wanted is done.")
    if number < len(task.replies):
        calls = [
            {"name": action.tool, "args": action.args, "id": f"{number}-{place}"}
            for place, action in enumerate(task.replies[number])
        ]
        reply = AIMessage("", tool_calls=calls)
    at(f"replied {number}")
    return reply


@asynccontextmanager
async def _openmanus(run: _Run, at: Moment) -> AsyncGenerator[tuple[Any, dict[str, Any]]]:
    from openmanus_graph import Context, build_manus_graph
    from openmanus_graph.backends.persistence.checkpoints import open_checkpointer
    from openmanus_graph.config.resolve import database_url

    async with open_checkpointer(database_url()) as saver:
        tools: list[Any] = shop_tools(run.shop, at)
        graph = build_manus_graph(tools=tools, checkpointer=saver)
        place = str(Path(run.home) / "work")
        yield graph, {"context": Context(model=run.model(at), workspace=place, policy="auto")}


@asynccontextmanager
async def _create_agent(
    run: _Run, at: Moment, middleware: Any = ()
) -> AsyncGenerator[tuple[Any, dict[str, Any]]]:
    from langchain import agents

    async with postgres_saver(run.storage) as saver:
        make = cast("Any", agents).create_agent  # its overloads say more than is known here
        tools = shop_tools(run.shop, at)
        yield make(run.model(at), tools, middleware=middleware, checkpointer=saver), {}


def _with_ledger(run: _Run, at: Moment) -> Any:
    return _ledgered(run, at, {})


def _with_reconcile(run: _Run, at: Moment) -> Any:
    async def known(args: dict[str, Any], key: str) -> str | None:
        return await run.shop.known(key=key)

    return _ledgered(run, at, {tool.name: known for tool in shop_tools(run.shop, at)})


def _ledgered(run: _Run, at: Moment, reconcile: dict[str, Any]) -> Any:
    from openmanus_graph.middleware import EffectLedger

    return _create_agent(run, at, [EffectLedger(run.storage, reconcile=reconcile)])


SUBJECTS: dict[str, Callable[[_Run, Moment], Any]] = {
    "openmanus": _openmanus,
    "create_agent": _create_agent,
    "create_agent, EffectLedger": _with_ledger,
    "create_agent, EffectLedger with reconcile": _with_reconcile,
}


def measure_kills(*, quick: bool) -> list[list[str]]:
    """Return a row for each agent."""
    kills = sample(whole=1, of=2) if quick else sample(whole=8, of=len(tasks()))
    with Postgres.running() as server:
        rows: list[list[str]] = []
        for subject in SUBJECTS:
            found = killed_at(server, subject, kills)
            figures = (
                found.kills,
                found.wanted,
                found.doubled,
                found.lost,
                found.wrong,
                found.asked,
            )
            rows.append([subject, *map(str, figures)])
    return rows
