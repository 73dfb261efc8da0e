"""What runs and model calls count in the rows of usage, and how quotas end a run."""

import asyncio
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver

from openmanus_graph import build_manus_graph
from openmanus_graph.backends.models.failures import ModelError
from openmanus_graph.backends.persistence.accounts import Accounts
from openmanus_graph.backends.persistence.backend import Database
from openmanus_graph.backends.persistence.database import open_database
from openmanus_graph.backends.persistence.threads import Threads
from openmanus_graph.backends.persistence.usage import (
    RunUsage,
    add_file,
    quotas_of,
    quotas_of_user,
    room_for_files,
)
from openmanus_graph.graphs.planning import build_planning_graph
from openmanus_graph.runtime.limits import LimitReached
from openmanus_graph.state.addresses import DatabaseUrl
from tests.support.graphs import add, calls, run_graph, scripted
from tests.support.planning import PlanBrain, plan_call
from tests.support.quota_spending import DAY, counter, make_call

CONFIG: RunnableConfig = {"configurable": {"thread_id": "t"}}
TOTALS = "SUM(calls), SUM(input), SUM(cached), SUM(output)"
MB = 1 << 20


@pytest.fixture
def database(each_database: DatabaseUrl) -> Database:
    return open_database(each_database)


def give(database: Database, owner: str, thread: str = "t", **quotas: float) -> None:
    """Make a thread a user's, and set quotas of his."""
    database.run("INSERT INTO owners (thread, owner) VALUES (?, ?)", (thread, owner))
    for kind, most in quotas.items():
        database.run("INSERT INTO quotas VALUES (?, ?, ?)", (owner, kind, most))


def counted(database: Database, columns: str = TOTALS) -> list[tuple[Any, ...]]:
    database.settle()
    return database.run(f"SELECT {columns} FROM call_usage")


async def test_every_model_call_of_a_run_is_counted_once(database: Database) -> None:
    give(database, "ada")
    graph = build_manus_graph(tools=[add], checkpointer=InMemorySaver())
    model = scripted(calls(("add", {"a": 1, "b": 2})), "3", usage=(100, 20))
    ran = await run_graph(graph, model=model, config=CONFIG)
    usage = ran.values["usage"]
    assert usage["model_calls"] == 2
    assert counted(database) == [(2, usage["input_tokens"], 0, usage["output_tokens"])]
    names = "owner, thread, agent, trigger, model"
    assert counted(database, names) == [("ada", "t", "manus", "app", "scripted")]


async def test_usage_outlives_its_thread(database: Database) -> None:
    graph = build_manus_graph(checkpointer=InMemorySaver())
    await run_graph(graph, "done", config=CONFIG)
    await asyncio.to_thread(Threads(database).delete, "t")
    assert counted(database, "calls") == [(1,)]


async def test_a_graph_without_a_thread_leaves_no_rows(database: Database) -> None:
    await run_graph(build_manus_graph(), "done")
    assert counted(database, "calls") == []


async def test_a_plan_counts_its_planner_and_its_steps_in_one_row(database: Database) -> None:
    brain = PlanBrain([plan_call("one", "two")])
    graph = build_planning_graph(
        executors={"manus": build_manus_graph()}, checkpointer=InMemorySaver()
    )
    ran = await run_graph(graph, model=brain.model(usage=(1000, 100)), config=CONFIG)
    usage = ran.values["usage"]
    assert usage["model_calls"] == 3
    assert counted(database, "calls, input, output, agent") == [
        (usage["model_calls"], usage["input_tokens"], usage["output_tokens"], "planning")
    ]


async def test_a_call_that_failed_counts_without_tokens_and_one_cut_off_as_expected(
    database: Database,
) -> None:
    def fail(error: BaseException) -> None:
        raise error

    run = counter()
    with pytest.raises(ModelError):
        await make_call(run, 50, then=partial(fail, ModelError("retry", "It is down.")))
    with pytest.raises(asyncio.CancelledError):
        await make_call(run, 50, "2026-02-01", partial(fail, asyncio.CancelledError()))
    await asyncio.sleep(0)
    assert sorted(counted(database, "day, calls, input")) == [(DAY, 1, 0), ("2026-02-01", 1, 50)]


