"""Signals at every moment of a run: what is done is saved, and `final` is the last event."""

import signal
import threading
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from tests.e2e.test_cli_own_agents import bring
from tests.support.cli import Cli, Result, Running, no_input, pipe, until
from tests.support.limits import BACKSTOP_S, POLL_S
from tests.support.openai_script import Call, Reply
from tests.support.openai_server import OpenAIServer
from tests.support.sampling import sampled
from tests.support.zygote import Forked

pytestmark = pytest.mark.slow

RUN = ("run", "go", "--thread", "t", "--workspace", "files")
EXITS = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}
SLOW_TO_READ = '''
"""An agent whose state takes its time to be read: the moment between the last step and `final`."""

import asyncio
from pathlib import Path

from langchain_core.messages import AIMessage
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.state import CompiledStateGraph


class SlowToRead(CompiledStateGraph):
    async def aget_state(self, config, **arguments):
        Path("reading").touch()
        while not Path("read").exists():
            await asyncio.sleep(0.01)
        return await super().aget_state(config, **arguments)


async def work(state: MessagesState):
    Path("working").touch()
    while not Path("worked").exists():
        await asyncio.sleep(0.01)
    return {"messages": [AIMessage("All done.")]}


def build(*, checkpointer=None):
    """Works slowly."""
    builder = StateGraph(MessagesState)
    builder.add_node("work", work)
    builder.add_node("more", lambda state: {})
    builder.add_edge(START, "work")
    builder.add_edge("work", "more")
    builder.add_edge("more", END)
    graph = builder.compile(checkpointer=checkpointer)
    graph.__class__ = SlowToRead
    return graph
'''


class Held:
    """A reply of the model that waits to be let go."""

    def __init__(self, model: OpenAIServer) -> None:
        self._asked, self._answer = threading.Event(), threading.Event()
        model.add(self._reply, Reply("Finished."))

    def _reply(self, body: dict[str, Any]) -> Reply:
        self._asked.set()
        self._answer.wait(BACKSTOP_S)
        return Reply(calls=(Call("bash", {"command": "echo once >> log"}),))

    def wait(self) -> None:
        assert self._asked.wait(BACKSTOP_S)

    def let_go(self) -> None:
        self._answer.set()


def ended_well(done: Result, number: signal.Signals) -> None:
    """Check that a run that was cancelled said so last, and how it goes on."""
    assert done.code == EXITS[number]
    assert done.kinds.count("final") == 1
    assert (done.kinds[-1], done.final["status"]) == ("final", "cancelled")
    assert done.stderr == "Continue with: openmanus resume t\n"


def once(running: Running, number: signal.Signals) -> None:
    running.signal(number)
    running.wait_for_kind("notice")


def twice(running: Running, number: signal.Signals) -> None:
    once(running, number)
    running.signal(number)


def often(running: Running, number: signal.Signals) -> None:
    for _ in range(20):
        running.signal(number)


@pytest.mark.parametrize("number", EXITS)
def test_signals_that_never_stop_change_nothing(
    cli: Cli, model: OpenAIServer, number: signal.Signals
) -> None:
    held = Held(model)
    running = cli.start(*RUN)
    held.wait()
    assert isinstance(running.process, Forked)
    while running.process.poll(POLL_S) is None:
        running.signal(number)
        held.let_go()
    done = running.finish()
    ended_well(done, number)


@pytest.mark.parametrize(
    ("number", "how"), sampled([*product(EXITS, (once, twice, often))], 4, "signals", rows=True)
)
def test_signals_while_the_model_is_asked(
    cli: Cli,
    model: OpenAIServer,
    number: signal.Signals,
    how: Callable[[Running, signal.Signals], None],
) -> None:
    held = Held(model)
    running = cli.start(*RUN)
    held.wait()
    how(running, number)
    ends_at_once = number == signal.SIGINT or how is twice
    if not ends_at_once:  # a burst may arrive as one signal
        held.let_go()
    done = running.finish()
    held.let_go()
    ended_well(done, number)
    resumed = cli.run("resume", "t", "--json")
    assert (resumed.code, resumed.final["status"]) == (0, "finished")
    if how is not often:
        assert (cli.workspace / "log").exists() != ends_at_once


@pytest.mark.parametrize("before", [0, 1], ids=["first request", "later request"])
def test_the_first_ctrl_c_ends_a_model_request_at_once(
    cli: Cli, model: OpenAIServer, before: int
) -> None:
    model.add(*[Reply(calls=(Call("bash", {"command": "echo done >> before"}),))] * before)
    held = Held(model)
    running = cli.start(*RUN)
    held.wait()
    running.signal(signal.SIGINT)
    done = running.finish()  # the server never answers
    held.let_go()
    ended_well(done, signal.SIGINT)
    resumed = cli.run("resume", "t", "--json")
    assert (resumed.code, resumed.final["answer"]) == (0, "Finished.")
    assert not (cli.workspace / "log").exists()
    assert (cli.workspace / "before").exists() == bool(before)


@pytest.mark.parametrize("number", EXITS)
@pytest.mark.parametrize("drained", [True, False], ids=["after a drain", "after the last step"])
def test_signals_between_the_last_step_and_the_final_event(
    cli: Cli, number: signal.Signals, drained: bool
) -> None:
    bring(cli, "slow", SLOW_TO_READ, ["slow = slow:build"])
    running = cli.start("run", "go", "--thread", "t", "--agent", "slow")
    until((cli.cwd / "working").exists)
    if drained:
        once(running, number)
    (cli.cwd / "worked").touch()
    until((cli.cwd / "reading").exists)
    often(running, number)
    (cli.cwd / "read").touch()
    done = running.finish()
    if drained:
        ended_well(done, number)
    assert (done.kinds[-1], done.kinds.count("final")) == ("final", 1)


def test_a_run_under_nohup_outlives_its_terminal(cli: Cli, model: OpenAIServer) -> None:
    held = Held(model)
    (out, its_out), (err, its_err) = pipe(), pipe()
    with its_out, its_err, no_input() as nothing:
        process = cli.launch([*RUN, "--json"], nothing, its_out, its_err, wrapper=["nohup"])
    running = Running(cli, process, out, err)
    held.wait()
    running.signal(signal.SIGHUP)
    held.let_go()
    done = running.finish()
    assert (done.code, done.final["answer"]) == (0, "Finished.")
    assert (cli.workspace / "log").read_text() == "once\n"


PRINTS = "print('so', 'far')\nopen('begun', 'w').close()\nimport time\ntime.sleep(1000)"


@pytest.mark.parametrize(
    "call",
    [
        Call("bash", {"command": "echo so far; touch begun; sleep 1000"}),
        Call("python_execute", {"code": PRINTS}),
    ],
)
def test_a_resumed_run_shows_what_a_stopped_call_had_printed(
    cli: Cli, model: OpenAIServer, call: Call
) -> None:
    model.add(Reply(calls=(call,)), Reply("Finished."))
    running = cli.start(*RUN)
    until((cli.workspace / "begun").exists)
    twice(running, signal.SIGINT)
    ended_well(running.finish(), signal.SIGINT)
    (end,) = cli.run("resume", "t", "--json").of("tool_end")
    assert (end["ok"], end["output"].splitlines()[0]) == (False, "so far")
    assert "cut off while it ran" in end["output"]
    assert end["output"] in [one["content"] for one in model.requests[-1].messages]
