"""LangGraph's client against the server: what Studio, inboxes and other programs do."""

import asyncio
from typing import Any

import httpx
import psutil
import pytest

from openmanus_graph.backends.persistence.database import close_databases
from openmanus_graph.backends.persistence.memory import DatabaseStore
from openmanus_graph.state.addresses import DatabaseUrl
from tests.support.openai_script import Call, Reply
from tests.support.openai_server import OpenAIServer
from tests.support.serving import Served, eventually

AGENTS = ("manus", "browser", "swe", "data_analysis", "planner")
LOOK = {"action": "get_state"}
PLAN = {"command": "create", "title": "Sum", "steps": ["Add 2 and 3"]}


def said(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}]}


@pytest.mark.slow
async def test_the_context_is_a_form_with_texts_and_choices(served: Served) -> None:
    async with served.sdk() as client:
        assistants = await client.assistants.search(limit=100)
        assert {one["graph_id"] for one in assistants} >= {*AGENTS, "planning"}
        for assistant in assistants:
            schemas = await client.assistants.get_schemas(assistant["assistant_id"])
            assert schemas["input_schema"]
            form: Any = schemas["context_schema"]
            fields = form["properties"]
            assert fields["max_steps"]["title"] == "Max Steps"
            assert fields["max_steps"]["description"].startswith("Maximum number of model calls")
            assert "bwrap" in fields["sandbox"]["anyOf"][0]["enum"]
            assert [kind["type"] for kind in fields["model"]["anyOf"]] == ["string", "null"]
            assert all(field.get("description") for field in fields.values())


async def test_schemas_are_found_by_an_agents_name(served: Served) -> None:
    async with served.sdk() as client:
        schemas = await client.assistants.get_schemas("manus")
        assert "max_steps" in schemas["context_schema"]["properties"]
        assert (await client.assistants.get("manus"))["graph_id"] == "manus"
        with pytest.raises(httpx.HTTPStatusError):
            await client.assistants.get_schemas("nobody")


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.slow
async def test_each_agent_runs_asks_and_goes_on(
    served: Served, served_model: OpenAIServer, agent: str
) -> None:
    served_model.add(
        Reply(calls=(Call("ask_human", {"inquire": "Go on?"}),)), Reply(text="It is done.")
    )
    async with served.sdk() as client:
        thread = (await client.threads.create())["thread_id"]
        await client.runs.wait(thread, agent, input=said("Do it."))
        state = await client.threads.get_state(thread)
        assert state["interrupts"][0]["value"]["question"] == "Go on?"
        waiting = await client.threads.search(status="interrupted", ids=[thread])
        assert [one["thread_id"] for one in waiting] == [thread]
        values = await client.runs.wait(thread, agent, command={"resume": "yes"})
        assert (values["answer"], values["status"]) == ("It is done.", "finished")


async def test_a_plan_runs_through_the_client(served: Served, served_model: OpenAIServer) -> None:
    served_model.add(
        Reply(calls=(Call("planning", PLAN),)),
        Reply(text="The sum is 5."),
    )
    async with served.sdk() as client:
        thread = (await client.threads.create())["thread_id"]
        values = await client.runs.wait(thread, "planning", input=said("Add."))
    assert values["status"] == "finished", values
    assert values["answer"] == "The sum is 5."


async def test_custom_events_reach_the_client_as_they_happen(
    served: Served, served_model: OpenAIServer
) -> None:
    served_model.add(Reply(text="Hello there."))
    async with served.sdk() as client:
        stream = client.runs.stream(None, "manus", input=said("Hi"), stream_mode="custom")
        kinds = [part.data["type"] async for part in stream if part.event == "custom"]
    assert kinds[0] == "think_start"
    assert kinds[-1] == "think_end"


@pytest.mark.slow
async def test_state_is_edited_and_a_fork_runs_from_an_earlier_step(
    served: Served, served_model: OpenAIServer
) -> None:
    served_model.add(
        Reply(calls=(Call("bash", {"command": "echo 1"}),)),
        *(Reply(text=text) for text in ("one", "two", "three")),
    )
    async with served.sdk() as client:
        thread = (await client.threads.create())["thread_id"]
        first = await client.runs.wait(thread, "manus", input=said("Hi"))
        assert first["answer"] == "one"
        history = await client.threads.get_history(thread, limit=20)
        earlier = next(
            one["checkpoint"]["checkpoint_id"]
            for one in history
            if one["next"] == ["think"] and len(one["values"]["messages"]) == 3
        )
        forked = await client.runs.wait(thread, "manus", input=None, checkpoint_id=earlier)
        assert forked["answer"] == "two"
        await client.threads.update_state(thread, {"answer": "edited"})
        state = await client.threads.get_state(thread)
        assert state["values"]["answer"] == "edited"
        later = await client.runs.wait(thread, "manus", input=said("More"))
        texts = [message["content"] for message in later["messages"]]
        assert texts == ["Hi", "", "1", "two", "More", "three"]