async def test_a_quota_ends_the_run_and_says_when_it_starts_again(database: Database) -> None:
    give(database, "ada", tokens_per_day=5000)
    graph = build_manus_graph(tools=[add], checkpointer=InMemorySaver())
    model = scripted(calls(("add", {"a": 1, "b": 2})), "3", usage=(4000, 20))
    ran = await run_graph(graph, model=model, config=CONFIG)
    assert (ran.values["status"], ran.values["stop_reason"]) == ("stopped", "budget")
    assert "your quota of 5000 tokens per day: 4020 tokens are used" in ran.values["answer"]
    assert "00:00 UTC. Continue then" in ran.values["answer"]
    limit = next(event for event in ran.events if event["type"] == "limit")
    assert limit == {
        "type": "limit",
        "reason": "budget",
        "setting": "tokens_per_day",
        "limit": 5000,
        "higher": limit["higher"],
    }
    assert len(model.requests) == 1
    database.run("UPDATE quotas SET most = 50000 WHERE kind = 'tokens_per_day'")
    again = await run_graph(graph, "3", task="Go on", config=CONFIG)
    assert (again.values["status"], again.values["answer"]) == ("finished", "3")


async def test_a_run_of_a_removed_user_ends_before_its_next_call(database: Database) -> None:
    give(database, "ada")
    accounts = Accounts(database)
    accounts.add("ada", "user")

    def remove(a: int, b: int) -> int:
        """Add two numbers."""
        accounts.remove("ada")
        return a + b

    graph = build_manus_graph(tools=[remove], checkpointer=InMemorySaver())
    model = scripted(calls(("remove", {"a": 1, "b": 2})), "3")
    ran = await run_graph(graph, model=model, config=CONFIG)
    assert (ran.values["status"], len(model.requests)) == ("failed", 1)
    assert "The user ada was removed" in ran.values["answer"]


async def test_a_quota_ends_a_plan_by_its_name(database: Database) -> None:
    give(database, "ada", tokens_per_month=4000)
    brain = PlanBrain([plan_call("one", "two")])
    graph = build_planning_graph(
        executors={"manus": build_manus_graph()}, checkpointer=InMemorySaver()
    )
    ran = await run_graph(graph, model=brain.model(usage=(1500, 100)), config=CONFIG)
    assert (ran.values["status"], ran.values["stop_reason"]) == ("stopped", "budget")
    assert "your quota of 4000 tokens per month" in ran.values["answer"]
    assert [one["setting"] for one in ran.events if one["type"] == "limit"][-1:] == [
        "tokens_per_month"
    ]


def test_a_users_own_quota_takes_precedence_over_the_settings(
    database: Database, tmp_path: Path
) -> None:
    home = tmp_path / "config" / "openmanus"
    home.mkdir(parents=True)
    (home / "config.toml").write_text("[server]\nquotas = { tokens_per_day = 100, runs = 2 }\n")
    give(database, "ada", tokens_per_day=500)
    assert quotas_of_user(database, "ada") == {"tokens_per_day": 500, "runs": 2}
    assert quotas_of_user(database, "bob") == {"tokens_per_day": 100, "runs": 2}
    assert quotas_of(database, "of nobody") == ("", {})


async def test_each_day_and_month_has_its_quota_once_however_the_clock_jumps(
    database: Database,
) -> None:
    async def fits(run: RunUsage, day: str) -> bool:
        try:
            await make_call(run, 60, day)
        except LimitReached:
            return False
        return True

    days = ["2026-01-31", "2026-02-01", "2026-01-31", "2030-01-01", "2026-02-01", "2026-02-02"]
    run = counter(tokens_per_day=100)
    assert [await fits(run, day) for day in days] == [True, True, False, True, False, True]
    other = counter("u", "bob", tokens_per_month=100)
    assert [await fits(other, day) for day in days] == [True, True, False, True, False, False]


