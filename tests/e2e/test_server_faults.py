"""The server killed, ended, started again, beside the command line, and with others' agents."""

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from openmanus_graph.interfaces.service.threads import hold_thread
from tests.support.openai_script import Call, Reply
from tests.support.openai_server import OpenAIServer
from tests.support.serving import Page, Served, eventually, new_page
from tests.support.zygote import Forked, Zygote

pytestmark = pytest.mark.slow

PICKLES = (
    ".langgraph_ops", ".langgraph_retry_counter", ".langgraph_checkpoint.1",
    ".langgraph_checkpoint.2", ".langgraph_checkpoint.3", "store", "store.vectors",
)  # fmt: skip
PAY = "echo paid >> paid.txt"


@pytest.fixture
def own(model: OpenAIServer, tmp_path: Path, zygote: Zygote) -> Iterator[Served]:
    """A server of the test's own."""
    env = {"OPENAI_BASE_URL": model.base_url, "OPENMANUS_MODEL": "openai:m"}
    with Served(tmp_path / "own", env, zygote=zygote) as served:
        yield served


async def test_a_killed_server_loses_nothing_and_the_thread_goes_on(
    own: Served, model: OpenAIServer
) -> None:
    model.add(
        Reply(calls=(Call("bash", {"command": PAY}),)),
        Reply(calls=(Call("ask_human", {"inquire": "Go on?"}),)),
        Reply(calls=(Call("bash", {"command": "sleep 600"}),)),
    )
    async with new_page(own) as page, new_page(own) as waiting:
        await page.ask(message="Pay, then sleep.")
        await page.final()
        question = page.seen[-2]["id"]
        await page.ask(answers={question: "yes"})
        await page.until(lambda event: event["type"] == "tool_start" and "sleep" in str(event))
        model.add(Reply(calls=(Call("ask_human", {"inquire": "Which?"}),)))
        await waiting.ask(message="Ask.")
        assert (await waiting.final())["status"] == "waiting"
        seen = [event for event in page.seen if event["type"] != "token"]
    await asyncio.to_thread(own.stop, signal.SIGKILL)
    await asyncio.to_thread(own.start)
    model.add(Reply(text="Slept."), Reply(text="This one."))
    async with own.http() as http, own.sdk() as client:
        again, other = Page(http, page.thread), Page(http, waiting.thread)
        shown = (await http.get(again.base)).json()
        assert (shown["status"], shown["interrupts"]) == ("interrupted", [])
        past = await again.past()
        assert [event["seq"] for event in past] == [event["seq"] for event in seen]
        steering = await client.threads.search(status="interrupted", ids=[waiting.thread])
        assert "Which?" in str(steering[0]["interrupts"])
        await again.ask(resume=True)
        again.seen = past
        assert (await again.final())["answer"] == "Slept."
        asked = (await http.get(other.base)).json()["interrupts"][0]["id"]
        values = await client.runs.wait(waiting.thread, "manus", command={"resume": {asked: "x"}})
        assert values["answer"] == "This one."
        workspace = Path((await http.get(f"{again.base}/files")).json()["workspace"])
    assert (workspace / "paid.txt").read_text() == "paid\n"


async def test_a_server_that_is_told_to_end_closes_everything_and_says_so(
    own: Served, model: OpenAIServer
) -> None:
    model.add(
        Reply(calls=(Call("python_execute", {"code": "x = 1"}),)),
        Reply(calls=(Call("bash", {"command": "sleep 600"}),)),
    )
    assert own.process is not None
    server = psutil.Process(own.process.pid)
    async with new_page(own) as page:
        await page.ask(message="Sleep.")
        await page.until(lambda event: event["type"] == "tool_start" and "sleep" in str(event))
        await eventually(lambda: len(server.children(recursive=True)) > 1)
        children = server.children(recursive=True)
        async with page.follow(page.last) as events:  # accepted, which is more than asked for
            await asyncio.to_thread(own.stop)
            assert "final" not in [event["type"] async for event in events]
    await eventually(lambda: not [child for child in children if child.is_running()])
    await asyncio.to_thread(own.start)
    async with own.http() as http:
        past = await Page(http, page.thread).past()
        assert (past[-1]["type"], past[-1]["status"]) == ("final", "cancelled")


