"""Programs with `network = "ask"`: the first request to a host that nobody named is asked about."""

from collections.abc import Iterator
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from openmanus_graph import Context, build_manus_graph
from openmanus_graph.runtime.session_registry import close_all_at_once
from openmanus_graph.testing import ScriptedChatModel
from tests.support.graphs import Answer, calls
from tests.support.pages import PageServer

THREAD: Any = {"configurable": {"thread_id": "asked"}}
APPROVE, REJECT = {"type": "approve"}, {"type": "reject", "message": "no"}


@pytest.fixture
def named() -> Iterator[PageServer]:
    with PageServer() as server:
        server.add("/", "the named page")
        yield server


@pytest.fixture
def other() -> Iterator[PageServer]:
    with PageServer() as server:
        server.add("/", "the other page")
        yield server


class Agent:
    def __init__(self, named: PageServer, *replies: Answer, **context: Any) -> None:
        given: dict[str, Any] = {"network": True, "workspace": "work"} | context
        self.context = Context(model=ScriptedChatModel(list(replies)), **given)
        self.graph = build_manus_graph(checkpointer=InMemorySaver())
        self.task = f"Read {named.url()} and tell me what is there."

    async def go_on(self, given: Any = None) -> list[dict[str, Any]]:
        """Run on, and return the calls that are asked about."""
        given = given or {"messages": [HumanMessage(self.task)]}
        values = await self.graph.ainvoke(given, THREAD, context=self.context)
        self.results = [one.text for one in values["messages"] if one.type == "tool"]
        questions = [one.value for one in values.get("__interrupt__", ())]
        return [call for one in questions for call in one["calls"]]


def bash(command: str, number: int = 1) -> AIMessage:
    return calls(("bash", {"command": command}), prefix=f"b{number}")


def python(code: str, number: int = 1) -> AIMessage:
    return calls(("python_execute", {"code": code}), prefix=f"p{number}")


def in_shell(server: PageServer, number: int = 1) -> AIMessage:
    return bash(f"curl -s -X POST {server.url()}", number)


def in_script(server: PageServer, number: int = 1) -> AIMessage:
    """The address is nowhere in the text of the call."""
    parts = f"'127.0.0', '1:{server.port}'"
    text = f"import urllib.request as r; print(r.urlopen('http://' + '.'.join([{parts}])).read())"
    return bash(f'echo "{text}" > a.py; python3 a.py', number)


def in_python(server: PageServer, number: int = 1) -> AIMessage:
    text = f"import httpx; httpx.post('http://127.0.0.1:' + str({server.port})).text"
    return python(text, number)


@pytest.mark.parametrize("ask", [in_shell, in_script, in_python])
async def test_the_first_request_is_asked_about_before_it_is_made(
    named: PageServer, other: PageServer, ask: Any
) -> None:
    agent = Agent(named, ask(named), ask(other, 2), ask(other, 3), "the other page")
    (call,) = await agent.go_on()
    assert (len(named.asked), other.asked) == (1, [])
    assert call["tool"] == "reach_host"
    assert call["args"]["address"] == f"http://{other.place}"
    assert f"http://{other.place}" in call["args"]["why"]
    assert await agent.go_on(Command(resume=APPROVE)) == []
    assert len(other.asked) == 1
    assert "has to be run again" in agent.results[1]
    assert "page" in agent.results[2]


async def test_a_host_that_a_person_refuses_is_never_reached(
    named: PageServer, other: PageServer
) -> None:
    agent = Agent(named, in_shell(other), "no page was read", "no page")
    assert len(await agent.go_on()) == 1
    await agent.go_on(Command(resume=REJECT))
    assert "did not allow reach_host" in agent.results[0]
    assert other.asked == []


async def test_a_redirect_to_another_host_is_asked_about(
    named: PageServer, other: PageServer
) -> None:
    named.add("/", "", status=302, headers={"Location": other.url()})
    agent = Agent(named, bash(f"curl -sL {named.url()}"), "the named page moved", "done so")
    (call,) = await agent.go_on()
    assert call["args"]["address"] == f"http://{other.place}"
    assert other.asked == []


async def test_what_was_approved_holds_in_a_new_process(
    named: PageServer, other: PageServer
) -> None:
    agent = Agent(named, in_script(other), "the other page", in_script(other, 2), "the other page")
    await agent.go_on()
    await agent.go_on(Command(resume=APPROVE))
    await close_all_at_once()
    assert await agent.go_on({"messages": [HumanMessage("And once more?")]}) == []
    assert len(other.asked) == 1


@pytest.mark.parametrize(
    ("settings", "reached"),
    [({"network": "any"}, 1), ({"policy": "auto"}, 1), ({"policy": "never"}, 0),
     ({"network": False}, 0)],
)  # fmt: skip
async def test_without_a_question_it_is_reached_or_refused(
    named: PageServer, other: PageServer, settings: dict[str, Any], reached: int
) -> None:
    agent = Agent(named, in_script(other), "the page says something", "it is so", **settings)
    assert await agent.go_on() == []
    assert len(other.asked) == reached


async def test_servers_of_the_sandbox_need_no_question(named: PageServer) -> None:
    page = "curl -sf --retry 20 --retry-delay 1 --retry-all-errors http://localhost:8765/"
    served = f"python3 -m http.server 8765 & {page} | head -1"
    agent = Agent(named, bash(served), "It lists the folder.")
    assert await agent.go_on() == []
    assert "<!DOCTYPE HTML>" in agent.results[0]


async def test_a_private_address_needs_the_option_of_the_person(named: PageServer) -> None:
    agent = Agent(named, bash("curl -s http://10.1.2.3/"), "It is out of reach.")
    assert await agent.go_on() == []
    assert "--allow-host 10.1.2.3" in agent.results[0]
    assert "--network=any" in agent.results[0]


async def test_always_allows_the_host_of_the_question_only(
    named: PageServer, other: PageServer
) -> None:
    with PageServer() as third:
        third.add("/", "the third page")
        agent = Agent(named, in_shell(other), in_shell(third, 2), "the third page")
        await agent.go_on()
        (call,) = await agent.go_on(Command(resume={**APPROVE, "remember": True}))
        assert call["args"]["address"] == f"http://{third.place}"
        assert third.asked == []