async def test_the_sentence_names_the_first_day_of_the_next_month(database: Database) -> None:
    run = counter(usd_per_month=0.005)
    with pytest.raises(LimitReached) as reached:
        await make_call(run, 1, "2026-12-31")
    assert "$0.005 per month: $0 are used" in reached.value.limit.text()
    assert "starts again on 2027-01-01" in reached.value.limit.text()
    assert counted(database, "dollars") == [(0.0,)]


def spender(calls: int) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "tests.support.quota_spending", str(calls)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.fixture
def root_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))


@pytest.mark.usefixtures("root_on_path")
def test_processes_share_a_quota_to_the_last_call(database: Database) -> None:
    """Four processes could make 160 calls; 100 fit."""
    spenders = [spender(40) for _ in range(4)]
    begun = [one.communicate()[0].count("begun") for one in spenders]
    assert [one.returncode for one in spenders] == [0] * 4
    assert sum(begun) == 100
    assert counted(database, "SUM(calls), SUM(input)") == [(100, 1000)]


@pytest.mark.usefixtures("root_on_path")
async def test_a_killed_call_stays_counted_once_and_locks_nobody_out(database: Database) -> None:
    killed = await asyncio.to_thread(spender, 0)
    await asyncio.to_thread(killed.communicate)
    assert killed.returncode == -signal.SIGKILL
    assert counted(database, "calls, input") == [(1, 10)]
    run = counter(tokens_per_day=1000)
    await make_call(run, 990)
    with pytest.raises(LimitReached):
        await make_call(run, 1)


async def test_a_run_that_fills_the_workspace_ends_and_one_that_deletes_goes_on(
    database: Database,
) -> None:
    give(database, "ada", workspace_mb=1)
    add_file(database, "t", 1000)
    assert room_for_files(database, "t") == MB - 1000
    assert room_for_files(database, "of nobody") == float("inf")
    graph = build_manus_graph(checkpointer=InMemorySaver())
    fill = calls(("bash", {"command": "head -c 2000000 /dev/zero > big"}))
    ran = await run_graph(graph, fill, "never asked", config=CONFIG)
    assert (ran.values["status"], ran.values["stop_reason"]) == ("stopped", "budget")
    assert "quota of 1 MB for files: your threads hold 1.91 MB" in ran.values["answer"]
    assert room_for_files(database, "t") == 0
    delete = calls(("bash", {"command": "rm big"}), prefix="d")
    ran = await run_graph(graph, delete, "deleted", task="Delete big", config=CONFIG)
    assert (ran.values["status"], ran.values["answer"]) == ("finished", "deleted")
    assert room_for_files(database, "t") == MB


async def test_a_reported_cost_is_counted(database: Database) -> None:
    reply = AIMessage("done", response_metadata={"cost_usd": 0.25})
    graph = build_manus_graph(checkpointer=InMemorySaver())
    await run_graph(graph, reply, config=CONFIG)
    assert counted(database, "dollars") == [(0.25,)]


def runs(database: Database) -> list[tuple[Any, ...]]:
    return database.run("SELECT status, trigger, thread, owner FROM run_usage ORDER BY began")


def test_each_run_is_counted_once_with_how_it_ended(database: Database) -> None:
    threads = Threads(database)
    give(database, "ada", "mine")
    threads.begin("mine", "manus", "task", {}, None, trigger="page")
    threads.end("mine", "finished")
    threads.end("mine", "failed")  # a second server writes a missing end
    threads.begin("mine", "manus", "task", {}, None)  # its process is killed
    threads.begin("mine", "manus", "task", {}, None)
    threads.delete("mine")
    threads.begin("demo", "manus", "task", {"model": "demo:x"}, None)
    threads.end("demo", "finished")
    assert runs(database) == [
        ("finished", "page", "mine", "ada"),
        ("interrupted", "terminal", "mine", "ada"),
        ("interrupted", "terminal", "mine", "ada"),
        ("finished", "demo", "demo", ""),
    ]