async def test_threads_go_on_in_the_terminal_and_one_process_works_at_a_time(
    served: Served, served_model: OpenAIServer, zygote: Zygote
) -> None:
    served_model.add(Reply(calls=(Call("ask_human", {"inquire": "Go on?"}),)))
    async with new_page(served) as page:
        await page.ask(message="Ask.")
        await page.final()
        served_model.add(
            Reply(calls=(Call("bash", {"command": "while [ ! -e go ]; do sleep 0.1; done"}),)),
            Reply(text="From the terminal."),
        )
        terminal = _command(zygote, served, "resume", page.thread, "--answer", "yes")
        await eventually(lambda: len(served_model.requests) > 1)
        refused = await page.ask(409, message="Me too.")
        assert "another process" in refused["detail"]
        assert (await page.http.get(page.base)).json()["held_by"] == "another process"
        await page.http.put(f"{page.base}/files/go", content=b"")
        assert await asyncio.to_thread(terminal.wait) == 0
        assert (served.folder / "resume.out").read_text() == "From the terminal.\n"
        with hold_thread(served.home, page.thread):  # as it does just after its run's end
            assert (await page.http.get(page.base)).json()["held_by"] is None
        served_model.add(Reply(calls=(Call("bash", {"command": "sleep 600"}),)))
        await page.ask(message="Now I.")
        await page.until(lambda event: event["type"] == "tool_start" and "sleep" in str(event))
        other = _command(zygote, served, "run", "--thread", page.thread, "And I?")
        assert await asyncio.to_thread(other.wait) == 1
        await page.http.post(f"{page.base}/stop")
        assert (await page.final())["status"] == "cancelled"


async def test_what_the_terminal_asked_is_shown_and_answered_on_the_page(
    served: Served, served_model: OpenAIServer, zygote: Zygote
) -> None:
    served_model.add(
        Reply(calls=(Call("bash", {"command": "echo hi"}),)),
        Reply(calls=(Call("ask_human", {"inquire": "Go on?"}),)),
        Reply(text="Gone on."),
    )
    terminal = _command(zygote, served, "run", "Ask me.")
    assert await asyncio.to_thread(terminal.wait) == 4
    async with served.http() as http:
        thread = (await http.get("/app/api/threads")).json()["threads"][0]
        assert (thread["status"], thread["startable"]) == ("waiting", True)
        page = Page(http, thread["id"])
        past = await page.past()
        assert [event["type"] for event in past] == [
            "run_start", "think_end", "tool_start", "tool_end", "think_end", "tool_start",
            "interrupt", "final",
        ]  # fmt: skip
        assert {one["ts"].replace("+00:00", "Z") for one in past} == {thread["created"]}
        await page.ask(answers={past[-2]["id"]: "yes"})
        page.seen = past
        assert (await page.final())["answer"] == "Gone on."
        again = [event for event in await page.past() if event["type"] != "token"]
        assert again == [event for event in page.seen if event["type"] != "token"]


async def test_agents_of_other_packages_are_served_and_pickles_of_the_folder_are_not_loaded(
    model: OpenAIServer, tmp_path: Path
) -> None:
    folder = tmp_path / "cloned"
    (folder / ".langgraph_api").mkdir(parents=True)
    evil = b"cposix\nsystem\n(S'touch owned'\ntR."
    for name in PICKLES:
        (folder / ".langgraph_api" / f"{name}.pckl").write_bytes(evil)
    (folder / "mine.py").write_text(
        "from openmanus_graph import build_manus_graph, register_agent\n"
        "def build_greeter(**given):\n"
        '    """greets: says hello"""\n'
        "    return build_manus_graph(**given, prompts={'system': 'You greet.'}, name='greeter')\n"
        "register_agent('greeter', build_greeter)\n"
    )
    model.add(Reply(text="Hello!"))
    env = {"OPENAI_BASE_URL": model.base_url, "OPENMANUS_MODEL": "openai:m"}
    with Served(folder, env, ("--import", "mine")) as served:
        async with new_page(served) as page:
            options = (await page.http.get("/app/api/options")).json()
            assert {"name": "greeter", "description": "greets: says hello"} in options["agents"]
            await page.ask(agent="greeter", message="Greet.")
            assert (await page.final())["answer"] == "Hello!"
    assert not (folder / "owned").exists()
    assert model.requests[0].messages[0]["content"].startswith("You greet.")


def _command(zygote: Zygote, own: Served, *args: str) -> Forked:
    """Start a command beside the server; its stdout goes to `run.out`, say, in the folder."""
    env = {**os.environ, "OPENMANUS_HOME": str(own.home), **own.env}
    names = (own.folder / f"{args[0]}.{kind}" for kind in ("out", "err"))
    with next(names).open("wb") as out, next(names).open("wb") as err:
        return zygote.start(args, cwd=own.folder, env=env, out=out.fileno(), err=err.fileno())