async def test_the_long_term_store_lies_beside_the_threads(served: Served) -> None:
    async with served.sdk() as client:
        await client.store.put_item(["notes"], key="tea", value={"text": "green"})
        found = await client.store.get_item(["notes"], key="tea")
    assert found["value"] == {"text": "green"}
    kept = DatabaseStore(DatabaseUrl.in_folder(served.home))
    items = await kept.asearch(("notes",))
    assert [item.key for item in items] == ["tea"]
    close_databases()


@pytest.mark.slow
async def test_a_cancelled_run_leaves_no_process_behind(
    served: Served, served_model: OpenAIServer
) -> None:
    served_model.add(
        Reply(calls=(Call("python_execute", {"code": "x = 1"}), Call("browser_use", LOOK))),
        Reply(calls=(Call("bash", {"command": "sleep 3600"}),)),
    )
    assert served.process is not None
    server = psutil.Process(served.process.pid)
    before = set(server.children(recursive=True))
    async with served.sdk() as client:
        thread = (await client.threads.create())["thread_id"]
        run = await client.runs.create(thread, "manus", input=said("Wait."))
        await eventually(lambda: "sleep" in map(_name, server.children(recursive=True)))
        names = [_name(process) for process in server.children(recursive=True)]
        assert any("chrom" in name for name in names)
        with pytest.raises(httpx.HTTPStatusError, match="Stop it first"):  # else it goes on unseen
            await client.threads.delete(thread)
        await client.runs.cancel(thread, run["run_id"], wait=True)
        await eventually(lambda: not set(server.children(recursive=True)) - before)
        assert (await client.threads.get_state(thread))["next"] == ["act"]


@pytest.mark.slow
async def test_a_deleted_thread_leaves_no_process_behind(
    served: Served, served_model: OpenAIServer
) -> None:
    served_model.add(
        Reply(calls=(Call("bash", {"command": "sleep 3600 &"}),)), Reply(text="It sleeps.")
    )
    assert served.process is not None
    server = psutil.Process(served.process.pid)
    before = set(server.children(recursive=True))
    async with served.sdk() as client:
        thread = (await client.threads.create())["thread_id"]
        await client.runs.wait(thread, "manus", input=said("Sleep."))
        assert set(server.children(recursive=True)) - before
        await client.threads.delete(thread)
        await eventually(lambda: not set(server.children(recursive=True)) - before)


async def test_wrong_names_and_values_are_refused_in_words(
    served: Served, served_model: OpenAIServer
) -> None:
    nowhere = "00000000-0000-4000-8000-000000000000"
    async with served.sdk() as client:
        thread = (await client.threads.create())["thread_id"]
        with pytest.raises(httpx.HTTPStatusError) as no_graph:
            await client.runs.wait(thread, "nobody", input=said("Hi"))
        with pytest.raises(httpx.HTTPStatusError) as no_thread:
            await client.runs.wait(nowhere, "manus", input=said("Hi"))
        assert no_graph.value.response.status_code in (404, 422)
        assert no_thread.value.response.status_code == 404
        with pytest.raises(httpx.HTTPStatusError) as no_number:
            await client.runs.wait(thread, "manus", input=said("Hi"), context={"max_steps": "many"})
        assert "max_steps" in no_number.value.response.json()["detail"]
        with pytest.raises(Exception, match=r"ConfigError: .* MCP server"):
            await client.runs.wait(thread, "mcp", input=said("Hi"))


@pytest.mark.slow
async def test_one_question_is_answered_once(served: Served, served_model: OpenAIServer) -> None:
    ask = Reply(calls=(Call("ask_human", {"inquire": "Which?"}),))
    served_model.add(ask, Reply(text="Done."))
    async with served.sdk() as client:
        thread = (await client.threads.create())["thread_id"]
        await client.runs.wait(thread, "manus", input=said("Hi"))
        question = (await client.threads.get_state(thread))["interrupts"][0]["id"]
        with pytest.raises(httpx.HTTPStatusError, match="409 Conflict"):
            await client.runs.wait(thread, "manus", command={"resume": {"0" * 32: "x"}})
        answer: Any = {"resume": {question: "this"}}
        values = await client.runs.wait(thread, "manus", command=answer)
        assert values["status"] == "finished"
        with pytest.raises(httpx.HTTPStatusError, match="409 Conflict"):
            await client.runs.wait(thread, "manus", command=answer)


def _name(process: psutil.Process) -> str:
    try:
        return process.name()
    except psutil.NoSuchProcess:
        return ""


@pytest.mark.slow
async def test_threads_that_are_deleted_at_once_take_no_others_along(served: Served) -> None:
    async with served.sdk() as client, served.http() as http:
        made = [(await client.threads.create())["thread_id"] for _ in range(60)]
        kept, gone = made[::2], made[1::2]
        by_page = [http.delete(f"/app/api/threads/{one}") for one in gone[::2]]
        by_sdk = [client.threads.delete(one) for one in gone[1::2]]
        await asyncio.gather(*by_page, *by_sdk)
        left = {one["thread_id"] for one in await client.threads.search(limit=1000)}
        assert left & {*made} == {*kept}
